"""Hostile frames against a whole engine: other clients notice nothing, nothing is held up, nothing stored is harmed.

A frame that fails is printed with its seed, in hex. The long form (ROCKETBOX_TORTURE=1) sends a million of them, 50,000
to each engine.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import resource
import select
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.engine.engine import Engine
from appliance.engine.errors import FrameError
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from tests.support.effort import effort
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.offline import damage

from .hostile_frames import BOMBS, GROUPS, STATUS_REPLIES, TOPICS, Frames, Hostile

FRAMES_A_LIFE = effort(12_000, 50_000, 50_000)
SEEDS = range(effort(1, 2, 20))
ONE_WAY_FRAMES = effort(2_500, 50_000, 500_000)
#: Frames that are sent at once; then a valid request must be answered.
BATCH = 8
#: Most processor time of the I/O thread for `BATCH` frames of any content; the load of the machine does not count.
STALL_S = 0.25
#: Wall time for the answer to the request behind a batch, and for a pool's next job.
ANSWER_S = 30.0
#: Memory by which the process may grow over all frames of an engine, as names are taken from a few hundred; and memory
#: that it may allocate at any moment, so that a document that expands is an error here and not the end of the machine.
GROWTH_BYTES = 150 << 20
MOST_BYTES = 1 << 30
#: Numbers of frames between turns of a member of all groups, which answers requests; between turns of the honest
#: client; and between checks of the pools.
MEMBER_EVERY, HONEST_EVERY, POOLS_EVERY = 16, 512, 4096
_NO_SUCH_CODE = 31_999
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _ready(sock: socket.socket, events: int, seconds: float) -> int:
    """Wait for these events; return the ones that came. Not with `select`, which takes no descriptor beyond 1,023."""
    poll = select.poll()
    poll.register(sock, events)
    found = poll.poll(seconds * 1000)
    return found[0][1] if found else 0


class Excused(logging.Handler):
    """Collects every logged exception: none is expected, whatever a stranger sends."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"{message}\n{''.join(traceback.format_exception(record.exc_info[1])[-3:])}")
        elif "cannot be sent" in message:
            self.found.append(message)


class Stranger:
    """Sends frames to one port and reads every answer; connects again after a close.

    Requests of the server (221, 307, 309) are answered with the bodies of `replies`.
    """

    def __init__(self, address: str, replies: list[bytes], one_way: bool = False) -> None:
        """one_way: all that is sent are one-way requests, which get no answer, or broken frames."""
        self._one_way = one_way
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._replies = itertools.cycle(replies)
        self._owed = b""
        self.questions = 0
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._opaque = 0x5EA70000
        self.codes: Counter[int] = Counter()

    def send(self, batch: list[Hostile]) -> None:
        """Send the batch and a valid request; return when that is answered, or when the server has closed the
        connection because of the last frame."""
        if self._sock is None:
            self._sock = socket.create_connection(self._target, timeout=ANSWER_S)
            self._sock.setblocking(False)
            self._buffer.clear()
            self._owed = b""
        self._opaque += 1
        question = encode_command(RemotingCommand(_NO_SUCH_CODE, opaque=self._opaque))
        left = memoryview(self._owed + b"".join([hostile.frame for hostile in batch]) + question)
        self._owed = b""
        deadline = time.monotonic() + ANSWER_S
        answered = False
        while not answered:
            events = _ready(self._sock, select.POLLIN | (select.POLLOUT if left else 0), 1.0)
            readable, writable = events & ~select.POLLOUT, events & select.POLLOUT
            assert time.monotonic() < deadline, "no answer"
            try:
                if writable:
                    left = left[self._sock.send(left) :]
                if readable:
                    data = self._sock.recv(1 << 20)
                    if not data:
                        raise ConnectionResetError
                    self._buffer += data
                    answered = self._answered()
            except BlockingIOError:
                continue
            except ConnectionError:
                # The server closes a connection without a valid frame, or waits for the bytes that a frame announced.
                self.close()
                assert batch[-1].closes, "closed, though all were frames"
                return
            if batch[-1].closes and not left and not answered and not _ready(self._sock, select.POLLIN, 0.05):
                self.close()  # it waits for the rest of a frame
                return

    def _answered(self) -> bool:
        """Take whole frames off the buffer; return True if one answers the valid request."""
        found = False
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                break
            answer = decode_frame(self._buffer[:end])
            del self._buffer[:end]
            if answer.is_response:
                self.codes[answer.code] += 1
                is_ours = answer.opaque == self._opaque
                found = found or is_ours
                is_of_a_frame = answer.opaque == 0 and (answer.remark or "").startswith("bad frame: ")
                assert is_ours or is_of_a_frame or not self._one_way, f"a one-way request was answered: {answer}"
            elif not answer.is_oneway:
                self.questions += 1
                reply = RemotingCommand.response(0, body=next(self._replies))
                reply.opaque = answer.opaque
                self._owed += encode_command(reply)
        return found

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class Honest:
    """A producer and consumer that must not notice anything."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)
        self.sent: list[bytes] = []
        self._received = 0

    def work(self) -> None:
        """Send one message and receive it."""
        body = b"control %d" % len(self.sent)
        assert self._peer.ask(310, send_fields("Control"), body).code == 0
        self.sent.append(body)
        answer = self._peer.ask(11, pull_fields("Control", 0, self._received))
        assert (answer.code, [record.body for record in records(answer.body)]) == (0, [body])
        self._received += 1

    def close(self) -> None:
        self._peer.close()


def heartbeat_of_a_member(flag: int = 0) -> Hostile:
    """Return the heartbeat of a client that is in every group."""
    wanted = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in TOPICS]
    consumers = [{"groupName": group, "subscriptionDataSet": wanted} for group in GROUPS]
    body = json.dumps({"clientID": "client1", "consumerDataSet": consumers}).encode()
    return Hostile(34, encode_command(RemotingCommand(34, opaque=1, body=body, flag=flag)), False)


HEARTBEAT = heartbeat_of_a_member()
ONE_WAY_HEARTBEAT = heartbeat_of_a_member(flag=2)


def everything(address: str, count: int) -> list[bytes]:
    """Pull `count` control messages or more; return their bodies."""
    peer, found = Peer(address), []
    while len(found) < count:
        answer = peer.ask(11, pull_fields("Control", 0, len(found)))
        assert answer.code == 0
        found += [record.body for record in records(answer.body)]
    peer.close()
    return found


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def wait_for_pools(engine: Engine) -> None:
    """Wait until each pool has finished its jobs."""
    for name, pool in list(engine._pools.items()):
        done = threading.Event()
        deadline = time.monotonic() + ANSWER_S
        while not pool.submit(done.set):
            assert time.monotonic() < deadline, f"the pool {name} is stuck"
            time.sleep(0.01)
        assert done.wait(ANSWER_S), f"the pool {name} is stuck"


def served_codes(engine: Engine) -> tuple[set[int], set[int]]:
    """Return the request codes of the broker's and of the name server's tables."""
    broker, _vip, namesrv = (listener.dispatcher for listener in engine.server._listeners)
    return broker.codes, namesrv.codes


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Limit this process to `count` bytes of address space beyond its present size."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (has + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(autouse=True)
def collected_as_in_service():
    """Prevent full collections of the tests' own heap on the I/O thread: `rocketbox serve` has none either."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 1_000_000_000)
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def excused():
    handler = Excused()
    logger = logging.getLogger("appliance")
    level, logger.propagate = logger.level, False  # a report of everything that was logged would be hours long
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = True


@pytest.mark.parametrize("seed", SEEDS)
def test_a_strangers_frames_hold_up_nobody_and_harm_nothing(tmp_path, seed, excused):
    harms_nothing(tmp_path, seed, excused, FRAMES_A_LIFE, one_way=False)


def test_no_one_way_request_is_answered_and_none_harms_anything(tmp_path, excused):
    harms_nothing(tmp_path, 23, excused, ONE_WAY_FRAMES, one_way=True)


def harms_nothing(tmp_path: Path, seed: int, excused: Excused, count: int, one_way: bool) -> None:
    engine = start_engine(tmp_path)
    try:
        with at_most(MOST_BYTES):
            sent = attack(engine, seed, excused, count, one_way)
    finally:
        pools = list(engine._pools.values())
        engine.stop()
        for pool in pools:  # what waits in them would go on beside the next test, without these files
            assert pool.stop(ANSWER_S)
    assert not excused.found
    assert damage(tmp_path) == []
    engine = start_engine(tmp_path)
    try:
        assert everything(engine.broker_address, len(sent)) == sent
    finally:
        engine.stop()
    assert not excused.found


def attack(engine: Engine, seed: int, excused: Excused, count: int, one_way: bool) -> list[bytes]:
    """Send `count` frames to an engine; return the bodies that were acknowledged to the honest client."""
    broker_codes, namesrv_codes = served_codes(engine)
    honest = Honest(engine.broker_address)
    replies = BOMBS + STATUS_REPLIES
    strangers = [Stranger(one, replies, one_way) for one in (engine.broker_address, engine.namesrv_address)]
    member = Stranger(engine.broker_address, replies)
    assert engine.loop._thread is not None
    clock = time.pthread_getcpuclockid(engine.loop._thread.ident)
    tried: Counter[int] = Counter()
    batches: tuple[list[Hostile], list[Hostile]] = ([], [])
    before = 0
    for number, hostile in enumerate(Frames(seed, broker_codes | namesrv_codes, one_way)):
        to_namesrv = hostile.code in namesrv_codes or (hostile.code not in broker_codes and number % 2)
        batch, stranger = batches[to_namesrv], strangers[to_namesrv]
        batch.append(hostile)
        tried[hostile.code] += 1
        if len(batch) == BATCH or hostile.closes:
            used = time.clock_gettime(clock)
            trouble = None
            try:
                stranger.send(batch)
            except (AssertionError, FrameError) as error:
                trouble = str(error)
            used = time.clock_gettime(clock) - used
            if used > STALL_S:
                trouble = f"the I/O thread worked {used:.3f} s on these"
            if excused.found:
                trouble = excused.found[0]
            if trouble is not None:
                shown = "\n".join(f"{one.code}: {one.frame.hex()}" for one in batch)
                pytest.fail(f"seed {seed}, frames up to {number}: {trouble}\n{shown}")
            batch.clear()
        if number % MEMBER_EVERY == 0:
            member.send([HEARTBEAT])
        if number % HONEST_EVERY == 0:
            honest.work()
        if number % POOLS_EVERY == 0:
            wait_for_pools(engine)
        if number == count // 10:
            before = resident_bytes()
        if number == count:
            break
    wait_for_pools(engine)
    for stranger in strangers:
        stranger.send([ONE_WAY_HEARTBEAT])  # and reads what the pools answered
    honest.work()
    assert all(check["ok"] for check in engine.health().values())
    assert resident_bytes() - before < GROWTH_BYTES, f"seed {seed}"
    # The frames also get past the checks: every code was tried, and many requests were served.
    assert min(tried[code] for code in broker_codes | namesrv_codes) >= count // 500
    assert one_way or sum(stranger.codes[0] for stranger in strangers) > count // 20
    assert member.questions > count // 5000
    honest.close()
    for stranger in (*strangers, member):
        stranger.close()
    return honest.sent
