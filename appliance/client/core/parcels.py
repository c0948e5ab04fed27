"""Messages that wait for others, to be sent together: a producer's `linger`. PURE.

A parcel holds messages of one topic, and of one shard or none. It is sent as a batch when it is full, or when its first
message has waited for `linger` seconds, or at a flush. RocketMQ 5.x's `ProduceAccumulator` does the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from ..errors import Refused, SendError, StoredUnconfirmed
from ..message import SendResult
from ..wire import UNIQUE_KEY, WAIT_STORE, RequestCode, ResponseCode, encode_properties
from .batches import encode_member, places
from .send_plan import Envelope, Sending
from .steps import Clock, Sleep, Steps

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

    __slots__ = ("deadline", "is_open", "members", "place", "size")

    def __init__(self, place: tuple[str, str | int | None], deadline: float) -> None:
        """place: topic and shard."""
        self.place = place
        self.members: list[Member] = []
        #: The first that one of them has.
        self.deadline = deadline
        self.size = 0
        self.is_open = True


class Parcels:
    """The open parcels of a producer. Guarded by the client's lock."""

    def __init__(
        self,
        group: str,
        sending: Sending,
        clock: Clock,
        linger: float,
        run: Callable[[Steps[Any], Done], None],
        new_key: Callable[[], str],
        landed: Callable[[str, list[Member], int], None],
    ) -> None:
        """linger: seconds. run: begins a procedure, without the lock. new_key: makes a unique key, with the lock.
        landed: takes a topic, the members that it counts, and how many of them failed, before their `done`."""
        # Constant after construction.
        self._group = group
        self._sending = sending
        self._clock = clock
        self._linger = linger
        self._run = run
        self._new_key = new_key
        self._landed = landed
        # Guarded by the client's lock.
        self._open: dict[tuple[str, str | int | None], Parcel] = {}

    def put(self, topic: str, shard: str | int | None, member: Member, deadline: float) -> list[Callable[[], None]]:
        """Put a message into its parcel. Called with the lock; what it returns is to be called without."""
        size = _MEMBER_BYTES + len(member.body) + len(member.text)
        place = topic, shard
        parcel = self._open.get(place)
        if parcel is not None and parcel.size + size < FULL_BYTES:
            parcel.members.append(member)
            parcel.size += size
            if deadline < parcel.deadline:
                parcel.deadline = deadline
            return _NOTHING
        begins = [self._close(parcel)] if parcel is not None else []
        parcel = self._open[place] = Parcel(place, deadline)
        parcel.members.append(member)
        parcel.size = size
        begins.append(partial(self._run, self._wait(parcel), partial(self._tell, parcel)))
        return begins

    def close_all(self) -> list[Callable[[], None]]:
        """Have all open parcels sent now. Called with the lock; what it returns is to be called without."""
        return [self._close(parcel) for parcel in list(self._open.values())]

    def _close(self, parcel: Parcel) -> Callable[[], None]:
        self._take_out(parcel)
        return partial(self._run, self._send(parcel), partial(self._tell, parcel))

    def _take_out(self, parcel: Parcel) -> None:
        parcel.is_open = False
        del self._open[parcel.place]

    def _wait(self, parcel: Parcel) -> Steps[list[SendResult | BaseException] | None]:
        """Send a parcel after its time; None if it has gone before."""
        try:
            yield Sleep(self._clock.monotonic() + self._linger)
        except BaseException:
            if not parcel.is_open:
                return None
            self._take_out(parcel)
            raise
        if not parcel.is_open:
            return None
        self._take_out(parcel)
        return (yield from self._send(parcel))

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
            except SendError as error:
                found.append(error)
        return found

    def _tell(
        self, parcel: Parcel, found: list[SendResult | BaseException] | None, error: BaseException | None
    ) -> None:
        if error is not None:
            found = _errors(parcel, error)
        elif found is None:
            return  # another procedure has sent it
        failed = sum(
            isinstance(one, BaseException) and member.counted for one, member in zip(found, parcel.members, strict=True)
        )
        self._landed(parcel.place[0], [one for one in parcel.members if one.counted], failed)
        for member, outcome in zip(parcel.members, found, strict=True):
            if isinstance(outcome, BaseException):
                member.done(None, outcome)
            else:
                member.done(outcome, None)


#: What there is to call in the usual case.
_NOTHING: list[Callable[[], None]] = []


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
