"""Timer messages that wait while a store goes from Apache to RocketBox and back: each comes once, not before its time,
from the broker that has the store by then; recalled messages do not come.

Apache rolls messages here that are due in more than a few seconds, as it does by default with those due in two days.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import closing
from pathlib import Path

import pytest

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.window.waiting.snapshots import WaitingPlace
from tests.exchange.both_ways import BROKER_NAME
from tests.exchange.test_all_kinds_pending import COMMIT, Turn, ours
from tests.support.apache import ApacheBroker, ask
from tests.support.directories import shared_directory
from tests.support.engine import Peer, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

WHEEL = "rmq_sys_wheel_timer"
HOUR_MS = 3_600_000
#: Deliveries in this time before a kill may be repeated: Apache saves its progress once a second.
FORGOTTEN_MS = 2500


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    with Server(shared_directory(request, "namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def theirs(version: str, namesrv: str, tmp_path: Path, store: Path) -> ApacheBroker:
    config = {
        "storePathRootDir": store, "storePathCommitLog": store / "commitlog", "mappedFileSizeCommitLog": COMMIT,
        "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100, "maxIndexNum": 120, "maxMessageSize": 65_536,
        "diskMaxUsedSpaceRatio": 95, "recallMessageEnable": "true", "timerRollWindowSlot": 12,
    }  # fmt: skip
    return ApacheBroker(version, namesrv, scratch=tmp_path, heap="256m", broker_name=BROKER_NAME, config=config)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Timed:
    """The timer messages that were sent: body -> due time; `gone` are the ones that must not come."""

    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        self.gone: set[bytes] = set()
        self.handles: dict[bytes, str] = {}
        self.kills: list[int] = []

    def send(self, broker: str, body: bytes, due_ms: int) -> None:
        properties = f"UNIQ_KEY\x017F000001{body.hex():0>24}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
        with closing(Peer(broker)) as peer:
            answer = peer.ask(310, send_fields("Orders", 0, properties), body)
        assert answer.code == 0, answer
        self.due[body] = due_ms
        self.handles[body] = answer.ext_fields.get("recallHandle", "")

    def recall(self, broker: str, body: bytes) -> None:
        with closing(Peer(broker)) as peer:
            fields = {"topic": "Orders", "recallHandle": self.handles[body], "producerGroup": "P"}
            answer = peer.ask(370, fields)
        assert answer.code == 0, answer
        self.gone.add(body)

    def until(self, turn: Turn, *bodies: bytes) -> None:
        turn.arrived("Orders", *bodies)

    def check(self, turn: Turn, early: Set[bytes] = frozenset()) -> Counter[bytes]:
        """Assert that none came before its time, except `early`, and none twice, except those delivered in the last
        moments before a kill. Returns how often each body came."""
        stored = turn.stored("Orders")
        first: dict[bytes, int] = {}
        for record in stored:
            assert record.body not in self.gone, f"{record.body!r} was taken back"
            if record.body not in early:
                assert record.store_time_ms >= self.due[record.body], f"{record.body!r} came early"
                assert decode_properties(record.properties)["REAL_TOPIC"] == "Orders"
            at_ms = first.setdefault(record.body, record.store_time_ms)
            if at_ms != record.store_time_ms:
                assert any(kill - FORGOTTEN_MS <= at_ms <= kill for kill in self.kills), f"{record.body!r} came twice"
        return Counter(record.body for record in stored)

    def kill(self, apache: ApacheBroker) -> None:
        apache.kill()
        self.kills.append(now_ms())


def make_topic(broker: str) -> None:
    fields = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert ask(broker, 17, fields)[0]["code"] == 0


def place_of(engine: object, unique_body: bytes) -> WaitingPlace:
    key = f"7F000001{unique_body.hex():0>24}"
    page = engine.window.waiting.page(level=0, limit=500)  # type: ignore[attr-defined]
    [row] = [row for row in page.rows if row.unique_id == key]
    return WaitingPlace(0, row.queue_offset, key)


def test_what_waits_comes_once_whoever_has_the_store(tmp_path: Path, namesrv: str) -> None:
    store, timed = tmp_path / "store", Timed()
    with theirs("5.3.3", namesrv, tmp_path, store) as apache:
        turn = Turn(apache.address)
        make_topic(turn.broker)
        begin = now_ms()
        for body, seconds in ((b"a0", 2), (b"a1", 25), (b"a2", 40), (b"a3", 55), (b"a4", 70)):
            timed.send(turn.broker, body, begin + seconds * 1000)
        timed.send(turn.broker, b"a recalled", begin + 40_000)
        timed.recall(turn.broker, b"a recalled")
        timed.send(turn.broker, b"a later recalled", begin + 55_300)
        timed.send(turn.broker, b"a dropped", begin + 55_000)
        timed.send(turn.broker, b"a now", begin + 56_000)
        timed.send(turn.broker, b"a held", begin + HOUR_MS)
        timed.until(turn, b"a0")
        # Rolled ones lie in the topic twice.
        wait_for(
            lambda: any("TIMER_ROLL_TIMES" in decode_properties(one.properties) for one in turn.stored(WHEEL)),
            "something is rolled",
            every=0.2,
        )
        timed.kill(apache)

    engine = ours(tmp_path, store, 1)
    try:
        assert engine.broker_address is not None
        turn = Turn(engine.broker_address)
        timed.check(turn)
        for body, seconds in ((b"b0", 1), (b"b1", 20), (b"b2", 35), (b"b recalled", 35)):
            timed.send(turn.broker, body, now_ms() + seconds * 1000)
        timed.recall(turn.broker, b"b recalled")
        timed.recall(turn.broker, b"a later recalled")
        window = engine.window
        assert window.waiting_commands.run("drop", [place_of(engine, b"a dropped")]).done == 1
        timed.gone.add(b"a dropped")
        assert window.waiting_commands.run("deliver_now", [place_of(engine, b"a now")]).done == 1
        timed.until(turn, b"b0", b"a1", b"a now")
        early = {b"a now"}
        timed.check(turn, early)
        assert not any((store / "timerlog").glob("*"))
        assert not (store / "timerwheel").exists()
    finally:
        engine.stop()
    assert len(list((store / "timerlog").iterdir())) == 1

    with theirs("5.3.3", namesrv, tmp_path, store) as apache:
        turn = Turn(apache.address)
        timed.send(turn.broker, b"c0", now_ms() + 2000)
        timed.send(turn.broker, b"c1", now_ms() + 30_000)
        timed.until(turn, b"c0", b"a2")
        timed.check(turn, early)
        timed.kill(apache)

    engine = ours(tmp_path, store, 1)
    try:
        assert engine.broker_address is not None
        turn = Turn(engine.broker_address)
        timed.send(turn.broker, b"d0", now_ms() + 500)
        every = set(timed.due) - timed.gone - {b"a held"}
        timed.until(turn, *every)
        assert set(timed.check(turn, early)) == every
        page = engine.window.waiting.page(limit=10)
        assert [row.unique_id for row in page.rows] == [f"7F000001{b'a held'.hex():0>24}"]
    finally:
        engine.stop()


SIZES = {
    "ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG": str(COMMIT),
    "ROCKETBOX_STORE_MAPPED_FILE_SIZE_CONSUME_QUEUE": "2000",
    "ROCKETBOX_STORE_MAX_HASH_SLOT_NUM": "100",
    "ROCKETBOX_STORE_MAX_INDEX_NUM": "120",
    "ROCKETBOX_STORE_MAX_MESSAGE_SIZE": "65536",
    "ROCKETBOX_BROKER_BROKER_NAME": BROKER_NAME,
}


def test_what_waits_when_rocketbox_is_killed_is_not_lost(tmp_path: Path, namesrv: str) -> None:
    store, timed = tmp_path / "store", Timed()
    with Server(tmp_path / "data", "--store-dir", str(store), roles="broker,namesrv", environment=SIZES) as server:
        turn = Turn(server.broker)
        make_topic(turn.broker)
        for body, seconds in ((b"e0", 1), (b"e1", 20), (b"e2", 26), (b"e recalled", 20)):
            timed.send(turn.broker, body, now_ms() + seconds * 1000)
        timed.recall(turn.broker, b"e recalled")
        timed.until(turn, b"e0")
        server.kill()
    with theirs("5.3.3", namesrv, tmp_path, store) as apache:
        turn = Turn(apache.address)
        timed.send(turn.broker, b"f0", now_ms() + 1500)
        timed.until(turn, b"f0", b"e1", b"e2")
        stored = turn.stored("Orders")
        assert not timed.gone & {record.body for record in stored}
        assert all(record.store_time_ms >= timed.due[record.body] for record in stored)
        assert Counter(record.body for record in stored if record.body != b"e0") == Counter([b"f0", b"e1", b"e2"])


def test_a_broker_without_timers_leaves_what_waits(tmp_path: Path, namesrv: str) -> None:
    store, timed = tmp_path / "store", Timed()
    engine = ours(tmp_path, store, 1)
    try:
        assert engine.broker_address is not None
        make_topic(engine.broker_address)
        due_ms = now_ms() + 2000
        timed.send(engine.broker_address, b"g0", due_ms)
    finally:
        engine.stop()
    with theirs("4.9.7", namesrv, tmp_path, store) as apache:
        turn = Turn(apache.address)
        wait_for(lambda: now_ms() > due_ms, "its time has passed")
        timed.send(turn.broker, b"g1", now_ms() + HOUR_MS)
        timed.until(turn, b"g1")  # it does not support timer messages
        assert {record.body for record in turn.stored("Orders")} == {b"g1"}
        apache.kill()
    engine = ours(tmp_path, store, 1)
    try:
        assert engine.broker_address is not None
        turn = Turn(engine.broker_address)
        timed.until(turn, b"g0")
        assert Counter(record.body for record in turn.stored("Orders")) == Counter([b"g0", b"g1"])
    finally:
        engine.stop()
