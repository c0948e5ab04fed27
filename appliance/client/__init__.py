"""A client of RocketMQ's protocol, 4.9 and 5.x, in Python: for RocketBox and Apache RocketMQ. docs/python.md begins
with it.

    with Client("127.0.0.1:9876") as client:
        client.producer().send("orders", "paid")
"""

from . import allocation
from .client import Client
from .core.pulling import Pulled
from .core.transactions import Decision
from .credentials import Credentials
from .dedup import MemoryStore, RedisStore, once
from .errors import (
    AdminError,
    BadAnswer,
    BrokerAway,
    ClientError,
    Closed,
    ForkedError,
    InvalidMessage,
    InvalidOption,
    NoNameServer,
    NoRoute,
    NotConnected,
    NotPermitted,
    Refused,
    Reject,
    RequestRefused,
    RequestTimeout,
    Retry,
    SendError,
    SendTimeout,
    StoredUnconfirmed,
    Suspend,
    TooMuchInFlight,
    Unsupported,
)
from .hooks import ConsumeCall, Hook, SendCall
from .message import CloseReport, Message, MessageQueue, ReceivedMessage, SendResult, TopicStats
from .producer import Producer
from .pull_consumer import PullConsumer
from .push_consumer import PushConsumer
from .reader import Reader
from .shells.threads import Pending
from .tls import Tls
from .transactional import Transaction, TransactionalProducer

__all__ = [
    "AdminError",
    "BadAnswer",
    "BrokerAway",
    "Client",
    "ClientError",
    "CloseReport",
    "Closed",
    "ConsumeCall",
    "Credentials",
    "Decision",
    "ForkedError",
    "Hook",
    "InvalidMessage",
    "InvalidOption",
    "MemoryStore",
    "Message",
    "MessageQueue",
    "NoNameServer",
    "NoRoute",
    "NotConnected",
    "NotPermitted",
    "Pending",
    "Producer",
    "PullConsumer",
    "Pulled",
    "PushConsumer",
    "Reader",
    "ReceivedMessage",
    "RedisStore",
    "Refused",
    "Reject",
    "RequestRefused",
    "RequestTimeout",
    "Retry",
    "SendCall",
    "SendError",
    "SendResult",
    "SendTimeout",
    "StoredUnconfirmed",
    "Suspend",
    "Tls",
    "TooMuchInFlight",
    "TopicStats",
    "Transaction",
    "TransactionalProducer",
    "Unsupported",
    "allocation",
    "once",
]
