"""Messages that wait for others, to be sent together: a producer's `linger`. PURE.

A parcel holds messages of one topic, and of one shard or none. It is sent as a batch when it is full, or when its first
message has waited for `linger` seconds, or at a flush. RocketMQ 5.x's `ProduceAccumulator` does the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

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

Done = Callable[[Any, BaseException | None], None]


class Parcel:
    """Messages of one destination, in the order in which they were given."""

    __slots__ = ("deadline", "envelopes", "is_open", "size", "told")

    def __init__(self, deadline: float) -> None:
        self.envelopes: list[Envelope] = []
        #: What takes the result or the error of each.
        self.told: list[Done] = []
        #: The first that one of them has.
        self.deadline = deadline
        self.size = 0
        self.is_open = True


class Parcels:
    """The open parcels of a producer. Guarded by the client's lock."""

    def __init__(
        self,
        sending: Sending,
        clock: Clock,
        linger: float,
        run: Callable[[Steps[Any], Done], None],
        new_key: Callable[[], str],
    ) -> None:
        """linger: seconds. run: begins a procedure, without the lock. new_key: makes a unique key, with the lock."""
        # Constant after construction.
        self._sending = sending
        self._clock = clock
        self._linger = linger
        self._run = run
        self._new_key = new_key
        # Guarded by the client's lock.
        self._open: dict[tuple[str, str | int | None], Parcel] = {}

    def put(self, envelope: Envelope, deadline: float, done: Done) -> list[Callable[[], None]]:
        """Put a message into its parcel. Called with the lock; what it returns is to be called without."""
        size = _MEMBER_BYTES + len(envelope.body) + len(envelope.properties)
        place = envelope.topic, envelope.shard
        begins: list[Callable[[], None]] = []
        parcel = self._open.get(place)
        if parcel is not None and parcel.size + size > FULL_BYTES:
            begins.append(self._close(parcel))
            parcel = None
        if parcel is None:
            parcel = self._open[place] = Parcel(deadline)
            begins.append(partial(self._run, self._wait(parcel), partial(_tell, parcel)))
        parcel.envelopes.append(envelope)
        parcel.told.append(done)
        parcel.size += size
        parcel.deadline = min(parcel.deadline, deadline)
        if parcel.size >= FULL_BYTES:
            begins.append(self._close(parcel))
        return begins

    def close_all(self) -> list[Callable[[], None]]:
        """Have all open parcels sent now. Called with the lock; what it returns is to be called without."""
        return [self._close(parcel) for parcel in list(self._open.values())]

    def _close(self, parcel: Parcel) -> Callable[[], None]:
        self._take_out(parcel)
        return partial(self._run, self._send(parcel), partial(_tell, parcel))

    def _take_out(self, parcel: Parcel) -> None:
        first = parcel.envelopes[0]
        parcel.is_open = False
        del self._open[first.topic, first.shard]

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
        envelopes = parcel.envelopes
        if len(envelopes) > 1:
            try:
                sent = yield from self._sending.send(self._together(envelopes), parcel.deadline)
                return list(places(sent, [one.message_id for one in envelopes]))
            except Refused as error:
                # One of them may be too large for this broker; the others are not to blame.
                if error.code != ResponseCode.MESSAGE_ILLEGAL or error.maybe_stored:
                    raise
        found: list[SendResult | BaseException] = []
        for envelope in envelopes:
            try:
                found.append((yield from self._sending.send(envelope, parcel.deadline)))
            except SendError as error:
                found.append(error)
        return found

    def _together(self, envelopes: list[Envelope]) -> Envelope:
        key = self._new_key()
        text = encode_properties({UNIQUE_KEY: key, WAIT_STORE: "true"})
        body = b"".join(encode_member(one.body, one.properties) for one in envelopes)
        first = envelopes[0]
        code = RequestCode.SEND_BATCH_MESSAGE
        return Envelope(first.group, first.topic, body, text, 0, key, first.shard, code=code)


def _tell(parcel: Parcel, found: list[SendResult | BaseException] | None, error: BaseException | None) -> None:
    if error is None and found is None:
        return  # another procedure has sent it
    outcomes = _errors(parcel, error) if error is not None else iter(found or ())
    for done, outcome in zip(parcel.told, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            done(None, outcome)
        else:
            done(outcome, None)


def _errors(parcel: Parcel, error: BaseException) -> Iterator[BaseException]:
    """Yield an error for each message, of its own: it is raised in many threads, and names the message."""
    batch = error.result if isinstance(error, StoredUnconfirmed) else None
    where = None if batch is None else places(batch, [one.message_id for one in parcel.envelopes])
    for number, envelope in enumerate(parcel.envelopes):
        if not isinstance(error, SendError):
            yield error
            continue
        one = copy.copy(error)
        one.message_id = envelope.message_id
        if isinstance(one, StoredUnconfirmed) and where is not None:
            one.result = where[number]
        yield one
