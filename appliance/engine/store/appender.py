"""Packs messages into records and queue entries, and stages them in the current tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zlib_ng.zlib_ng import crc32

from ..hotpath import AppenderState, TickState
from ..protocol.record import LAYOUTS, MAGIC_V1, SYS_HOSTS_IPV6
from .log.commit_log import CommitLog
from .queues.consume_queue import ENTRY, ConsumeQueue
from .settings import Scheduler

_NO_HOST_FLAGS = ~SYS_HOSTS_IPV6

#: (first queue offset, first physical offset, store time) -> (records, queue entries, physical offsets)
Packer = Callable[[int, int, int], tuple[bytes, bytes, list[int]]]


class Tick(TickState):
    """The puts that one tick has staged.

    acks: (waiter, result) for each put, of any types: handed back when the tick is published or has failed. early: the
    same for puts that do not wait for the sync (WAIT=false), handed back when the tick is written.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self.end = 0
        self.last_offset = -1
        self.touched: dict[ConsumeQueue, int] = {}
        self.acks: list[Any] = []
        self.early: list[Any] = []
        self.written_at = 0.0


class Appender(AppenderState):
    """The appending half of MessageStore: its base class, so that a send costs no call between the two."""

    def __init__(self, log: CommitLog, scheduler: Scheduler, store_host: bytes) -> None:
        # Constant after construction.
        self.log = log
        self.scheduler = scheduler
        self.store_host = store_host
        # Length of the born host -> (bytes before the body, function that packs them, the hosts' flags).
        layouts = {born: LAYOUTS[born, len(store_host)] for born in (8, 20)}
        self._layouts = {
            born: (layout.fixed.size, layout.fixed.pack_into, layout.host_flags) for born, layout in layouts.items()
        }
        # Owned by remoting-io.
        self.tick = Tick()
        self.store_ms = 0

    def put(
        self,
        queue: ConsumeQueue,
        topic_field: bytes,
        body: memoryview | bytes,
        properties: bytes,
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int = 0,
    ) -> int:
        """Stage one message for `queue` in this tick; return its physical offset.

        topic_field: length byte and topic. properties: the stored text. tag_code: of the queue entry; if it depends on
        the store time, it is computed with `next_store_ms`. born_host: 8 or 20 bytes; the sys flag's bits for them are
        set here. Numbers must fit their fields, otherwise struct.error is raised and nothing is staged. Raises
        StoreBroken when the log cannot take the record.
        """
        log = self.log
        store_ms = self.scheduler.wall_ms  # like next_store_ms, without a call for each message
        if store_ms > self.store_ms:
            self.store_ms = store_ms
        else:
            store_ms = self.store_ms
        fixed_bytes, pack_fixed, host_flags = self._layouts[len(born_host)]
        body_size = len(body)
        tail = topic_field + len(properties).to_bytes(2, "big") + properties
        size = fixed_bytes + body_size + len(tail)
        at = log.reserve(size)
        stage = log.stage
        physical = log.stage_base + at
        offset = queue.next_offset
        try:
            pack_fixed(
                stage,
                at,
                size,
                MAGIC_V1,
                crc32(body) & 0x7FFFFFFF,
                queue.queue_id,
                flag,
                offset,
                physical,
                sys_flag & _NO_HOST_FLAGS | host_flags,
                born_ms,
                born_host,
                store_ms,
                self.store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_size,
            )
        except BaseException:
            log.unstage(at)
            raise
        p = at + fixed_bytes
        q = p + body_size
        stage[p:q] = body
        stage[q : at + size] = tail
        queue.tail += ENTRY.pack(physical, size, tag_code)
        queue.next_offset = offset + 1
        tick = self.tick
        tick.touched[queue] = offset + 1
        tick.last_offset = physical
        return physical

    def next_store_ms(self, wall_ms: int = 0) -> int:
        """Return the store time of the next put in this tick: the wall clock's, but never before an earlier record's,
        since searches by time rely on that. wall_ms: a reading of the clock later than the tick's."""
        now = max(wall_ms, self.scheduler.wall_ms)
        if now > self.store_ms:
            self.store_ms = now
        return self.store_ms

    def put_batch(self, queue: ConsumeQueue, pack: Packer) -> list[int]:
        """Stage messages at consecutive offsets, in one file and one write; return their physical offsets.

        `pack` makes their records and entries; it is called again if they have to begin at another offset than assumed.
        All of them are staged or none. Raises whatever `pack` raises, and StoreBroken when the log cannot take them.
        """
        log = self.log
        store_ms = self.next_store_ms()
        physical = log.stage_base + log.staged
        offset = queue.next_offset
        records, entries, found = pack(offset, physical, store_ms)
        size = len(records)
        at = log.reserve(size)
        if log.stage_base + at != physical:
            try:
                records, entries, found = pack(offset, log.stage_base + at, store_ms)
            except BaseException:
                log.unstage(at)
                raise
        log.stage[at : at + size] = records
        queue.tail += entries
        queue.next_offset = self.tick.touched[queue] = offset + len(found)
        self.tick.last_offset = found[-1]
        return found
