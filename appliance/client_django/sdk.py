"""The only module through which the app uses the client. In the client's wheel, where the app is `rocketbox.django`,
this module's imports are other ones (`client_wheel/build.py`)."""

from __future__ import annotations

from ..client import (
    Client,
    ClientError,
    CloseReport,
    InvalidMessage,
    InvalidOption,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from ..client.acts import is_async
from ..client.ending import ended_by, entry_of
from ..client.packing import (
    SendOptions,
    Where,
    body_of,
    check_message,
    check_select,
    properties_of,
    taken_apart,
    text_of,
)
from ..client.wire import Record

__all__ = [
    "Client",
    "ClientError",
    "CloseReport",
    "InvalidMessage",
    "InvalidOption",
    "Message",
    "MessageQueue",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "Record",
    "SendOptions",
    "Where",
    "body_of",
    "check_message",
    "check_select",
    "ended_by",
    "entry_of",
    "is_async",
    "properties_of",
    "taken_apart",
    "text_of",
]
