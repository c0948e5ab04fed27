"""Finds the messages that match an expression, among many that are read from the log in pieces.

Only a matching message is decoded into a record. For the others, the properties and the body are taken from the bytes,
which costs a few microseconds. A body is decompressed, and decoded by its topic's schema, when the expression needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...errors import CorruptFile, InvalidInput
from ...filter.projection import properties_at
from ...filter.query import Candidate, Query, Undecided, compile_query
from ...filter.query.judge import TEXT_BYTES
from ...filter.sql92.errors import SqlError
from ...protocol.record import (
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_COMPRESSED,
    Record,
    body_length_at,
    decode_record,
)
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..sentences import say
from .bodies import opened
from .draft import first_topic
from .queue_reader import QueueReader

if TYPE_CHECKING:
    from ...bodies.schemas import BodyReader

#: Values of a body that is decoded to be judged: as many take 3 ms, and a batch of them 0.2 s.
DECODED_VALUES = 1000
#: Entries that are read together.
BATCH = 64
#: Records with at most GAP_BYTES between them are read in one piece of up to RUN_BYTES.
GAP_BYTES = 16 << 10
RUN_BYTES = 256 << 10
#: Bytes that one page reads and decompresses at most, even within its time.
PAGE_BYTES = 64 << 20

#: (order, physical offset, size, queue, queue offset)
Step = tuple[int, int, int, ConsumeQueue, int]


def query_of(text: str | None) -> Query | None:
    """Compile an expression; None for a blank text. Raises InvalidInput with the place of an error."""
    if text is None or not text.strip():
        return None
    try:
        return compile_query(text)
    except SqlError as error:
        where = say("bad_filter", reason=error.message, line=error.line, column=error.column)
        raise InvalidInput("filter", where) from None


def batches(steps: Iterator[Step], size: int) -> Iterator[list[Step]]:
    batch: list[Step] = []
    for step in steps:
        batch.append(step)
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


class MessageLook:
    """Reads and judges the messages of one page. Belongs to one thread. work: bytes read from the log and decompressed
    from bodies so far."""

    def __init__(
        self,
        store: MessageStore,
        reader: QueueReader,
        query: Query,
        schema_of: Callable[[str], BodyReader | None] | None = None,
        patient: bool = False,
    ) -> None:
        """schema_of: returns what decodes the bodies of a topic, None without a schema. patient: a schema
        registry is waited for."""
        self._patient = patient
        self._store = store
        self._schema_of = schema_of
        self._reader = reader
        self._query = query
        self.work = 0

    def read(self, batch: Sequence[Step]) -> list[bytes]:
        """Return the bytes of each step's record; fewer bytes, or others, if the record has gone."""
        found = [b""] * len(batch)
        order = sorted(range(len(batch)), key=lambda number: batch[number][1])
        at = 0
        while at < len(order):
            first = batch[order[at]][1]
            end = first + batch[order[at]][2]
            behind = at + 1
            while behind < len(order):
                _, physical, size, _, _ = batch[order[behind]]
                if physical - end > GAP_BYTES or physical + size - first > RUN_BYTES:
                    break
                end = max(end, physical + size)
                behind += 1
            data = self._reader.bytes_at(first, end - first)
            for number in order[at:behind]:
                _, physical, size, _, _ = batch[number]
                found[number] = data[physical - first : physical - first + size]
            self.work += len(data)
            at = behind
        return found

    def judge(self, data: bytes, step: Step) -> Record | bool | None:
        """Return the record if it matches, False if it does not, True if that cannot be decided, and None if the record
        is not there."""
        _, physical, size, queue, offset = step
        begin = properties_at(data, 0, size)
        if (
            begin is None
            or int.from_bytes(data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") != physical
            or int.from_bytes(data[12:16], "big") != queue.queue_id
            or int.from_bytes(data[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big") != offset
        ):
            return None

        def open_body() -> tuple[bytes, bool]:
            place = body_length_at(data)
            body = data[place + 4 : place + 4 + int.from_bytes(data[place : place + 4], "big")]
            flags = int.from_bytes(data[36:40], "big")
            if not flags & SYS_COMPRESSED and body[:1] not in (b"\x1f", b"\x78"):
                return body, True
            found = opened(body, flags, TEXT_BYTES + 1)
            self.work += len(found[0])
            return found

        properties = data[begin:].decode("utf-8", "replace")
        try:
            if not self._query.matches(Candidate(properties, open_body, self._decoding(queue.topic, properties))):
                return False
            record = decode_record(data, check_crc=False)
        except Undecided:
            return True
        except CorruptFile:
            return None
        return record if record.topic == queue.topic else None

    def _decoding(self, topic: str, properties: str) -> Callable[[bytes], bytes | None] | None:
        """Return what decodes a body for the judge; None without a schema."""
        if self._schema_of is None or not self._query.reads_bodies:
            return None
        schema = self._schema_of(first_topic(topic, properties))
        if schema is None:
            return None
        from ...bodies import work

        def decode(data: bytes) -> bytes | None:
            try:
                if self._patient:
                    schema.prepare(data)
                return schema.decode(data, DECODED_VALUES)
            except work.Undecided:
                raise Undecided from None
            except work.Unfit:
                return None

        return decode
