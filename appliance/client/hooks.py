"""`Hook`: functions of the user's before and after each send, and each call of a handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .errors import InvalidOption
from .message import Message, ReceivedMessage, SendResult
from .notes import logger


class SendCall:
    """One send. message: what is sent; `before_send` may put another in its place. message_id: its unique key.
    is_half: True for the message of a transaction, which has not ended yet. state: for hooks, empty at first."""

    __slots__ = ("group", "is_half", "message", "message_id", "state")

    def __init__(self, group: str, message: Message, message_id: str, is_half: bool = False) -> None:
        self.is_half = is_half
        self.group = group
        self.message = message
        self.message_id = message_id
        self.state: dict[Any, Any] = {}


class ConsumeCall:
    """One call of a handler. messages: those that it is given. state: for hooks, empty at first."""

    __slots__ = ("group", "messages", "state")

    def __init__(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        self.group = group
        self.messages = messages
        self.state: dict[Any, Any] = {}


class Hook:
    """Override what you need; all of them do nothing. They are called in turn, those behind a call in reverse, and must
    not wait: with asyncio the event loop runs them. Each call that a hook has seen begin it sees end.

    An error of `before_send` is raised by the send, and nothing is sent. One of `before_consume` is the handler's. The
    others are logged.
    """

    def before_send(self, call: SendCall) -> None:
        """Called in the caller's thread, with each message of a batch, too."""

    def after_send(self, call: SendCall, result: SendResult | None, error: BaseException | None) -> None:
        """Called when it is known what became of the send, in a thread of the client's; a one-way send has neither a
        result nor an error. `flush` and `close` wait for it."""

    def before_consume(self, call: ConsumeCall) -> None:
        """Called in the handler's thread or task."""

    def after_consume(self, call: ConsumeCall, error: BaseException | None) -> None:
        """Called there, too. error: what the handler raised."""


def check_hooks(hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    found = tuple(hooks)
    if not all(isinstance(one, Hook) for one in found):
        raise InvalidOption(f"hooks are instances of Hook, not {found!r}.")
    return found


def before_send(hooks: Sequence[Hook], call: SendCall) -> None:
    """Call the hooks; if one raises, those before it see the end of the call."""
    _before(hooks, lambda hook: hook.before_send(call), lambda seen, error: after_send(seen, call, None, error))


def after_send(hooks: Sequence[Hook], call: SendCall, result: SendResult | None, error: BaseException | None) -> None:
    for hook in reversed(hooks):
        _logged(lambda hook=hook: hook.after_send(call, result, error))  # type: ignore[misc]


def before_consume(hooks: Sequence[Hook], call: ConsumeCall) -> None:
    _before(hooks, lambda hook: hook.before_consume(call), lambda seen, error: after_consume(seen, call, error))


def after_consume(hooks: Sequence[Hook], call: ConsumeCall, error: BaseException | None) -> None:
    for hook in reversed(hooks):
        _logged(lambda hook=hook: hook.after_consume(call, error))  # type: ignore[misc]


def _before(
    hooks: Sequence[Hook], begin: Callable[[Hook], None], end: Callable[[Sequence[Hook], BaseException], None]
) -> None:
    for number, hook in enumerate(hooks):
        try:
            begin(hook)
        except BaseException as error:
            end(hooks[:number], error)
            raise


def _logged(act: Callable[[], None]) -> None:
    try:
        act()
    except Exception:
        logger.exception("client: a hook failed")
