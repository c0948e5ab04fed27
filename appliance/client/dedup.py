"""`once`: handlers that skip messages which they have handled, by a store of their ids.

    @consumer.subscribe("orders")
    @once(MemoryStore(ttl=3600))
    def bill(message):
        charge(message.json())

A message counts as handled when its handler returned. Between that and the store's note the process may die, so only a
store in the handler's own transaction is exact, as `once=True` of the app for Django.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from .acts import is_async
from .errors import InvalidOption, Retry
from .message import ReceivedMessage
from .notes import logger

Handler = TypeVar("Handler", bound=Callable[[Any], Any])
#: "new": claimed for this call. "busy": another call has it. "done": it was handled.
Claim: TypeAlias = Literal["new", "busy", "done"]

#: Property of messages that are sent twice with two ids, as by the outbox of the app for Django.
_OUTBOX_ID = "OUTBOX_ID"
#: Time until a message comes again that another call works on: twice as long after each attempt, so many times. A lease
#: whose holder has died ends before the message is out of attempts.
_BUSY_S = 10.0
_MOST_DOUBLINGS = 7
#: Time for which a call may work on a message, unless told otherwise: the default of `handler_timeout`.
_LEASE_S = 900.0
#: Looks for old keys at the most once in so many seconds.
_SWEEP_S = 1.0


class Store(Protocol):
    """Keys of messages. With asyncio the calls may return awaitables of their results."""

    def claim(self, key: str) -> Any:
        """Return a `Claim`; with "new" the key is the caller's until `done`, `release`, or the lease is over."""

    def done(self, key: str) -> Any: ...
    def release(self, key: str) -> Any: ...


class MemoryStore:
    """Ids in this process's memory, for `ttl` seconds; `most` of them, and beyond that the oldest are forgotten. Other
    processes have their own, and a restart forgets all."""

    def __init__(self, ttl: float = 3600.0, *, lease: float = _LEASE_S, most: int = 100_000) -> None:
        if not ttl > 0 or not lease > 0 or most < 1:
            raise InvalidOption("ttl and lease are seconds, more than 0, and most is 1 or more.")
        # Constant after construction.
        self._ttl = ttl
        self._lease = lease
        self._most = most
        # Guarded by _lock. By key: (until when, True once it is done); the longest there is first.
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[float, bool]] = {}
        self._swept = 0.0

    def claim(self, key: str) -> Claim:
        now = time.monotonic()
        with self._lock:
            until, is_done = self._keys.get(key, (0.0, False))
            if until > now:
                return "done" if is_done else "busy"
            self._put(key, now + self._lease, False, now)
        return "new"

    def done(self, key: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._put(key, now + self._ttl, True, now)

    def release(self, key: str) -> None:
        with self._lock:
            self._keys.pop(key, None)

    def _put(self, key: str, until: float, is_done: bool, now: float) -> None:
        self._keys.pop(key, None)
        self._keys[key] = (until, is_done)
        if now >= self._swept + _SWEEP_S:
            self._swept = now
            self._keys = {one: found for one, found in self._keys.items() if found[0] > now}
        while len(self._keys) > self._most:
            del self._keys[next(iter(self._keys))]


class RedisStore:
    """Ids in a Redis that processes share. redis: a client of the package redis, `redis.asyncio` for handlers that are
    coroutine functions. ttl: seconds for which handled ids are kept; lease: those after which a message may be handled
    again whose handler's process died."""

    def __init__(self, redis: Any, ttl: float = 7 * 86400.0, *, lease: float = _LEASE_S, prefix: str = "once:") -> None:
        if not ttl >= 0.001 or not lease >= 0.001:
            raise InvalidOption("ttl and lease are seconds, 0.001 or more.")
        self._redis = redis
        self._ttl_ms = round(ttl * 1000)
        self._lease_ms = round(lease * 1000)
        self._prefix = prefix

    def claim(self, key: str) -> Any:
        name = self._prefix + key
        is_new = self._redis.set(name, b"busy", nx=True, px=self._lease_ms)
        if isawaitable(is_new):
            return self._claiming(name, is_new)
        return "new" if is_new else _claim(self._redis.get(name))

    async def _claiming(self, name: str, is_new: Any) -> Claim:
        return "new" if await is_new else _claim(await self._redis.get(name))

    def done(self, key: str) -> Any:
        return self._redis.set(self._prefix + key, b"done", px=self._ttl_ms)

    def release(self, key: str) -> Any:
        return self._redis.delete(self._prefix + key)


def _claim(found: Any) -> Claim:
    """found: None if it has gone since."""
    return "done" if found in (b"done", "done") else "busy"


def once(store: Store, name: str | None = None) -> Callable[[Handler], Handler]:
    """Have a handler skip messages that it has handled; one that another call works on comes again after 10 s, and
    later each time. A store that fails after the handler is logged: the end of the handler counts.

    Copies of a message have one `message_id`, by which they are known, or one property OUTBOX_ID. name: of the handler
    in the store, without it the function's own; each handler has its ids for itself. With a store whose calls are
    awaited the handler is a coroutine function. It gets one message a call: the consumer's `batch` is 1.
    """

    def decorate(handler: Handler) -> Handler:
        own = name or f"{handler.__module__}.{getattr(handler, '__qualname__', type(handler).__qualname__)}"

        if is_async(handler):

            async def handle_awaiting(message: ReceivedMessage) -> Any:
                key = _key(own, message)
                if _is_handled(await _given(store.claim(key)), message):
                    return None
                try:
                    result = await handler(message)
                except BaseException:
                    with _logged(key):
                        await _given(store.release(key))
                    raise
                with _logged(key):
                    await _given(store.done(key))
                return result

            return wraps(handler)(handle_awaiting)  # type: ignore[return-value]

        def handle(message: ReceivedMessage) -> Any:
            key = _key(own, message)
            if _is_handled(store.claim(key), message):
                return None
            try:
                result = handler(message)
            except BaseException:
                with _logged(key):
                    store.release(key)
                raise
            with _logged(key):
                store.done(key)
            return result

        return wraps(handler)(handle)  # type: ignore[return-value]

    return decorate


@contextmanager
def _logged(key: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("client: the note in the store of handled messages failed for %s", key)


async def _given(found: Any) -> Any:
    return await found if isawaitable(found) else found


def _key(name: str, message: ReceivedMessage) -> str:
    if not isinstance(message, ReceivedMessage):
        raise InvalidOption("A handler with @once gets one message a call: the consumer's batch is 1.")
    return f"{name}:{message.properties.get(_OUTBOX_ID) or message.message_id}"


def _is_handled(claim: Any, message: ReceivedMessage) -> bool:
    if claim == "busy":
        raise Retry(after=_BUSY_S * 2 ** min(message.attempt - 1, _MOST_DOUBLINGS))
    if claim not in ("new", "done"):
        raise InvalidOption("The store's calls are awaited: the handler has to be a coroutine function.")
    return bool(claim == "done")
