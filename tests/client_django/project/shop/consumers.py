import os
import time
from pathlib import Path

from appliance.client import Reject
from appliance.client_django import consumer_group

from .models import Bill

TOPIC = os.environ.get("SHOP_TOPIC", "orders")
billing = consumer_group(os.environ.get("SHOP_GROUP", "billing"), start="first", workers=2)


@billing.subscribe(TOPIC)
def bill(message):
    text = message.text
    if text == "nothing":
        raise Reject("an order of nothing")
    if text.startswith("waits for "):
        file = Path(text.removeprefix("waits for "))
        file.with_suffix(".begun").touch()
        while not file.exists():
            time.sleep(0.01)
    Bill.objects.create(name=text, attempt=message.attempt)


@billing.subscribe(f"{TOPIC}-once", once=True)
def bill_once(message):
    Bill.objects.create(name=message.text, attempt=message.attempt)
    if message.text == "fails first" and message.attempt == 1:
        raise RuntimeError("after the bill was written")
