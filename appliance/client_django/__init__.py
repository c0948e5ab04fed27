"""RocketMQ in a Django project: an app for INSTALLED_APPS. docs/python.md begins with it.

    # shop/consumers.py
    billing = consumer_group("billing", start="first")

    @billing.subscribe("orders", tags="paid")
    def bill(message):
        Invoice.objects.create(order_id=message.json()["id"])

    # a view
    with transaction.atomic():
        order.save()
        send_by_outbox("orders", order.as_json(), tags="paid", shard=order.id)

`manage.py consume` runs the handlers, `manage.py relay_outbox` sends what the outbox holds. Nothing connects before it
sends or consumes.
"""

from .handlers import ConsumerGroup, consumer_group
from .outbox import send_by_outbox
from .sending import client, producer, send_on_commit

__all__ = ["ConsumerGroup", "client", "consumer_group", "producer", "send_by_outbox", "send_on_commit"]
