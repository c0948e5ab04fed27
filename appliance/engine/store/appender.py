"""Packs messages into records and queue entries, and stages them in the current tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zlib_ng.zlib_ng import crc32

from ..protocol.record import (
    FIXED_BYTES,
    HEAD,
    HEAD_IPV4,
    MAGIC_V1,
    SYS_BORN_IPV6,
    SYS_STORE_IPV6,
    TAIL,
)
from .log.commit_log import CommitLog
from .queues.consume_queue import ENTRY, ConsumeQueue
from .settings import Scheduler

#: (first queue offset, first physical offset, store time) -> (records, queue entries, physical offsets)
Packer = Callable[[int, int, int], tuple[bytes, bytes, list[int]]]


class Tick:
    """What one tick staged.

    acks: whatever the caller wants back when the tick is published or has failed. early: the same for senders that do
    not wait for the sync (WAIT=false): they come back when the tick is written.
    """

    __slots__ = ("acks", "early", "end", "last_offset", "touched", "written_at")

    def __init__(self) -> None:
        self.end = 0
        self.last_offset = -1
        self.touched: dict[ConsumeQueue, int] = {}
        self.acks: list[Any] = []
        self.early: list[Any] = []
        self.written_at = 0.0


class Appender:
    """The appending half of MessageStore: its base class, so that a send pays for no call between them."""

    def __init__(self, log: CommitLog, scheduler: Scheduler, store_host: bytes) -> None:
        # Constant after construction.
        self.log = log
        self.scheduler = scheduler
        self.store_host = store_host
        self._store_flag = SYS_STORE_IPV6 if len(store_host) == 20 else 0
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
    ) -> int:
        """Stage one message for `queue` in this tick; returns its physical offset.

        topic_field: length byte and topic. properties: the stored text. born_host: 8 or 20 bytes. Numbers must fit
        their fields (struct.error otherwise, and nothing is staged). Raises StoreBroken when the log cannot take it.
        """
        log = self.log
        now = self.scheduler.wall_ms
        if now > self.store_ms:
            self.store_ms = now  # never back: searches by time rely on it
        body_size = len(body)
        tail = topic_field + len(properties).to_bytes(2, "big") + properties
        size = FIXED_BYTES - 3 + body_size + len(tail)
        store_host = self.store_host
        if len(born_host) != 8 or len(store_host) != 8:
            return self._put_ipv6(queue, tail, body, tag_code, flag, sys_flag, born_ms, born_host, reconsume_times)
        at = log.reserve(size)
        stage = log.stage
        physical = log.stage_base + at
        offset = queue.next_offset
        try:
            HEAD_IPV4.pack_into(
                stage,
                at,
                size,
                MAGIC_V1,
                crc32(body) & 0x7FFFFFFF,
                queue.queue_id,
                flag,
                offset,
                physical,
                sys_flag,
                born_ms,
                born_host,
                self.store_ms,
                store_host,
                reconsume_times,
                0,
                body_size,
            )
        except BaseException:
            log.staged = at
            raise
        p = at + FIXED_BYTES - 3
        q = p + body_size
        stage[p:q] = body
        stage[q : at + size] = tail
        queue.tail += ENTRY.pack(physical, size, tag_code)
        queue.next_offset = offset + 1
        tick = self.tick
        tick.touched[queue] = offset + 1
        tick.last_offset = physical
        return physical

    def _put_ipv6(
        self,
        queue: ConsumeQueue,
        tail: bytes,
        body: memoryview | bytes,
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> int:
        """`put` when a host takes 20 bytes: the same record, joined from parts."""
        sys_flag |= self._store_flag | (SYS_BORN_IPV6 if len(born_host) == 20 else 0)
        rest = b"".join(
            (
                born_host,
                self.store_ms.to_bytes(8, "big"),
                self.store_host,
                TAIL.pack(reconsume_times, 0, len(body)),
                body,
                tail,
            )
        )
        size = HEAD.size + len(rest)
        crc = crc32(body) & 0x7FFFFFFF
        offset = queue.next_offset
        HEAD.pack(
            size, MAGIC_V1, crc, queue.queue_id, flag, offset, 0, sys_flag, born_ms
        )  # struct.error before reserve
        log = self.log
        at = log.reserve(size)
        physical = log.stage_base + at
        head = HEAD.pack(size, MAGIC_V1, crc, queue.queue_id, flag, offset, physical, sys_flag, born_ms)
        log.stage[at : at + size] = head + rest
        queue.append(physical, size, tag_code)
        self.tick.touched[queue] = offset + 1
        self.tick.last_offset = physical
        return physical

    def put_batch(self, queue: ConsumeQueue, pack: Packer) -> list[int]:
        """Stage messages at consecutive offsets, all in one file and one write; returns their physical offsets.

        `pack` makes their records and entries; it is asked again when they have to begin elsewhere than was thought.
        All of them are staged, or none: what `pack` raises comes out. Raises StoreBroken when the log cannot take them.
        """
        log = self.log
        now = self.scheduler.wall_ms
        if now > self.store_ms:
            self.store_ms = now
        physical = log.stage_base + log.staged
        offset = queue.next_offset
        records, entries, found = pack(offset, physical, self.store_ms)
        size = len(records)
        at = log.reserve(size)
        if log.stage_base + at != physical:
            try:
                records, entries, found = pack(offset, log.stage_base + at, self.store_ms)
            except BaseException:
                log.staged = at
                raise
        log.stage[at : at + size] = records
        queue.tail += entries
        queue.next_offset = self.tick.touched[queue] = offset + len(found)
        self.tick.last_offset = found[-1]
        return found
