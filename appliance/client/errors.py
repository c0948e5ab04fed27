"""All errors of the client. The text of each says what happened and what to do about it.

ClientError
├── InvalidMessage, InvalidOption (ValueError)   the call is wrong; nothing was sent
├── Closed              the client, or a part that it made, is closed
├── ForkedError         the client belongs to the parent process
├── Unsupported         the broker is too old for it; nothing was sent
├── NoNameServer        none is configured, or none answers (ConnectionError)
├── NoRoute             the name server has no broker for the topic
├── BrokerAway          a request other than a send: the broker cannot be reached (ConnectionError)
├── RequestTimeout      a request other than a send: no answer in time (TimeoutError)
├── RequestRefused      a request other than a send: the broker answered with a code
│   └── NotPermitted    code 16
├── AdminError          an administrator's question has no answer: the group, message or cluster does not exist
├── BadAnswer           a server answered with something that is not RocketMQ's, or a stored message is damaged
├── SendError           a message is not confirmed
│   ├── NotConnected    no connection to the broker (ConnectionError)
│   ├── SendTimeout     no answer in time (TimeoutError)
│   ├── Refused         the broker answered with a code
│   ├── TooMuchInFlight too many unconfirmed messages; nothing was sent
│   └── StoredUnconfirmed   it is stored, but not synced or not replicated (codes 10, 11, 12)
└── Retry, Reject, Suspend   raised by handlers, to say what becomes of the message
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import ReceivedMessage, SendResult


class ClientError(Exception):
    """The root of the tree above."""


class InvalidMessage(ClientError, ValueError):
    """A message cannot be sent as it is; nothing was sent."""


class InvalidOption(ClientError, ValueError):
    """An argument is wrong; nothing was done."""


class Closed(ClientError):
    """The client, or a part that it made, is closed; make a new one."""


class ForkedError(ClientError):
    """This process is a fork of the one that made the client; connections and threads stayed with the parent."""


class Unsupported(ClientError):
    """The broker is too old for it; nothing was sent."""


class NoNameServer(ClientError, ConnectionError):
    """No name server is configured, or none of them answers."""


class NoRoute(ClientError):
    """The name server has no broker for the topic."""


class BrokerAway(ClientError, ConnectionError):
    """The broker cannot be reached, or the connection broke before its answer."""


class RequestTimeout(ClientError, TimeoutError):
    """No answer in time; the request may have been done."""


class RequestRefused(ClientError):
    """The broker answered with an error. code: RocketMQ's response code. remark: the broker's own words."""

    def __init__(self, text: str, code: int, remark: str) -> None:
        super().__init__(text)
        self.code = code
        self.remark = remark


class NotPermitted(RequestRefused):
    """Code 16: topic, group or broker do not allow it."""


class AdminError(ClientError):
    """The group, message or cluster of an administrator's call does not exist; nothing was done."""


class BadAnswer(ClientError):
    """An answer cannot be read: the server does not use RocketMQ's protocol, or a message is damaged."""


class SendError(ClientError):
    """A message is not confirmed.

    maybe_stored: True if a broker may have stored it nevertheless; sending it again may store it twice. attempts:
    number of attempts. message_id: its unique key, the same in every attempt; None if there was none yet. code, remark:
    of the broker's last answer; None and "" without one.
    """

    def __init__(
        self,
        text: str,
        *,
        maybe_stored: bool = False,
        attempts: int = 0,
        message_id: str | None = None,
        code: int | None = None,
        remark: str = "",
    ) -> None:
        super().__init__(text)
        self.maybe_stored = maybe_stored
        self.attempts = attempts
        self.message_id = message_id
        self.code = code
        self.remark = remark


class NotConnected(SendError, ConnectionError):
    """There is no connection to a broker of the topic, or it broke before the answer (`maybe_stored`)."""


class SendTimeout(SendError, TimeoutError):
    """No broker answered in time."""


class Refused(SendError):
    """The broker answered with an error; see `code` and `remark`."""


class TooMuchInFlight(SendError):
    """The producer's limit of unconfirmed messages was reached for the whole time-out; this message was not sent."""


class StoredUnconfirmed(SendError):
    """The broker stored the message, but it is not on disk (10), or not at a slave (11, 12). result: its place."""

    result: SendResult


class Retry(ClientError):
    """Raised by a handler: deliver the message again later.

    level: number of the broker's `messageDelayLevel` to wait, from 1 on. after: seconds; taken is the first of
    RocketMQ's standard levels that is at least so long. With neither, the wait grows with the attempts. messages: of a
    list that was handled together those that come again; the others are done.

    An ordered consumer keeps the message, its queue rests meanwhile, 30 s at the most.
    """

    def __init__(
        self,
        *,
        level: int | None = None,
        after: float | None = None,
        messages: Sequence[ReceivedMessage] | None = None,
    ) -> None:
        if level is not None and (level < 1 or after is not None):
            raise InvalidOption(f"level is 1 or more, and comes without after; not {level!r} and {after!r}.")
        super().__init__("the handler asked for another attempt")
        self.level = level
        self.after = after
        self.messages = messages


class Reject(ClientError):
    """Raised by a handler: make the message a dead letter at once. The reason is logged."""


class Suspend(ClientError):
    """Raised by the handler of an ordered consumer: the same message again after `seconds`, 0.01 to 30; its queue rests
    meanwhile."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__(f"the queue rests for {seconds:g} s")
        self.seconds = seconds
