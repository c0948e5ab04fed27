"""A group in the middle of everything, opened by Apache and by RocketBox in turns: delayed messages, first and later
retries and a consumer's own retry that wait at levels of their own, dead letters, offsets of topic and retry topic.

Each turn has its own delays: a level of an hour keeps its messages waiting for the next turn, and a level of a second
delivers them at once, as both brokers let a message wait no longer than its level is now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from appliance.engine import fastjson
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import Record
from appliance.engine.window.snapshots import ByTopic
from tests.exchange.both_ways import BROKER_NAME, offsets, read_everything
from tests.support.apache import ApacheBroker
from tests.support.directories import shared_directory
from tests.support.effort import NIGHTLY
from tests.support.engine import ROOMY, Peer, pull_fields, records, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

#: An orderly stop takes 5.3.3 some 20 s of fixed pauses, and there are two.
VERSIONS = ["4.9.7", "5.3.3"] if NIGHTLY else ["4.9.7"]
TOPICS = {"Orders": 1, "%RETRY%CG": 1, "%DLQ%CG": 1}
COMMIT = 1 << 20


def levels(soon: int) -> str:
    """Return six delay levels: the first `soon` last a second, the others an hour."""
    return " ".join(["1s"] * soon + ["1h"] * (6 - soon))


class Turn:
    """The broker that has the store in this turn, as a client sees it."""

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> dict[str, str]:
        with closing(Peer(self.broker)) as peer:
            answer = peer.ask(code, fields, body)
            assert answer.code == 0, answer
            return answer.ext_fields

    def stored(self, topic: str, offset: int = 0) -> list[Record]:
        with closing(Peer(self.broker)) as peer:
            found: list[Record] = []
            while True:
                answer = peer.ask(11, pull_fields(topic, 0, offset + len(found)))
                if answer.code != 0:
                    return found
                found += records(answer.body)

    def arrived(self, topic: str, *bodies: bytes) -> list[Record]:
        """Wait until the topic holds all these bodies; return all of its records."""

        def look() -> list[Record]:
            found = self.stored(topic)
            return found if set(bodies) <= {record.body for record in found} else []

        return wait_for(look, f"{bodies} in {topic}", every=0.2)

    def send(self, body: bytes, level: int = 0, topic: str = "Orders", **properties: str) -> None:
        named = {"UNIQ_KEY": f"7F000001{body.hex():0>24}"} | ({"DELAY": str(level)} if level else {}) | properties
        text = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
        self.ask(310, send_fields(topic, 0, text, j=properties.get("RECONSUME_TIME", "0"), l="16"), body)

    def send_back(self, record: Record, level: int, limit: int = 16) -> None:
        """Send a message back for a retry (36). level: -1 makes it a dead letter."""
        fields = {
            "offset": record.physical_offset, "group": "CG", "delayLevel": level, "originMsgId": "x",
            "originTopic": "Orders", "unitMode": "false", "maxReconsumeTimes": limit,
        }  # fmt: skip
        self.ask(36, fields)

    def commit(self, topic: str, offset: int) -> None:
        self.ask(15, {"consumerGroup": "CG", "topic": topic, "queueId": 0, "commitOffset": offset})

    def committed(self) -> dict[tuple[str, int], int]:
        return offsets(self.broker, "CG", {"Orders": 1, "%RETRY%CG": 1})

    def by_body(self, topic: str) -> dict[bytes, Record]:
        return {record.body: record for record in self.stored(topic)}


def ours(tmp_path: Path, store: Path, soon: int) -> Engine:
    """Start RocketBox on the store, in this process."""
    config = EngineConfig(
        data_dir=tmp_path / "data", store_dir=store, broker_port=0, namesrv_port=0,
        broker=BrokerConfig(broker_name=BROKER_NAME),
        store=StoreConfig(
            **ROOMY, mapped_file_size_commit_log=COMMIT, mapped_file_size_consume_queue=2000,
            max_hash_slot_num=100, max_index_num=120, max_message_size=65_536, message_delay_level=levels(soon),
        ),
    )  # fmt: skip
    engine = Engine(config)
    engine.start()
    return engine


def theirs(version: str, namesrv: str, tmp_path: Path, store: Path, soon: int) -> ApacheBroker:
    config = {
        "storePathRootDir": store, "storePathCommitLog": store / "commitlog", "mappedFileSizeCommitLog": COMMIT,
        "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100, "maxIndexNum": 120, "maxMessageSize": 65_536,
        "diskMaxUsedSpaceRatio": 95, "messageDelayLevel": levels(soon),
    }  # fmt: skip
    return ApacheBroker(version, namesrv, scratch=tmp_path, heap="256m", broker_name=BROKER_NAME, config=config)


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    with Server(shared_directory(request, "namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def shape(record: Record) -> tuple[bytes, int, str | None, str | None]:
    """Return body, retries, first topic and first id of a retry or dead letter."""
    found = decode_properties(record.properties)
    return record.body, record.reconsume_times, found.get("RETRY_TOPIC"), found.get("ORIGIN_MESSAGE_ID", "")[16:]


def place(record: Record) -> str:
    """Return the end of an ORIGIN_MESSAGE_ID that names this message: its physical offset."""
    return f"{record.physical_offset:016X}"


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_that_waits_comes_once_whoever_has_the_store(tmp_path: Path, namesrv: str, version: str) -> None:
    store = tmp_path / "store"
    firsts = [b"early", b"retried", b"twice", b"dead", b"dead later", b"dropped"]

    # Apache's first turn: only level 1 passes.
    with theirs(version, namesrv, tmp_path, store, 1) as apache:
        turn = Turn(apache.address)
        turn.ask(17, {
            "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        })  # fmt: skip
        for body in firsts:
            turn.send(body)
        origin = turn.by_body("Orders")
        turn.send_back(origin[b"twice"], 1)
        turn.send_back(origin[b"dead later"], 1)
        turn.arrived("%RETRY%CG", b"twice", b"dead later")
        once = turn.by_body("%RETRY%CG")
        turn.send_back(origin[b"early"], 2)
        turn.send_back(origin[b"retried"], 3)
        turn.send_back(once[b"twice"], 4)
        turn.send_back(origin[b"dropped"], 5)
        turn.send_back(origin[b"dead"], -1)
        turn.send(b"own retry", 4, "%RETRY%CG", RETRY_TOPIC="Orders", RECONSUME_TIME="3")
        turn.send(b"delayed, ours", 2)
        turn.send(b"delayed, theirs", 6)
        turn.commit("Orders", 5)
        turn.commit("%RETRY%CG", 1)
        left, committed = read_everything(turn.broker, TOPICS), turn.committed()
        assert committed == {("Orders", 0): 5, ("%RETRY%CG", 0): 1}
        apache.stop(timeout_s=60)

    # RocketBox's turn: levels 1 to 3 pass.
    engine = ours(tmp_path, store, 3)
    try:
        assert engine.broker_address is not None
        turn = Turn(engine.broker_address)
        assert turn.committed() == committed
        turn.arrived("%RETRY%CG", b"early", b"retried")
        turn.arrived("Orders", b"delayed, ours")
        now = read_everything(turn.broker, TOPICS)
        assert {where: record for where, record in now.records.items() if where in left.records} == left.records
        assert len(now.records) == len(left.records) + 3
        ladder = engine.window.waiting.ladder("CG")
        assert {rung.level: rung.waiting for rung in ladder.rungs if rung.waiting} == {4: 2, 5: 1}
        assert (ladder.by_topic, ladder.ready) == ((ByTopic("Orders", 3),), 3)
        [letter] = engine.window.dead_letters.page("CG").rows
        assert letter.origin_topic == "Orders"
        engine.window.waiting_commands.run("drop", group="CG", level=5)
        retries = turn.by_body("%RETRY%CG")
        assert shape(retries[b"retried"]) == (b"retried", 1, "Orders", place(origin[b"retried"]))
        turn.send_back(retries[b"dead later"], 0, limit=1)
        turn.send_back(retries[b"retried"], 5)
        turn.send(b"delayed by us", 6)
        turn.commit("%RETRY%CG", 3)
        assert shape(turn.by_body("%DLQ%CG")[b"dead later"]) == (
            b"dead later",
            2,
            "Orders",
            place(origin[b"dead later"]),
        )
        left, committed = read_everything(turn.broker, TOPICS), turn.committed()
    finally:
        engine.stop()
    progress = fastjson.loads((store / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    assert {int(level): offset for level, offset in progress.items()}.get(3) == 1, progress

    # Apache's again: all pass, the dropped message too, since Apache has no such operation.
    with theirs(version, namesrv, tmp_path, store, 6) as apache:
        turn = Turn(apache.address)
        assert turn.committed() == committed
        turn.arrived("Orders", b"delayed, theirs", b"delayed by us")
        turn.arrived("%RETRY%CG", b"twice", b"own retry", b"dropped")
        wait_for(lambda: len(turn.stored("%RETRY%CG")) == 8, "the second retry of what failed here")
        found = {shape(record) for record in turn.stored("%RETRY%CG")}
        assert (b"twice", 2, "Orders", place(origin[b"twice"])) in found
        assert (b"retried", 2, "Orders", place(origin[b"retried"])) in found
        assert (b"own retry", 3, "Orders", "") in found
        turn.send_back(turn.by_body("%RETRY%CG")[b"retried"], 0, limit=2)
        assert shape(turn.stored("%DLQ%CG")[-1]) == (b"retried", 3, "Orders", place(origin[b"retried"]))
        now = read_everything(turn.broker, TOPICS)
        assert {where: record for where, record in now.records.items() if where in left.records} == left.records
        turn.send(b"delayed last", 2)
        committed = turn.committed()
        left = now
        apache.stop(timeout_s=60)

    # RocketBox's again: nothing comes twice.
    engine = ours(tmp_path, store, 6)
    try:
        assert engine.broker_address is not None
        turn = Turn(engine.broker_address)
        assert turn.committed() == committed
        turn.arrived("Orders", b"delayed last")
        now = read_everything(turn.broker, TOPICS)
        assert {where: record for where, record in now.records.items() if where in left.records} == left.records
        waiting_ended = wait_for(lambda: not any(level.waiting for level in engine.window.waiting.levels()), "all came")
        assert waiting_ended
        assert Counter(record.body for record in turn.stored("Orders")) == Counter(
            [*firsts, b"delayed, ours", b"delayed, theirs", b"delayed by us", b"delayed last"]
        )
        assert Counter(record.body for record in turn.stored("%RETRY%CG")) == Counter(
            {b"early": 1, b"retried": 2, b"twice": 2, b"dead later": 1, b"dropped": 1, b"own retry": 1}
        )
        assert Counter(record.body for record in turn.stored("%DLQ%CG")) == Counter(
            [b"dead", b"dead later", b"retried"]
        )
        assert {letter.origin_topic for letter in engine.window.dead_letters.page("CG").rows} == {"Orders"}
    finally:
        engine.stop()
