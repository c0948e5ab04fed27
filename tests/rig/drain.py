"""Reads the contents of all brokers when all is quiet, once through pulls and once from the log files."""

from __future__ import annotations

import json
import struct
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.record import MAGIC_BLANK, decode_record
from tests.rig.broker_set import BrokerSet
from tests.rig.checker import Entry, Queue, Replica
from tests.rig.history import id_of
from tests.rig.raw_load import GROUP
from tests.support.peer import Peer, pull_fields, records

PULL, GROUP_OFFSET, MAX_OFFSET, MIN_OFFSET = 11, 14, 30, 31
NOT_AVAILABLE = 14  # as a response
QUIET_S = 40.0


class NotQuiet(AssertionError):
    """Replicas did not become equal in time, or could not be read whole."""


def wait_quiet(nodes: Mapping[str, Any], topic: str, queues: int, seconds: float = QUIET_S) -> None:
    """Wait until all brokers have the same log end, queue ends and offsets, twice in a row. nodes: as BrokerSet's.

    Raises NotQuiet if that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    before: Any = None
    while True:
        now = {name: _position(node, topic, queues) for name, node in nodes.items()}
        positions = set(now.values())
        if len(positions) == 1 and None not in positions and now == before:
            return
        if time.monotonic() > deadline:
            raise NotQuiet(f"{seconds:g} s after the last send: (log end, queue ends, offsets) are {now}")
        before = now
        time.sleep(0.1)


def _position(node: Any, topic: str, queues: int) -> tuple[Any, ...] | None:
    try:
        end = node.log_end()
        peer = node.peer()
    except (OSError, KeyError, ValueError):
        return None
    try:
        ends = tuple(_ask_offset(peer, MAX_OFFSET, topic, queue) for queue in range(queues))
        return end, ends, tuple(_group_offset(peer, topic, queue) for queue in range(queues))
    except OSError:
        return None
    finally:
        peer.close()


def _ask_offset(peer: Peer, code: int, topic: str, queue: int) -> int:
    answer = peer.ask(code, {"topic": topic, "queueId": queue})
    return int(answer.ext_fields["offset"]) if answer.code == 0 else _unknown(answer)


def _group_offset(peer: Peer, topic: str, queue: int) -> int:
    answer = peer.ask(GROUP_OFFSET, {"consumerGroup": GROUP, "topic": topic, "queueId": queue})
    return int(answer.ext_fields["offset"]) if answer.code == 0 else _unknown(answer)


def _unknown(answer: RemotingCommand) -> int:
    """Return -1 for an offset that the broker does not have. Raises OSError if it does not serve now, since a broker
    of another role is taking its place: what it does not show then is not lost."""
    if answer.code == NOT_AVAILABLE:
        raise OSError(f"it does not answer now: {answer.remark}")
    return -1


def drain(nodes: Mapping[str, Any], topic: str, queues: int, log_start: int) -> list[Replica]:
    """Return every broker's replica, with the log from log_start on. Reads again if records came meanwhile, e.g. a
    delayed message on a busy machine, so that log and queues are of one moment."""
    deadline = time.monotonic() + QUIET_S
    while True:
        try:
            ends = [node.log_end() for node in nodes.values()]
            found = [_replica(node, topic, queues, log_start) for node in nodes.values()]
            if ends == [node.log_end() for node in nodes.values()] or time.monotonic() > deadline:
                return found
        except (OSError, KeyError, ValueError):  # a broker is changing its role
            if time.monotonic() > deadline:
                raise
        wait_quiet(nodes, topic, queues)


def _replica(node: Any, topic: str, queues: int, log_start: int) -> Replica:
    end = node.log_end()
    peer = node.peer()
    try:
        shown = {(topic, queue): _queue(peer, topic, queue) for queue in range(queues)}
        offsets = {(GROUP, topic, queue): _group_offset(peer, topic, queue) for queue in range(queues)}
    finally:
        peer.close()
    log = log_bytes(node.commitlog, log_start, end)
    return Replica(
        node.name,
        shown,
        log_records(log, log_start, [topic]) | {queue: [] for queue in shown if not shown[queue]},
        log_start,
        log,
        epochs_of(node.data_dir),
        {key: offset for key, offset in offsets.items() if offset >= 0},
        quarantined(node.data_dir),
    )


def _queue(peer: Peer, topic: str, queue: int) -> list[Entry]:
    """Return all messages that pulls of this queue return."""
    found: list[Entry] = []
    at, end = _ask_offset(peer, MIN_OFFSET, topic, queue), _ask_offset(peer, MAX_OFFSET, topic, queue)
    at = max(at, 0)
    while at < end:
        answer = peer.ask(PULL, pull_fields(topic, queue, at, consumerGroup=GROUP, maxMsgNums=1000))
        given = records(answer.body) if answer.code == 0 else []
        if not given:
            _unknown(answer)
            raise NotQuiet(f"{peer.sock.getpeername()}: {topic}/{queue} at {at} of {end}: {answer}")
        found += [Entry(one.queue_offset, id_of(one.body), one.physical_offset) for one in given]
        at = found[-1].offset + 1
    return found


def log_bytes(directory: Path, begin: int, end: int) -> bytes:
    """Return the log's bytes from one physical offset to another, read from its files."""
    found = b""
    for path in sorted(directory.iterdir()):
        if not path.name.isdigit():
            continue
        start = int(path.name)
        if start >= end or start + path.stat().st_size <= begin:
            continue
        with open(path, "rb") as file:
            at = max(begin, start)
            file.seek(at - start)
            found += file.read(min(end, start + path.stat().st_size) - at)
    return found


def log_records(log: bytes, start: int, topics: Sequence[str], torn: bool = False) -> dict[Queue, list[Entry]]:
    """Return the entries of these topics in a part of the log, which begins with a record. torn: the part may end
    within a record."""
    found: dict[Queue, list[Entry]] = defaultdict(list)
    wanted = [b"\0" + bytes([len(topic)]) + topic.encode() for topic in topics]
    at = 0
    while at + 8 <= len(log):
        size, magic = struct.unpack_from(">iI", log, at)
        if torn and at + size > len(log):
            break
        if size < 8 or at + size > len(log):
            raise NotQuiet(f"no record at {start + at} of the log: size {size}, magic {magic:#x}")
        if magic != MAGIC_BLANK and any(log.find(name[1:], at, at + size) >= 0 for name in wanted):
            record = decode_record(log, at)
            if record.topic in topics:
                found[record.topic, record.queue_id].append(
                    Entry(record.queue_offset, id_of(record.body), record.physical_offset)
                )
        at += size
    return dict(found)


def epochs_of(data_dir: Path) -> tuple[tuple[int, int], ...]:
    """Return the epoch list of a member; () for a broker outside a set. The file: a count, its CRC32, then
    `epoch-start` lines."""
    path = data_dir / "rocketbox" / "ha" / "epochs"
    if not path.exists():
        return ()
    lines = [line for line in path.read_text().splitlines() if "-" in line]
    return tuple((int(epoch), int(start)) for epoch, _, start in (line.partition("-") for line in lines))


def quarantined(data_dir: Path) -> frozenset[str]:
    """Return the ids of the messages that were cut off and set aside."""
    found: set[str] = set()
    for path in data_dir.rglob("quarantine/diverged-*.log"):
        data = path.read_bytes()
        at = 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if size < 8 or at + size > len(data):
                break
            if magic != MAGIC_BLANK:
                found.add(id_of(decode_record(data, at).body))
            at += size
    return frozenset(found)


def described(brokers: BrokerSet) -> str:
    """Return the set's state in etcd as text for a failure message."""
    state: Any = None
    if brokers.etcd is not None:
        try:
            state = brokers.state()
        except OSError as error:
            state = str(error)
    return json.dumps(state, indent=1)
