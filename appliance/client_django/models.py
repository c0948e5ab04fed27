from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models
from django.utils import timezone

from .sdk import Message, ReceivedMessage

#: Property of a message from the outbox, a text that stays the same if it is sent twice; its message_id does not.
OUTBOX_ID = "OUTBOX_ID"
#: Parts of the outbox, so that several relays work at once. A key is always in the same one.
LANES = 16
_LONGEST_KEY = 200


class OutboxMessage(models.Model):
    """A message that waits to be sent. It goes when a broker has confirmed it."""

    id = models.BigAutoField(primary_key=True)
    lane = models.PositiveSmallIntegerField()
    #: Messages with one key are sent one after the other, by their ids; "" has no order.
    key = models.CharField(max_length=255, blank=True, default="")
    topic = models.CharField(max_length=255)
    body = models.BinaryField()
    size = models.PositiveIntegerField()
    #: The rest of the message, as JSON.
    options = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True, default="")
    #: Time before which it is not tried again, by the database's clock.
    next_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "rocketbox"
        indexes = (models.Index(fields=["lane", "id"], name="rocketbox_outbox_lane"),)

    def __str__(self) -> str:
        return f"message {self.pk} for {self.topic}"

    @classmethod
    def of(cls, message: Message, body: bytes, outbox_id: str) -> OutboxMessage:
        """Return the row of a message that was checked, not yet saved. Its delay begins now."""
        at = message.at
        if message.delay is not None:
            delay = message.delay if isinstance(message.delay, timedelta) else timedelta(seconds=message.delay)
            at = datetime.now(UTC) + delay
        options: dict[str, Any] = {
            "tags": message.tags,
            "keys": [message.keys] if isinstance(message.keys, str) else list(message.keys),
            "properties": {**message.properties, OUTBOX_ID: outbox_id},
            "shard": message.shard,
            "delay_level": message.delay_level,
            "at": None if at is None else at.timestamp(),
        }
        key = _key_of(message.shard)
        lane = hashlib.sha256((key or outbox_id).encode()).digest()[0] % LANES
        text = json.dumps({name: value for name, value in options.items() if value not in (None, [])})
        return cls(lane=lane, key=key, topic=message.topic, body=body, size=len(body), options=text)

    def as_message(self) -> Message:
        options = json.loads(self.options)
        if "at" in options:
            options["at"] = datetime.fromtimestamp(options["at"], UTC)
        return Message(self.topic, bytes(self.body), **options)


class OutboxLane(models.Model):
    """The relay that sends the messages of a lane."""

    lane = models.PositiveSmallIntegerField(primary_key=True)
    relay = models.CharField(max_length=64, blank=True, default="")
    #: Until when it is taken, by the database's clock: for people, and another at each renewal. None: it was let go.
    until = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "rocketbox"

    def __str__(self) -> str:
        return f"lane {self.lane}"


class HandledMessage(models.Model):
    """A message that a handler declared with `once` is done with. `manage.py forget_handled` deletes old ones."""

    id = models.BigAutoField(primary_key=True)
    group = models.CharField(max_length=255)
    message = models.CharField(max_length=255)
    handled_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        app_label = "rocketbox"
        constraints = (models.UniqueConstraint(fields=["group", "message"], name="rocketbox_handled_once"),)

    def __str__(self) -> str:
        return f"{self.message} by {self.group}"

    @classmethod
    def note(cls, database: str, group: str, message: ReceivedMessage) -> bool:
        """Note in the transaction that is open that a message is handled; False if it was before. It waits for another
        transaction that is at the same message. One that was sent on to another topic, with its properties, is another
        message."""
        name = f"{message.topic}:{message.properties.get(OUTBOX_ID) or message.message_id}"
        return bool(cls.objects.using(database).get_or_create(group=group, message=name[:255])[1])


def _key_of(shard: str | int | None) -> str:
    """A number is another shard than its text."""
    if shard is None:
        return ""
    key = f"{'number' if isinstance(shard, int) else 'text'}:{shard}"
    if len(key) <= _LONGEST_KEY and key.isprintable():
        return key
    return f"hash:{hashlib.sha256(key.encode()).hexdigest()}"
