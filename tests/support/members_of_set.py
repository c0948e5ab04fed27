"""Members of a set that fails over, each a whole engine in this process, whose roles a test decides about itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.engine.broker.role import Kind, Role
from appliance.engine.clock import SYSTEM, Clock
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.disk import Disk
from appliance.engine.engine import Engine
from appliance.engine.failover.brokers import OwnBrokers
from appliance.engine.failover.member_files import MemberFiles, place_of
from appliance.engine.failover.set_state import Leader
from appliance.engine.failover.settings import MemberSettings
from appliance.engine.failover.truncation import StoreCut
from appliance.engine.store.paths import StorePaths
from tests.support.engine import ROOMY, Peer, RunningEngine, pull_fields, records, send_fields
from tests.support.waiting import wait_for

SEND, PULL, CREATE_TOPIC, DELETE_TOPIC = 310, 11, 17, 215
FILE = 1 << 20
SMALL = {"mapped_file_size_commit_log": FILE, "max_message_size": 65_536, "max_hash_slot_num": 5000,
         "max_index_num": 20_000}  # fmt: skip


class Member:
    """One member. `brokers` is what fail-over would call; `running` has the helpers for peers."""

    def __init__(
        self,
        data_dir: Path,
        slot: int,
        namesrvs: tuple[str, ...] = (),
        on_promote: tuple[str, ...] = (),
        min_in_sync: int = 1,
        synchronous: bool = True,
        broker: dict[str, Any] | None = None,
        clock: Clock = SYSTEM,
        **store: Any,
    ) -> None:
        #: That it led last.
        self.epoch = 0
        data_dir.mkdir(parents=True, exist_ok=True)
        config = EngineConfig(
            data_dir=data_dir,
            broker_port=0,
            namesrv_port=0,
            broker=BrokerConfig(
                **{"broker_name": "broker-a", "namesrv_addrs": namesrvs, "slave_read_enable": True} | (broker or {})
            ),
            store=StoreConfig(**ROOMY | SMALL | {"flush_disk_type": "SYNC_FLUSH"} | store),
        )
        paths = StorePaths(config.store_dir, data_dir / "rocketbox")
        disk = Disk(data_dir / "rocketbox")
        disk.make_directory(paths.own)
        paths.root.mkdir(exist_ok=True)
        self.files = MemberFiles(paths, disk, "set-a", place_of(data_dir))
        if not self.files.slot:
            self.files.take_slot(slot)
        why = "it was not decided yet what it is"
        self.engine = Engine(config, role=Role(Kind.FENCED, slot, why=why), clock=clock)
        self.engine.start()
        self.running = RunningEngine.of(self.engine)
        assert self.engine.ha_socket is not None
        settings = self.engine.broker.store.settings  # type: ignore[union-attr]
        self.brokers = OwnBrokers(
            self.engine.seat,
            self.engine.ha_socket,
            self.files,
            StoreCut(paths, disk, settings, self.files, clock.wall_ms),
            MemberSettings("set-a", synchronous, 5.0, 1.0, 5.0, min_in_sync, 1 << 20, 5.0, on_promote, 0.0, False),
            lambda: self.engine.config,
        )

    @property
    def store(self) -> Any:
        assert self.engine.broker is not None
        return self.engine.broker.store

    @property
    def leader(self) -> Leader:
        """This member as the set's key would name it."""
        return Leader(self.files.uuid, self.files.slot, self.engine.broker_address or "", self.engine.ha_address or "")

    def peer(self) -> Peer:
        return self.running.peer()

    def lead(self, epoch: int, *others: Member) -> None:
        """Lead as an elected member does: the stream is closed, the epoch noted, then it leads."""
        end = self.brokers.close_stream()
        self.epoch = epoch
        self.files.see(epoch)
        self.files.begin_epoch(epoch, end)
        self.brokers.lead(epoch, frozenset(one.files.uuid for one in others))

    def follow(self, other: Member, epoch: int, seconds: float = 60.0) -> None:
        """And wait until the stream runs, with what has to be cut off cut off."""
        self.files.see(epoch)
        self.brokers.follow(other.leader, epoch)

        def runs() -> bool:
            status = self.brokers.stream()
            if 0 <= status.cut_at < self.store.log.written:
                self.brokers.cut(status.cut_at, other.leader, epoch)
            return status.epoch == epoch

        wait_for(runs, f"the stream of epoch {epoch} ({self.brokers.stream().why})", seconds)

    def await_only(self, *others: Member) -> None:
        """And wait until they keep all that was published without them: before, they may not lead."""
        self.brokers.await_members(frozenset(one.files.uuid for one in others))
        published, changes = self.store.published, self.brokers.health().changes
        wait_for(
            lambda: (
                sum(report.durable >= published and report.taken >= changes for report in self.brokers.members())
                >= len(others)
            ),
            "the others to come up with what is published",
        )

    def take_in(self, other: Member) -> None:
        """Lead with the other as the only member in sync."""
        other.follow(self, self.epoch)
        self.await_only(other)

    def fence(self) -> None:
        self.brokers.fence("a test")

    def stop_tables(self) -> None:
        """Stop copying the leader's tables: later changes of them are not taken over."""
        for thread in (self.brokers._topics, self.brokers._tables):
            thread.request_stop()
            assert thread.stop(5)

    def hang_up(self) -> None:
        self.running.hang_up()

    def stop(self) -> None:
        self.hang_up()
        self.brokers.stop()
        self.engine.stop()


def wait_for_same_log(one: Member, other: Member, seconds: float = 60.0) -> None:
    wait_for(lambda: one.store.log.written == other.store.log.written, "both to have the same log", seconds)


@contextmanager
def two_members(directory: Path, clock: Clock = SYSTEM, **first: Any) -> Iterator[tuple[Member, Member]]:
    """Two without roles; the second one registers at the name server of the first. first: options of the first."""
    one = Member(directory / "one", 1, clock=clock, **first)
    two = Member(directory / "two", 2, (one.engine.namesrv_address,), clock=clock)
    yield one, two
    two.stop()
    one.stop()


def make(peer: Peer, topic: str, queues: int) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert peer.ask(CREATE_TOPIC, fields).code == 0


def send(peer: Peer, topic: str, queue: int, *bodies: bytes) -> None:
    for body in bodies:
        assert peer.ask(SEND, send_fields(topic, queue), body).code == 0


def bodies(peer: Peer, topic: str = "Orders", queue: int = 0, offset: int = 0) -> list[bytes]:
    """Return the bodies of the messages that one pull returns."""
    return [record.body for record in records(peer.ask(PULL, pull_fields(topic, queue, offset)).body)]
