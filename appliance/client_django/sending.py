"""The client of a process of a Django project, and sends after a commit."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Unpack

from . import options
from .sdk import Client, Message, Producer, SendOptions, Where, check_message, check_select, taken_apart

_lock = threading.Lock()
#: (id of the process that made it, its client). A fork makes another one.
_own: tuple[int, Client] | None = None
#: Takes messages in the place of a broker, in tests.
taken: list[Message] | None = None


def client() -> Client:
    """Return the client of this process, made of the setting ROCKETBOX when it is first asked for, and closed at its
    end. Raises InvalidOption."""
    global _own
    with _lock:
        if _own is None or _own[0] != os.getpid():
            _own = (os.getpid(), options.read().make_client())
            atexit.register(_own[1].close)
        return _own[1]


def producer() -> Producer:
    """Return the producer of this process. Raises InvalidOption."""
    return options.read().producer_of(client())


def _after_fork() -> None:
    """A thread of the parent may have held the lock, and does not run in the child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def send_on_commit(
    message: Message | str,
    body: bytes | str | None = None,
    *,
    using: str | None = None,
    robust: bool = False,
    **given: Unpack[SendOptions],
) -> None:
    """Send a message after the transaction that is open now commits; at once if none is open; never if it, or the
    savepoint that is open now, is rolled back.

    using: alias of the database. The message is checked now, so that InvalidMessage rolls the transaction back. A send
    that fails raises after the commit, from the end of `atomic`, and keeps later functions of `on_commit` from running;
    with `robust` Django logs it instead. A process that dies in between does not send: see `send_by_outbox`.
    """
    from django.db import transaction

    whole, where = taken_apart(message, body, given)
    check_message(whole, where.queue)
    if where.select is not None:
        check_select(whole, where)

    def send() -> None:
        _send(whole, where)

    transaction.on_commit(send, using=using, robust=robust)


def _send(message: Message, where: Where) -> None:
    if taken is not None:
        taken.append(message)
    else:
        producer().send(message, queue=where.queue, select=where.select, timeout=where.timeout)
