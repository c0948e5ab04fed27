"""A broker without threads and ports that is fed what connections read, and all that came of it: the same input may be
given to both twins of the hot path, and must come to the same.

The loop, the server, the connections and the store are the engine's own, and so are the files; the clocks stand still,
unique keys and addresses are fixed. Each step of an input is one tick of the loop, or something that happens between
two ticks.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from appliance.engine.broker import clients
from appliance.engine.broker.broker import Broker
from appliance.engine.broker.registration import Network
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.errors import FrameError
from appliance.engine.hotpath import WHY_PURE
from appliance.engine.protocol.command import MAX_FRAME_BYTES
from appliance.engine.protocol.message_id import UniqueKeys, key_prefix
from appliance.engine.remoting import server
from appliance.engine.remoting.dispatcher import Dispatcher, WorkerPool
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.store import message_reader
from appliance.engine.store.log import commit_log
from appliance.engine.store.queues.flush_queues import TopicDeletion
from appliance.engine.window.options import Options
from tests.support.clock import FakeClock
from tests.support.engine import ROOMY

#: Directory in memory, where the stores of tests are quick, if there is one.
_MEMORY = Path("/dev/shm")
BROKER_ADDRESS = "127.0.0.1:10911"
#: One entry a connection: IPv4 peers, then one of IPv6.
PEERS = (("10.0.0.1", 5000), ("10.0.0.2", 5001), ("192.168.7.255", 65535), ("2001:db8::17", 40000))
_READ = 1 << 20
#: Stands between the answers of a peer's connections.
_ANOTHER = b"(closed)"

Step = tuple[Any, ...]


class Exceptions(logging.Handler):
    """Collects the exceptions that were logged and drops all other log lines, as there are thousands of lives."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def pair() -> tuple[socket.socket, socket.socket]:
    """(the server's end, the peer's)."""
    near, far = socket.socketpair()
    far.setblocking(False)
    return near, far


@dataclass
class Setting:
    """Settings of the broker. stage_bytes: bytes that a tick writes at once; a small stage fills in the middle of a
    read. outbox_bytes, outboxes_bytes: size from which one peer's outbox is full, and all of them together."""

    synchronous: bool = False
    segment_bytes: int = 256 * 1024
    stage_bytes: int = 1024 * 1024
    max_message_size: int = 20_000
    trace_on: bool = True
    auto_create: bool = True
    region: str = "DefaultRegion"
    outbox_bytes: int = 4 << 20
    outboxes_bytes: int = 256 << 20


@dataclass
class Outcome:
    """All that can be seen from outside, and what readers are given next. queues: (topic, id, min, max and next offset,
    tail). counters: whatever is counted. exceptions: that were logged."""

    answers: list[bytes] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    log: bytes = b""
    queues: list[tuple[str, int, int, int, int, bytes]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    exceptions: list[str] = field(default_factory=list)
    #: Number of sends and of pulls that the compiled part took; not compared.
    taken: int = field(default=0, compare=False)
    pulled: int = field(default=0, compare=False)

    def differences(self, other: Outcome) -> list[str]:
        """Return the places where two outcomes differ, in words."""
        found = []
        for one in fields(self):
            mine, others = getattr(self, one.name), getattr(other, one.name)
            if one.compare and mine != others:
                found.append(f"{one.name}: {_first_difference(mine, others)}")
        return found


def _first_difference(mine: Any, others: Any) -> str:
    if isinstance(mine, bytes) and isinstance(others, bytes):
        at = next(
            (i for i, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b), min(len(mine), len(others))
        )
        begin = max(0, at - 80)
        return (
            f"at byte {at} of {len(mine)} and {len(others)}: {mine[begin : at + 80]!r} and {others[begin : at + 80]!r}"
        )
    if isinstance(mine, dict):
        return ", ".join(
            f"{name}: {mine[name]!r} and {others.get(name)!r}" for name in mine if mine[name] != others.get(name)
        )
    if isinstance(mine, list) and isinstance(others, list):
        if len(mine) != len(others):
            return f"{len(mine)} and {len(others)} of them"
        for index, (a, b) in enumerate(zip(mine, others, strict=True)):
            if a != b:
                return f"number {index}: {_first_difference(a, b)}"
    return f"{mine!r} and {others!r}"


class Twin:
    """One broker. `compiled`: whether the compiled part may take frames; without it everything is Python's."""

    def __init__(self, directory: Path, setting: Setting, compiled: bool) -> None:
        self.setting = setting
        self.clock = FakeClock()
        self.loop = EventLoop(self.clock)
        self.server = RemotingServer(self.loop)
        self._pools: dict[str, WorkerPool] = {}
        options = Options(self._config(directory))
        network = Network(BROKER_ADDRESS, "127.0.0.1:10912", ("127.0.0.1:9876",))
        self.broker = Broker(options, self.loop, self.server, self._pools, network)
        self.broker.join_loop()
        self.broker.sending.properties._unique_keys = UniqueKeys(key_prefix(bytes(4), 1, 1), 0)
        self.dispatcher = Dispatcher(self._pools, (), self.clock)
        self.broker.register(self.dispatcher)
        self.loop.at_tick_end(self.server.flush_dirty)
        self.loop.at_tick_end(self._end_of_the_tick)
        self.store = self.broker.store
        self.store._monotonic = self.clock.monotonic  # a broker's store has the machine's clock
        log = self.store.log
        log.stage, log.stage_room = bytearray(setting.stage_bytes), setting.stage_bytes
        self.exceptions: list[str] = []
        if compiled:
            assert self.dispatcher.runner is not None, f"the compiled part is not used: {WHY_PURE}"
        else:
            self.dispatcher.runner = None  # and so only the connections read its sockets
        self._peers: dict[int, socket.socket] = {}
        self._connections: dict[int, Any] = {}
        self._slow: set[int] = set()
        self._answers: dict[int, bytearray] = {}
        self._owed: dict[int, memoryview] = {}
        self._deletions: dict[str, Any] = {}

    def _config(self, directory: Path) -> EngineConfig:
        setting = self.setting
        store = ROOMY | {
            "flush_disk_type": "SYNC_FLUSH" if setting.synchronous else "ASYNC_FLUSH",
            "mapped_file_size_commit_log": setting.segment_bytes,
            "max_message_size": setting.max_message_size,
            "message_index_enable": False,
        }
        return EngineConfig(
            data_dir=directory,
            broker=BrokerConfig(
                broker_name="broker-a",
                trace_on=setting.trace_on,
                auto_create_topic_enable=setting.auto_create,
                region_id=setting.region,
            ),
            store=StoreConfig(**store),
        )

    # --- steps

    def take(self, steps: Iterable[Step]) -> Outcome:
        """Have everything happen, then what was held up until then; what came of it."""
        for name, *arguments in steps:
            getattr(self, f"do_{name}")(*arguments)
        self.do_hold(False)
        self._slow.clear()
        self._settle()
        if self.setting.synchronous:
            self.do_sync()
            self._settle()
        return self._outcome()

    def _end_of_the_tick(self) -> None:
        self.loop.stopped = True

    def do_tick(self) -> None:
        """One round of the loop's own code, which does not wait."""
        self.loop._calls.append(lambda: None)
        self.loop.stopped = False
        self.loop.run()
        for number in self._peers:
            if number not in self._slow:
                self._receive(number)

    def do_write(self, number: int, data: bytes) -> None:
        """Hand bytes to a connection's socket; the next tick reads them, together with what others wrote.

        A peer whose connection was closed opens another one.
        """
        if number not in self._peers:
            self._connect(number)
        elif self._connections[number].closed:
            self._receive(number)
            self._peers[number].close()
            self._owed.pop(number, None)
            self._answers[number] += _ANOTHER
            self._connect(number)
        view = memoryview(bytes(self._owed.pop(number, b"")) + data)
        while view:
            try:
                view = view[self._peers[number].send(view) :]
            except BlockingIOError:
                before = self._progress()
                self.do_tick()
                if self._progress() == before:
                    self._owed[number] = view  # it is not read from now
                    return
            except OSError:
                return  # the server closed it

    def do_read(self, number: int, data: bytes) -> None:
        """Bytes come, and are read."""
        self.do_write(number, data)
        self.do_tick()

    def do_exact(self, number: int, data: bytes) -> None:
        """Whole frames come in memory of just their size, so that it is seen who looks behind them."""
        if number not in self._peers or self._connections[number].closed:
            self.do_write(number, b"")
        conn = self._connections[number]
        if conn.closed or conn.halted or conn._partial is not None or not data:
            return
        view = memoryview((ctypes.c_char * len(data)).from_buffer_copy(data)).cast("B")
        try:
            conn._consume(view, len(view))
        except FrameError as error:
            conn._refuse(error)
        self.do_tick()

    def do_slow(self, number: int, slow: bool) -> None:
        """A peer stops taking its answers, or goes on."""
        if slow:
            self._slow.add(number)
        else:
            self._slow.discard(number)

    def do_take(self, number: int, size: int) -> None:
        """A slow peer takes a little."""
        if number in self._peers:
            with suppress(OSError):
                self._answers[number] += self._peers[number].recv(size)

    def do_hang_up(self, number: int) -> None:
        """A peer closes, whatever it has not taken or the server not read."""
        if number in self._peers:
            self._receive(number)
            self._peers[number].close()

    def do_shut(self, number: int) -> None:
        """A peer has nothing more to say, and still listens."""
        if number in self._peers:
            with suppress(OSError):
                self._peers[number].shutdown(socket.SHUT_WR)

    def do_close(self, number: int) -> None:
        """The server closes it between two ticks."""
        if number in self._connections:
            self._on_loop(self._connections[number].close)

    def do_advance(self, ms: int) -> None:
        self.clock.advance(ms)

    def do_jump(self, ms: int) -> None:
        """Set the wall clock, as an administrator does."""
        self.clock.jump(ms)

    def do_sync(self) -> None:
        """The flush thread's turn."""
        log = self.store.log
        if log.broken is None and log.written > log.durable:
            with suppress(Exception):
                self.broker.tables.journal.work()
                log.sync()
        self._on_loop(self.store._publish_durable)

    def do_hold(self, held: bool) -> None:
        """Back-pressure."""
        self._on_loop(lambda: self.server.hold_producers(held))

    def do_refuse(self, reason: str | None) -> None:
        """The disk has no room, or has some again."""
        self.store.log.refuse(reason)

    def do_break_log(self) -> None:
        """Every write of the current file fails from now on."""
        log = self.store.log
        segment = log.segment_at(log.stage_base)
        if segment is not None:
            read_only = os.open(segment.path, os.O_RDONLY)
            os.dup2(read_only, segment.fd)
            os.close(read_only)

    def do_topic(self, name: str, perm: int = 6, read: int = 4, write: int = 4, order: bool = False) -> None:
        """An administrator makes a topic or changes it."""
        config = TopicConfig(
            topic_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write, order=order
        )  # fmt: skip
        self.broker.topics.update(config)

    def do_group(self, name: str) -> None:
        """A consumer group is known, and so may have a retry topic."""
        self.broker.groups.find(name)

    def do_forbid(self, name: str) -> None:
        """Delete a topic up to where it can no longer be made again, while its queues are still there."""
        if name not in self._deletions:
            self._deletions[name] = self.broker.topics.deleting(name)
            self._deletions[name].__enter__()

    def do_forget(self, name: str) -> None:
        """Its queues go; then it may be made again."""
        deletion = TopicDeletion(name)
        self._on_loop(lambda: self.store.forget_topic(deletion))
        if name in self._deletions:
            self._deletions.pop(name).__exit__(None, None, None)

    def do_options(self, trace_on: bool, max_message_size: int) -> None:
        """Options of sends were changed."""
        options = BrokerConfig(trace_on=trace_on)
        self._on_loop(lambda: self.broker.sending.take_options(options, max_message_size))

    # --- what comes of them

    def _on_loop(self, call: Any) -> None:
        self.loop.call_soon(call)
        self.do_tick()

    def _connect(self, number: int) -> None:
        near, far = pair()
        before = set(self.server.connections)
        self.server.adopt(near, PEERS[number % len(PEERS)], self.dispatcher)
        (fd,) = set(self.server.connections) - before
        self._connections[number] = self.server.connections.get(fd)
        self._peers[number] = far
        self._answers.setdefault(number, bytearray())

    def _receive(self, number: int) -> None:
        found = self._answers[number]
        with suppress(OSError):
            while data := self._peers[number].recv(_READ):
                found += data

    def _progress(self) -> tuple[int, ...]:
        """Changes as long as something happens."""
        log = self.store.log
        answered = sum(map(len, self._answers.values()))
        read = sum(conn._filled + conn.partial_bytes for conn in self.server.connections.values())
        return log.written + log.staged, answered, read, len(self.server.connections)

    def _settle(self) -> None:
        """Tick until nothing happens for three ticks."""
        quiet = 0
        while quiet < 3:
            before = self._progress()
            for number in list(self._owed):
                self.do_write(number, b"")
            self.do_tick()
            busy = self._progress() != before or self.loop._calls or self.server.dirty
            quiet = 0 if busy else quiet + 1

    def _outcome(self) -> Outcome:
        store = self.store
        log, publication = store.log, store.publication
        numbers = sorted(self._peers)
        connections = [self._connections[number] for number in numbers]
        return Outcome(
            [bytes(self._answers[number]) for number in numbers],
            [conn.closed for conn in connections],
            self._log_bytes(),
            sorted(
                (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, queue.next_offset, bytes(queue.tail))
                for queue in store.queues.all()
            ),
            sorted(str(config) for config in self.broker.topics.all()),
            {
                "written": log.written,
                "staged": log.staged,
                "broken": log.broken,
                "not taken": log.not_taken,
                "published": publication.published,
                "last record": publication.last_record_offset,
                "messages": publication.messages,
                "put bytes": store.put_bytes,
                "failed puts": store.failed_puts,
                "waiting ticks": len(store.pending),
                "touched": len(store.tick.touched),
                "store time": store.store_ms,
                "tails": store._tail_bytes,
                "dirty queues": [(queue.topic, queue.queue_id) for queue in store.queues.dirty],
                "partial frames": self.server._partial_total,
                "outboxes": self.server._outbox_total,
                "held back": len(self.server.held_back),
                "journal": self.broker.tables.journal.written,
                "chance": random.getstate(),
            },
            list(self.exceptions),
        )

    def _log_bytes(self) -> bytes:
        log = self.store.log
        parts = []
        for segment in log.segments:
            size = min(segment.end, log.written) - segment.start
            parts.append(segment.path.read_bytes()[: max(size, 0)])
        return b"".join(parts)

    @property
    def taken(self) -> int:
        """Number of sends that the compiled part took."""
        runs = self.broker.sending.processor._runs
        return 0 if runs is None else runs.taken

    @property
    def pulled(self) -> int:
        """Number of pulls that the compiled part answered."""
        runs = self.broker.pull.compiled
        return 0 if runs is None else runs.hits

    def stop(self) -> None:
        for far in self._peers.values():
            far.close()
        for conn in list(self.server.connections.values()):
            conn.close()
        self.broker.pull.close()
        self.broker.tables.journal.stop()
        self.store.let_go()
        self.loop.close()


@contextmanager
def _limits(setting: Setting, compiled: bool) -> Iterator[None]:
    """The engine's own figures are far too large for a test; and what both twins of one process share is switched."""
    changed: list[tuple[Any, str, Any]] = [
        (commit_log, "STAGE_BYTES", setting.stage_bytes),
        (server, "OUTBOX_HIGH_BYTES", setting.outbox_bytes),
        (server, "OUTBOX_TOTAL_BYTES", setting.outboxes_bytes),
    ]
    changed.append((clients, "_opaques", itertools.count()))  # of what clients get unasked
    if not compiled:
        changed += [(server, "flush_outboxes", None), (message_reader, "pick_compiled", None)]
    before = [getattr(module, name) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            setattr(module, name, value)


@contextmanager
def opened(setting: Setting, compiled: bool) -> Iterator[Twin]:
    """A twin in a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="twin", dir=_MEMORY if _MEMORY.is_dir() else None))
    twin = None
    random.seed(11)
    exceptions, logger = Exceptions(), logging.getLogger("appliance")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(exceptions)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        with _limits(setting, compiled):
            twin = Twin(directory, setting, compiled)
            twin.exceptions = exceptions.found
            yield twin
    finally:
        logger.removeHandler(exceptions)
        logger.setLevel(level)
        logger.propagate = propagate
        if twin is not None:
            twin.stop()
        shutil.rmtree(directory, ignore_errors=True)


def outcome(steps: Iterable[Step], setting: Setting, compiled: bool) -> Outcome:
    """Return the outcome of an input."""
    with opened(setting, compiled) as twin:
        found = twin.take(steps)
        found.taken, found.pulled = twin.taken, twin.pulled
        return found


assert MAX_FRAME_BYTES > _READ
