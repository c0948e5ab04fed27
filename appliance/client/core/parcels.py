"""Messages that wait for others, to be sent together: a producer's `linger`. PURE.

A parcel holds messages of one topic, and of one shard or none. It is sent as a batch when it is full, or when its first
message has waited for `linger` seconds, though for at most half of its time, or at a flush. RocketMQ 5.x's
`ProduceAccumulator` does the same.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from ..errors import ClientError, Refused, SendError, StoredUnconfirmed
from ..message import SendResult
from ..wire import UNIQUE_KEY, WAIT_STORE, RequestCode, ResponseCode, encode_properties
from .batches import encode_member, places
from .send_plan import Envelope, Sending
from .steps import Do, Sleep, Steps

#: Bytes of a full parcel: 5.3.3's `ProduceAccumulator`.
FULL_BYTES = 32 * 1024
#: Bytes that a message adds to a parcel beside its body and its properties.
_MEMBER_BYTES = 22

Done: TypeAlias = Callable[[Any, BaseException | None], None]


class Member(NamedTuple):
    """A message of a parcel. text: its properties. done: takes its result or its error. counted: True if `landed`
    counts it, False if `done` does all."""

    key: str
    body: bytes
    text: str
    done: Done
    counted: bool


class Parcel:
    """Messages of one destination, in the order in which they were given."""

    __slots__ = ("deadline", "has_left", "members", "place", "size", "waits")

    def __init__(
        self, place: tuple[str, str | int | None], first: Member, size: int, deadline: float, waits: float
    ) -> None:
        """place: topic and shard. size: of the first message. deadline: of that one; those of the others are as far
        from it as `waits` at the most. waits: seconds for which it is open."""
        self.place = place
        self.members = [first]
        self.size = size
        self.deadline = deadline
        self.waits = waits
        self.has_left = False


class Parcels:
    """The open parcels of a producer. Guarded by the client's lock.

    In the thread that puts a message a signal's handler may raise, behind any call. So a message is kept in one step,
    and parcels begin and leave where no handler raises.
    """

    def __init__(
        self,
        group: str,
        sending: Sending,
        linger: float,
        run: Callable[[Steps[Any], Done], None],
        post: Callable[[Callable[[], None]], bool],
        new_key: Callable[[], str],
        landed: Callable[[str, list[Member], int], None],
        lock: AbstractContextManager[Any],
    ) -> None:
        """linger: seconds. run: begins a procedure, without the lock. post: has a function called where no signal's
        handler raises; False once that is closed. new_key: makes a unique key, with the lock.
        landed: takes a topic, the members that it counts, and how many of them failed, before their `done`. lock: the
        client's."""
        # Constant after construction.
        self._group = group
        self._sending = sending
        self._clock = sending.clock
        self._linger = linger
        self._run = run
        self._post = post
        self._new_key = new_key
        self._landed = landed
        self._lock = lock
        # Guarded by the client's lock.
        self._open: dict[tuple[str, str | int | None], Parcel] = {}
        #: What is to begin, in the order in which it was closed.
        self._due: deque[Callable[[], None]] = deque()
        self._is_beginning = False

    def put(self, topic: str, shard: str | int | None, member: Member, deadline: float, kept: list[None]) -> None:
        """Put a message into its parcel. kept: gets an entry in the moment in which the message is there. Called with
        the lock; `begin` comes after it, also if a signal's handler raises and the message is kept."""
        size = _MEMBER_BYTES + len(member.body) + len(member.text)
        place = topic, shard
        parcel = self._open.get(place)
        if parcel is not None:
            if parcel.size + size < FULL_BYTES and abs(deadline - parcel.deadline) <= parcel.waits:
                parcel.size += size
                kept += map(parcel.members.append, (member,))
                return
            self._close(parcel)
        waits = min(self._linger, max(0.0, (deadline - self._clock.monotonic()) / 2))
        parcel = Parcel(place, member, size, deadline, waits)
        begin = partial(self._run, self._wait(parcel), partial(self._waited, parcel))
        kept += map(self._due.append, (begin,))
        self._open[place] = parcel

    def follow(self, topic: str, shard: str | int | None, procedure: Steps[Any], done: Done, kept: list[None]) -> None:
        """Have an open parcel sent now, and then a procedure begun: that of a message which goes alone. kept: as of
        `put`. Called with the lock; `begin` comes after it."""
        parcel = self._open.get((topic, shard))
        if parcel is not None:
            self._close(parcel)
        kept += map(self._due.append, (partial(self._run, procedure, done),))

    def close_all(self) -> None:
        """Have all open parcels sent now. Called with the lock; `begin` comes after it."""
        for parcel in list(self._open.values()):
            self._close(parcel)

    def _close(self, parcel: Parcel) -> None:
        """Have a parcel sent in its turn, once; no further message joins it."""
        self._due.append(partial(self._leave, parcel))
        self._take_out(parcel)

    def begin(self) -> None:
        """Have begun what is due. Called without the lock."""
        if self._due and not self._post(self._begin_due):
            self._begin_due()

    def _begin_due(self) -> None:
        """Begin what is due. One thread does at a time, or the later parcel of a shard could leave first."""
        with self._lock:
            if self._is_beginning:
                return
            self._is_beginning = True
        try:
            while True:
                with self._lock:
                    if not self._due:
                        self._is_beginning = False
                        return
                    begin = self._due.popleft()
                begin()
        except BaseException:
            self._is_beginning = False
            raise

    def _leave(self, parcel: Parcel) -> None:
        with self._lock:
            if parcel.has_left:
                return
            parcel.has_left = True
            self._take_out(parcel)
        self._run(self._send(parcel), partial(self._tell, parcel))

    def _take_out(self, parcel: Parcel) -> None:
        if self._open.get(parcel.place) is parcel:
            del self._open[parcel.place]

    def _wait(self, parcel: Parcel) -> Steps[None]:
        """Have a parcel sent after its time, unless it has gone before; in its turn, or a later one of its shard, which
        is closed meanwhile, could leave first."""
        yield Sleep(self._clock.monotonic() + parcel.waits)
        if not parcel.has_left:
            self._close(parcel)
            yield Do(self._begin_due, waits=False)

    def _waited(self, parcel: Parcel, _result: None, error: BaseException | None) -> None:
        """Tell what ended a parcel's wait too early, unless another procedure sends it."""
        if error is None:
            return
        with self._lock:
            if parcel.has_left:
                return
            parcel.has_left = True
            self._take_out(parcel)
        self._tell(parcel, None, error)

    def _send(self, parcel: Parcel) -> Steps[list[SendResult | BaseException]]:
        """Send a parcel; return what became of each message."""
        members = parcel.members
        topic, shard = parcel.place
        if len(members) > 1:
            key = self._new_key()
            text = encode_properties({UNIQUE_KEY: key, WAIT_STORE: "true"})
            body = b"".join([encode_member(one.body, one.text) for one in members])
            code = RequestCode.SEND_BATCH_MESSAGE
            together = Envelope(self._group, topic, body, text, 0, key, shard, code=code)
            try:
                sent = yield from self._sending.send(together, parcel.deadline)
                return list(places(sent, [one.key for one in members]))
            except Refused as error:
                # One of them may be too large for this broker; the others are not to blame.
                if error.code != ResponseCode.MESSAGE_ILLEGAL or error.maybe_stored:
                    raise
        found: list[SendResult | BaseException] = []
        for one in members:
            envelope = Envelope(self._group, topic, one.body, one.text, 0, one.key, shard)
            try:
                found.append((yield from self._sending.send(envelope, parcel.deadline)))
            except ClientError as error:
                found.append(error)
        return found

    def _tell(
        self, parcel: Parcel, found: list[SendResult | BaseException] | None, error: BaseException | None
    ) -> None:
        if error is not None:
            found = _errors(parcel, error)
        assert found is not None, "a parcel that was sent has a result for each message"
        # The procedure that waits for its time may hold the parcel for long.
        members, parcel.members = parcel.members, []
        outcomes = list(zip(members, found, strict=True))
        failed = sum(isinstance(outcome, BaseException) and member.counted for member, outcome in outcomes)
        self._landed(parcel.place[0], [one for one in members if one.counted], failed)
        for member, outcome in outcomes:
            if isinstance(outcome, BaseException):
                member.done(None, outcome)
            else:
                member.done(outcome, None)


def _errors(parcel: Parcel, error: BaseException) -> list[SendResult | BaseException]:
    """Return an error for each message, of its own: it is raised in many threads, and names the message."""
    if not isinstance(error, SendError):
        return [error] * len(parcel.members)
    found: list[SendResult | BaseException] = []
    batch = error.result if isinstance(error, StoredUnconfirmed) else None
    keys = [one.key for one in parcel.members]
    where = None if batch is None else places(batch, keys)
    for number, key in enumerate(keys):
        one = copy.copy(error)
        one.message_id = key
        if isinstance(one, StoredUnconfirmed) and where is not None:
            one.result = where[number]
        found.append(one)
    return found
