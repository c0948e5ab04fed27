"""Effects: the requests of a procedure to its shell. PURE.

    def ask(...) -> Steps[int]:
        answer = yield Call("10.0.0.5:10911", request, deadline)     # a RemotingCommand, or a CallFailed
        yield Sleep(clock.monotonic() + 1)                           # None
        outcomes = yield Together([ask(...), ask(...)])              # a list: what each returned, or its ClientError
        saved = yield Do(partial(store.save, offsets))                # what it returns
        return 7

A shell resumes procedures one at a time, under the client's lock, so all state of the core is guarded by it. Effects
are performed without the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from ..wire import RemotingCommand

Result = TypeVar("Result")


class Clock(Protocol):
    """Time, passed in. monotonic: seconds, for deadlines. wall_ms: since 1970, for times that others read."""

    def monotonic(self) -> float: ...
    def wall_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and wait for its answer until `deadline` (monotonic)."""

    address: str
    request: RemotingCommand
    deadline: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a request that is not answered. The outcome is None, or a CallFailed."""

    address: str
    request: RemotingCommand
    deadline: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait until a time (monotonic)."""

    until: float


@dataclass(frozen=True, slots=True)
class Together:
    """Do several procedures side by side and wait for all."""

    procedures: Sequence[Generator[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call has no answer.

    kind: "connect" - nothing was sent; "lost" - the connection broke after the request was sent; "timeout" - no answer
    by the deadline, sent or not as `sent` says; "broken" - the server does not speak the protocol; "closed" - this
    client was closed. why: words, without the address.
    """

    kind: Literal["connect", "lost", "timeout", "broken", "closed"]
    why: str
    sent: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Run a procedure in the background; its result is not awaited."""

    procedure: Generator[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Do:
    """Call a function that may wait for a disk, and raises nothing. The outcome is what it returns. waits_long: it may
    wait for a network, so not on the I/O thread. waits: False for one that does not wait, and begins procedures, which
    belong to an event loop."""

    act: Callable[[], Any]
    waits_long: bool = False
    waits: bool = True


Effect: TypeAlias = Call | Tell | Sleep | Together | Start | Do
Steps: TypeAlias = Generator[Effect, Any, Result]
