"""A leader and followers of a set, bound to an epoch, without what elects them: engines whose stream a test puts up."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from appliance.engine.clock import SYSTEM
from appliance.engine.failover.set_state import EpochStart, Leader
from appliance.engine.loop_calls import run_on_loop
from appliance.engine.protocol.ha_preamble import SAYS_TAKEN, Answer, Hello, Opening, Refusal, pack, set_hash
from appliance.engine.replication.acknowledged import ConfirmedPosition
from appliance.engine.replication.bound_follower import BoundFollower
from appliance.engine.replication.bound_link import Leading
from appliance.engine.replication.in_sync_position import InSyncPosition
from appliance.engine.replication.master import ReplicationServer
from appliance.engine.replication.slave_link import LinkSettings
from tests.support.engine import RunningEngine
from tests.support.ha import PlayedSlave
from tests.support.set_of_brokers import SMALL

SET = "broker-a"
SETTINGS = LinkSettings(heartbeat_s=60, silence_s=60, batch_bytes=32_768, bytes_per_s=0, from_last_file=True)


def epochs_of(*pairs: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(*pair) for pair in pairs)


def point(own, own_end, leaders, leaders_end):
    """The newest epoch that both lists have with the same start, to the smaller of its two ends."""

    def ends(epochs, end):
        starts = [one for one in epochs if one.start < end or end == 0]
        return dict(zip(starts, [*[one.start for one in starts], end][1:], strict=False))

    here, there = ends(own, own_end), ends(leaders, leaders_end)
    there |= {one: leaders_end for one in leaders if one not in there}
    both = [one for one in here if one in there]
    return min(here[both[-1]], there[both[-1]]) if both else None


class Files:
    """A member's files, in memory."""

    def __init__(self, uuid: str, epochs: tuple[EpochStart, ...] = (), seen: int = 0) -> None:
        self.uuid = uuid
        self.slot = 1
        self.set_id = ""
        self.epochs = epochs
        self.seen = seen or (epochs[-1].epoch if epochs else 0)

    def see(self, epoch: int) -> None:
        self.seen = max(self.seen, epoch)

    def take_slot(self, slot: int) -> None:
        self.slot = slot

    def join(self, set_id: str) -> None:
        self.set_id = set_id

    def begin_epoch(self, epoch: int, start: int) -> None:
        self.epochs = (*self.epochs, EpochStart(epoch, start))

    def adopt(self, epochs: tuple[EpochStart, ...]) -> None:
        self.epochs = epochs


class Box:
    """An engine whose log a test replicates. role: what else takes part in it is switched off."""

    def __init__(self, data_dir: Path, uuid: str, role: str, **store: Any) -> None:
        slave = role == "SLAVE"
        self.running = RunningEngine(
            data_dir,
            broker={"broker_name": SET, "broker_id": int(slave), "slave_read_enable": True},
            store=SMALL | {"broker_role": role} | store,
        )
        self.files = Files(uuid)

    @property
    def store(self):
        return self.running.engine.broker.store

    def on_loop(self, job) -> None:
        assert run_on_loop(self.running.engine.loop.call_soon, job, lambda: False)

    def watermark(self, name: str, position) -> None:
        self.on_loop(lambda: self.store.publication.watermarks.update({name: position}))


class LeaderBox(Box):
    """One that leads from now on; `lead` begins the next epoch, at its log's end."""

    def __init__(self, data_dir: Path, uuid: str = "leader", **store: Any) -> None:
        super().__init__(data_dir, uuid, "ASYNC_MASTER", **store)
        self.server: ReplicationServer | None = None
        self.is_alive = True
        self.higher: list[int] = []
        #: Number of times that a member was bound.
        self.bindings = 0

    def _count(self) -> None:
        self.bindings += 1

    def lead(self, epoch: int = 1, settings: LinkSettings = SETTINGS, start: int | None = None) -> None:
        store = self.store
        self.files.begin_epoch(epoch, store.log.written if start is None else start)
        self.position = InSyncPosition(store.kept, lambda: store.published, store.watermark_moved, SYSTEM)
        self.position.begin(store.published)
        self.watermark("replicated", self.position)
        self.leading = Leading(
            SET, self.files.uuid, self.files.epochs, self.position, lambda: self.is_alive, lambda: store.published,
            self.higher.append, self._count,
        )  # fmt: skip
        sock = socket.create_server(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        self.server = ReplicationServer(sock, store, settings, None, SYSTEM, self.leading)
        store.on_kept = self.server.log_grew
        self.server.start()

    def await_members(self, *uuids: str) -> None:
        self.on_loop(lambda: self.position.set_awaited(frozenset(uuids)))

    @property
    def address(self) -> Leader:
        return Leader(self.files.uuid, 1, self.running.engine.broker_address, f"127.0.0.1:{self.port}")

    def end_epoch(self) -> None:
        if self.server is not None:
            self.store.on_kept = None
            self.server.stop()
            self.server = None

    def stop(self) -> None:
        self.end_epoch()
        self.running.stop()


class FollowerBox(Box):
    """A box that follows the leader that the test names."""

    def __init__(self, data_dir: Path, uuid: str = "follower", **store: Any) -> None:
        super().__init__(data_dir, uuid, "SLAVE", **store)
        self.confirmed = ConfirmedPosition(self.store.watermark_moved)
        self.confirmed.begin(self.store.log.written)
        self.watermark("confirmed", self.confirmed)
        self.stream: BoundFollower | None = None

    def follow(self, leader: Leader, epoch: int = 1, consistent_point=point, name: str = SET) -> BoundFollower:
        self.close_stream()
        self.files.see(epoch)
        self.stream = BoundFollower(
            self.store, self.running.engine.loop.call_soon, leader, epoch, name, self.files, consistent_point,
            self.files.adopt, self.confirmed, SYSTEM,
        )  # fmt: skip
        self.store.on_kept = self.stream.log_kept
        self.stream.start()
        return self.stream

    def close_stream(self) -> None:
        if self.stream is not None:
            assert self.stream.close()

    def stop(self) -> None:
        self.close_stream()
        self.running.stop()


class PlayedMember(PlayedSlave):
    """A member whose every byte a test says."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        super().__init__(port, host)
        self.heard: bytes = b""

    def say(self, uuid: str = "played", epoch: int = 1, **other: Any) -> None:
        hello = Hello(set_hash(SET), uuid, 1, epoch, epoch, 0, 0, SMALL["mapped_file_size_commit_log"], (), SAYS_TAKEN)
        self.sock.sendall(pack(hello._replace(**other)))

    def answer(self) -> Answer | Refusal:
        opening = Opening()
        while True:
            found = opening.feed(self.receive(8))
            if found is not None:
                return found

    def bind(self, uuid: str = "played", epoch: int = 1, report: int = 0, **other: Any) -> Answer:
        self.say(uuid, epoch, **other)
        answer = self.answer()
        assert isinstance(answer, Answer), answer
        self.report(report)
        return answer

    def header(self) -> tuple[int, int]:
        """(offset, size) of the next frame, -1 for the confirm offset; its bytes are skipped."""
        offset, size = int.from_bytes(self.receive(8), "big"), int.from_bytes(self.receive(4), "big", signed=True)
        self.receive(max(0, size))
        return offset, size

    def take_to(self, end: int, seconds: float = 60) -> None:
        """Frames until one ends at `end`; the rest is skipped."""
        at, deadline = -1, time.monotonic() + seconds
        while at != end:
            assert time.monotonic() < deadline, f"frames up to {at}, not {end}"
            offset, size = self.header()
            at = offset + size if size > 0 else at
