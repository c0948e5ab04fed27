"""Messages that wait: a group's ladder, the list and the histogram, and acts on messages before they are due."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.errors import AdminError, Conflict, InvalidInput, NotFound
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import Record
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from appliance.engine.window.snapshots import ByTopic
from appliance.engine.window.waiting import kinds as waiting_kinds
from appliance.engine.window.waiting.snapshots import WaitingPlace, WaitingRow
from tests.support.engine import Peer, RunningEngine, pull_fields, records, start_engine
from tests.support.waiting import wait_for

#: Retries wait at levels 3 and 4 for an hour.
LEVELS = "1s 2s 1h 2h"
HOUR_MS = 3_600_000


@pytest.fixture
def running(tmp_path: Path):
    running = RunningEngine(tmp_path / "data", store={"message_delay_level": LEVELS})
    yield running
    running.stop()


def stored(running: RunningEngine, topic: str, queue: int = 0, offset: int = 0) -> list[Record]:
    answer = running._ours().ask(RequestCode.PULL_MESSAGE, pull_fields(topic, queue, offset))
    return records(answer.body) if answer.code == 0 else []


def send_back(peer: Peer, record: Record, group: str, level: int = 0) -> None:
    fields = {
        "offset": record.physical_offset, "group": group, "delayLevel": level, "originMsgId": "x",
        "originTopic": record.topic, "unitMode": "false", "maxReconsumeTimes": 5,
    }  # fmt: skip
    assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0


def delay(running: RunningEngine, body: bytes, level: int, topic: str = "Later", **more: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    running.put(topic, body, properties=f"DELAY\x01{level}\x02UNIQ_KEY\x01key-{body.decode()}\x02{text}")


def fail(running: RunningEngine, group: str, *bodies: bytes, topic: str = "Orders", level: int = 0) -> None:
    """Have a group's consumer take messages and send them back."""
    for body in bodies:
        running.put(topic, body, properties=f"UNIQ_KEY\x01key-{body.decode()}\x02TAGS\x01A\x02KEYS\x01k1 k2\x02")
    found = [record for record in all_of(running, topic) if record.body in bodies]
    assert len(found) == len(bodies)
    for record in found:
        send_back(running._ours(), record, group, level)


def all_of(running: RunningEngine, topic: str, queue: int = 0) -> list[Record]:
    found: list[Record] = []
    while more := stored(running, topic, queue, len(found)):
        found += more
    return found


def bodies(running: RunningEngine, topic: str) -> list[bytes]:
    return [record.body for record in all_of(running, topic)]


def rows(running: RunningEngine, **filters: Any) -> list[WaitingRow]:
    found: list[WaitingRow] = []
    cursor = None
    while True:
        page = running.window.waiting.page(cursor=cursor, limit=3, **filters)
        found += page.rows
        cursor = page.next_cursor
        if cursor is None:
            return found


def place_of(running: RunningEngine, unique_id: str) -> WaitingPlace:
    [row] = [row for row in rows(running) if row.unique_id == unique_id]
    return WaitingPlace(row.level, row.queue_offset, unique_id)


# --- seeing


def test_what_was_sent_back_shows_in_the_ladder(running: RunningEngine) -> None:
    fail(running, "G", b"1", b"2")
    fail(running, "G", b"3", topic="Returns")
    fail(running, "Other", b"4")
    [first] = [record for record in all_of(running, "Orders") if record.body == b"1"]
    send_back(running._ours(), first, "G", level=4)
    ladder = running.window.waiting.ladder("G")
    assert [(rung.level, rung.delay_ms, rung.waiting) for rung in ladder.rungs] == [
        (1, 1000, 0), (2, 2000, 0), (3, HOUR_MS, 3), (4, 2 * HOUR_MS, 1),
    ]  # fmt: skip
    assert ladder.rungs[2].by_topic == (ByTopic("Orders", 2), ByTopic("Returns", 1))
    assert ladder.by_topic == (ByTopic("Orders", 3), ByTopic("Returns", 1))
    assert (ladder.waiting, ladder.ready, ladder.truncated, ladder.max_retries) == (4, 0, False, 16)
    assert ladder.scanned == ladder.pending == 5
    at = ladder.rungs[2].oldest_stored_at_ms
    assert at is not None
    assert ladder.rungs[2].next_due_at_ms == at + HOUR_MS
    assert ladder.rungs[0].next_due_at_ms is None
    with pytest.raises(NotFound):
        running.window.waiting.ladder("Nobody")


def test_what_came_back_and_is_not_consumed_is_ready(running: RunningEngine) -> None:
    fail(running, "G", b"1", level=1)
    wait_for(lambda: bodies(running, "%RETRY%G"), "the retry")
    wait_for(lambda: running.window.waiting.ladder("G").waiting == 0, "the ladder to be empty")
    assert running.window.waiting.ladder("G").ready == 1


def test_the_list_is_in_the_order_of_due_times(running: RunningEngine) -> None:
    delay(running, b"a", 4)
    delay(running, b"b", 3)
    fail(running, "G", b"c")
    delay(running, b"d", 4)
    fail(running, "G", b"e")
    found = rows(running)
    assert [row.unique_id for row in found] == [f"key-{name}" for name in "bcead"]
    retry = found[1]
    assert (retry.topic, retry.group, retry.origin_topic) == ("%RETRY%G", "G", "Orders")
    assert (retry.tags, retry.keys, retry.reconsume_times, retry.level) == ("A", ("k1", "k2"), 1, 3)
    assert retry.stored_at_ms is not None
    assert retry.due_at_ms == retry.stored_at_ms + HOUR_MS
    assert (found[0].topic, found[0].queue_id, found[0].group, found[0].problem) == ("Later", 0, None, None)
    assert retry.offset_id is not None
    assert running.window.messages.detail(retry.offset_id).topic == SCHEDULE_TOPIC
    assert [row.unique_id for row in rows(running, group="G")] == ["key-c", "key-e"]
    assert [row.unique_id for row in rows(running, topic="Later")] == ["key-b", "key-a", "key-d"]
    assert [row.unique_id for row in rows(running, level=4)] == ["key-a", "key-d"]
    assert [row.unique_id for row in rows(running, from_ms=found[3].due_at_ms)] == ["key-a", "key-d"]
    assert rows(running, to_ms=found[0].due_at_ms)[0].unique_id == "key-b"
    assert rows(running, topic="Nothing") == []
    assert running.window.waiting.page().pending == 5


def test_levels_and_histogram_count_the_same(running: RunningEngine) -> None:
    for number in range(5):
        delay(running, b"%d" % number, 3)
    fail(running, "G", b"x", level=4)
    levels = running.window.waiting.levels()
    assert [(one.level, one.waiting) for one in levels] == [(1, 0), (2, 0), (3, 5), (4, 1)]
    assert levels[2].next_due_ms == rows(running)[0].due_at_ms
    assert not levels[2].due
    found = running.window.waiting.by_due(HOUR_MS // 2, 10)
    assert (sum(found.counts), found.before, found.after, found.pending) == (6, 0, 0, 6)
    assert sorted(count for count in found.counts if count) == [1, 5]
    first = rows(running)[0].due_at_ms
    exact = running.window.waiting.by_due(1, 1, begin_ms=first)
    same = [row for row in rows(running) if row.due_at_ms == first]
    assert exact.counts == (len(same),)
    assert exact.after == 6 - len(same)
    assert running.window.waiting.by_due(1, 1, begin_ms=first + 3 * HOUR_MS).before == 6
    assert sum(running.window.waiting.by_due(HOUR_MS, 10, group="G").counts) == 1
    assert sum(running.window.waiting.by_due(HOUR_MS, 10, level=3).counts) == 5


def test_what_cannot_be_asked(running: RunningEngine) -> None:
    delay(running, b"a", 3)
    delay(running, b"b", 3)
    window = running.window
    cursor = window.waiting.page(limit=1).next_cursor
    assert cursor is not None
    for field, arguments in [
        ("limit", {"limit": 0}), ("limit", {"limit": 501}), ("cursor", {"cursor": "00"}),
        ("cursor", {"cursor": cursor, "topic": "T"}), ("from_ms", {"from_ms": -1}),
        ("to_ms", {"from_ms": 5, "to_ms": 4}), ("level", {"level": -1}), ("topic", {"group": "G", "topic": "T"}),
    ]:  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            window.waiting.page(**arguments)  # type: ignore[arg-type]
        assert caught.value.field == field, arguments
    for field, arguments in [("buckets", {"buckets": 0}), ("bucket_ms", {"bucket_ms": 0})]:
        with pytest.raises(InvalidInput) as caught:
            window.waiting.by_due(**arguments)  # type: ignore[arg-type]
        assert caught.value.field == field
    for arguments in [
        {"action": "eat", "places": [WaitingPlace(3, 0)]}, {"action": "drop"},
        {"action": "drop", "places": [WaitingPlace(-1, 0)]}, {"action": "drop", "places": [WaitingPlace(3, -1)]},
        {"action": "drop", "level": 3, "limit": 1001}, {"action": "drop", "level": 3, "places": [WaitingPlace(3, 0)]},
    ]:  # fmt: skip
        with pytest.raises(InvalidInput):
            window.waiting_commands.run(**arguments)  # type: ignore[arg-type]


def test_a_topic_that_was_deleted_is_told(running: RunningEngine) -> None:
    delay(running, b"a", 3)
    running.window.topic_commands.delete("Later", force=True)
    [row] = rows(running)
    assert row.problem is not None
    assert row.problem.code == "waiting_topic_gone"
    with pytest.raises(InvalidInput, match="Later"):
        running.window.waiting_commands.run("deliver_now", [place_of(running, "key-a")])
    act = running.window.waiting_commands.run("drop", [place_of(running, "key-a")])
    assert act.done == 1
    assert rows(running) == []


def test_a_message_without_a_record_is_told(running: RunningEngine) -> None:
    fail(running, "G", b"a", b"b")
    row = rows(running)[0]
    [log] = (running.data_dir / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(row.physical_offset + 4)
        file.write(bytes(4))
    broken, whole = rows(running)
    assert broken.problem is not None
    assert broken.problem.code == "waiting_record_gone"
    assert (broken.level, broken.due_at_ms, broken.topic, broken.unique_id) == (3, row.due_at_ms, None, None)
    assert whole.unique_id == "key-b"
    assert [row.unique_id for row in rows(running, group="G")] == ["key-b"]
    assert running.window.waiting.ladder("G").waiting == 1
    for action in ("drop", "deliver_now", "to_dead_letters"):
        with pytest.raises(NotFound):
            running.window.waiting_commands.run(action, [WaitingPlace(broken.level, broken.queue_offset)])
    assert sum(running.window.waiting.by_due(HOUR_MS, 10).counts) == 2


def test_more_kinds_than_are_kept(running: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are marked as incomplete then, and a list still finds every message."""
    monkeypatch.setattr(waiting_kinds, "MOST_KINDS", 2)
    for group in ("A", "B", "C", "D"):
        fail(running, group, b"x" + group.encode())
    assert running.window.waiting.ladder("A").waiting == 1
    late = running.window.waiting.ladder("D")
    assert (late.waiting, late.truncated) == (0, True)
    assert [row.unique_id for row in rows(running, group="D")] == ["key-xD"]
    monkeypatch.setattr(waiting_kinds, "MOST_KEPT", 0)
    assert [row.unique_id for row in rows(running, group="C")] == ["key-xC"]


# --- acting


def test_deliver_now_arrives_at_once_and_not_again(running: RunningEngine) -> None:
    delay(running, b"a", 2)
    delay(running, b"b", 2)
    act = running.window.waiting_commands.run("deliver_now", [place_of(running, "key-a")], by="ann")
    assert (act.done, act.asked, act.counts) == (1, 1, {"done": 1})
    assert act.results[0].copy_place == "Later/0/0"
    assert bodies(running, "Later") == [b"a"]
    assert [row.unique_id for row in rows(running)] == ["key-b"]
    wait_for(lambda: bodies(running, "Later")[1:], "the other one")
    assert bodies(running, "Later") == [b"a", b"b"]
    wait_for(lambda: running.window.waiting.levels()[1].waiting == 0, "the level to be empty")


def test_a_copy_is_what_delivery_would_have_stored(running: RunningEngine) -> None:
    text = "DELAY\x012\x02UNIQ_KEY\x01key-early\x02KEYS\x01k\x02"
    running.put("Later", b"x", queue=2, properties=text)
    assert running.window.waiting_commands.run("deliver_now", level=2).done == 1
    running.put("Later", b"x", queue=2, properties=text)
    wait_for(lambda: len(all_of(running, "Later", 2)) == 2, "the delivered one")
    early, due = all_of(running, "Later", 2)
    own = {"size", "queue_offset", "physical_offset", "store_time_ms", "born_time_ms"}
    assert early._asdict() | dict.fromkeys(own) == due._asdict() | dict.fromkeys(own)


def test_to_dead_letters_is_what_a_last_failure_stores(running: RunningEngine) -> None:
    fail(running, "G", b"a", b"b")
    [first] = [record for record in all_of(running, "Orders") if record.body == b"b"]
    fields = {
        "offset": first.physical_offset, "group": "G", "delayLevel": -1, "originMsgId": "x",
        "originTopic": "Orders", "unitMode": "false", "maxReconsumeTimes": 5,
    }  # fmt: skip
    assert running._ours().ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    act = running.window.waiting_commands.run("to_dead_letters", [place_of(running, "key-b")])
    assert act.results[0].copy_place == "%DLQ%G/0/1"
    by_consumer, by_us = all_of(running, "%DLQ%G")
    assert decode_properties(by_us.properties) == decode_properties(by_consumer.properties)
    assert (by_us.body, by_us.reconsume_times) == (by_consumer.body, by_consumer.reconsume_times)
    assert (by_us.born_time_ms, by_us.born_host) == (by_consumer.born_time_ms, by_consumer.born_host)
    assert [row.unique_id for row in rows(running, group="G")] == ["key-a"]
    delay(running, b"d", 3)
    with pytest.raises(InvalidInput, match="not a retry"):
        running.window.waiting_commands.run("to_dead_letters", [place_of(running, "key-d")])


def test_a_dropped_message_never_arrives(running: RunningEngine) -> None:
    for name in (b"a", b"b", b"c"):
        delay(running, name, 2)
    running.window.waiting_commands.run("drop", [place_of(running, "key-b")])
    running.restart()
    assert [row.unique_id for row in rows(running)] in (["key-a", "key-c"], [])
    wait_for(lambda: len(bodies(running, "Later")) == 2, "the other two")
    assert bodies(running, "Later") == [b"a", b"c"]
    wait_for(lambda: running.window.waiting.levels()[1].waiting == 0, "the level to be empty")


def test_a_killed_broker_has_not_forgotten(running: RunningEngine, tmp_path: Path) -> None:
    """A copy of the files after the answers is what a killed process leaves."""
    for name in (b"a", b"b", b"c", b"d"):
        delay(running, name, 3)
    running.window.waiting_commands.run("drop", [place_of(running, "key-b")])
    running.window.waiting_commands.run("deliver_now", [place_of(running, "key-c")])
    shutil.copytree(running.data_dir, tmp_path / "killed")
    other = RunningEngine(tmp_path / "killed", store={"message_delay_level": LEVELS})
    try:
        assert [row.unique_id for row in rows(other)] == ["key-a", "key-d"]
        wait_for(lambda: bodies(other, "Later") == [b"c"], "the queue, which may be looked at still")
        assert other.window.waiting_commands.run("deliver_now", level=3).done == 2
        assert bodies(other, "Later") == [b"c", b"a", b"d"]
    finally:
        other.stop()


def test_a_damaged_list_is_told_and_messages_come(running: RunningEngine) -> None:
    for name in (b"a", b"b"):
        delay(running, name, 3)
        running.window.waiting_commands.run("drop", [place_of(running, f"key-{name.decode()}")])
    running.stop()
    path = running.data_dir / "rocketbox" / "settled-delays"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    running.engine = start_engine(running.data_dir, **running.options)
    assert [row.unique_id for row in rows(running)] == ["key-a"]
    [check] = [check for check in running.window.checks() if check.name == "findings"]
    assert check.level != "ok"
    assert "handled early" in str(check.sentence)
    assert running.window.waiting_commands.run("deliver_now", [place_of(running, "key-a")]).done == 1
    assert bodies(running, "Later") == [b"a"]


def test_of_one_message_it_is_an_error_when_it_cannot_be_done(running: RunningEngine) -> None:
    delay(running, b"a", 3)
    delay(running, b"z", 1)
    place = place_of(running, "key-a")
    window = running.window
    with pytest.raises(Conflict, match="Another message"):
        window.waiting_commands.run("drop", [WaitingPlace(place.level, place.queue_offset, "key-x")])
    with pytest.raises(NotFound):
        window.waiting_commands.run("drop", [WaitingPlace(3, 99)])
    with pytest.raises(NotFound):
        window.waiting_commands.run("drop", [WaitingPlace(77, 0)])
    assert window.waiting_commands.run("drop", [place], dry_run=True).counts == {"possible": 1}
    assert window.waiting_commands.run("drop", [place]).done == 1
    with pytest.raises(Conflict, match="handled before"):
        window.waiting_commands.run("drop", [place])
    with pytest.raises(Conflict, match="handled before"):
        window.waiting_commands.run("drop", [place], dry_run=True)
    wait_for(lambda: bodies(running, "Later"), "the delivery")
    with pytest.raises(Conflict, match="being delivered"):
        window.waiting_commands.run("drop", [WaitingPlace(1, 0)])
    with pytest.raises(Conflict, match="being delivered"):
        window.waiting_commands.run("deliver_now", [WaitingPlace(1, 0)], dry_run=True)


def test_of_many_each_has_its_result_and_they_add_up(running: RunningEngine) -> None:
    fail(running, "G", *(b"%d" % number for number in range(6)))
    delay(running, b"x", 3)
    window = running.window
    window.waiting_commands.run("drop", [place_of(running, "key-1")])
    places = [WaitingPlace(row.level, row.queue_offset) for row in rows(running)]
    places += [WaitingPlace(3, 1), WaitingPlace(3, 500), places[0]]
    assert window.waiting.ladder("G").waiting == 5
    preview = window.waiting_commands.run("to_dead_letters", places, dry_run=True)
    assert preview.counts == {"possible": 6, "no_retry": 1, "handled": 1, "gone": 1}
    assert bodies(running, "%DLQ%G") == []
    act = window.waiting_commands.run("to_dead_letters", places)
    assert act.counts == {"done": 5, "no_retry": 1, "handled": 1, "gone": 1, "taken": 1}
    assert sum(act.counts.values()) == act.asked == len(act.results) == 9
    assert bodies(running, "%DLQ%G") == [b"0", b"2", b"3", b"4", b"5"]
    assert [row.unique_id for row in rows(running)] == ["key-x"]
    ladder = window.waiting.ladder("G")
    assert (ladder.waiting, ladder.by_topic) == (0, ())


def test_a_filter_takes_the_first_ones(running: RunningEngine) -> None:
    fail(running, "G", *(b"%d" % number for number in range(5)))
    fail(running, "H", b"h")
    act = running.window.waiting_commands.run("drop", group="G", limit=3)
    assert (act.done, act.more) == (3, True)
    assert [row.unique_id for row in rows(running, group="G")] == ["key-3", "key-4"]
    act = running.window.waiting_commands.run("drop", group="G", limit=3)
    assert (act.done, act.more) == (2, False)
    assert running.window.waiting_commands.run("drop", group="G").asked == 0
    assert running.window.waiting.ladder("H").waiting == 1


def test_acts_at_the_moment_of_delivery(running: RunningEngine) -> None:
    """Whichever comes first, each message arrives once or was dropped; none comes twice, none is lost."""
    names = [b"%03d" % number for number in range(150)]
    for name in names:
        delay(running, name, 1)
    dropped: list[str] = []
    early: list[str] = []

    def act(action: str, seed: int, done: list[str]) -> None:
        chance = random.Random(seed)
        while len(bodies_by(peer)) + len(dropped) < len(names):
            found = running.window.waiting.page(limit=500).rows
            if not found:
                continue
            row = chance.choice(found[:20])
            try:
                running.window.waiting_commands.run(action, [WaitingPlace(row.level, row.queue_offset, row.unique_id)])
            except (Conflict, NotFound):
                continue
            assert row.unique_id is not None
            done.append(row.unique_id)

    def bodies_by(peer: Peer) -> list[bytes]:
        with lock:
            return bodies(running, "Later")

    peer, lock = running._ours(), threading.Lock()
    threads = [
        threading.Thread(target=act, args=("drop", 1, dropped)),
        threading.Thread(target=act, args=("deliver_now", 2, early)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    arrived = [b"key-" + body for body in bodies(running, "Later")]
    assert sorted([*arrived, *(name.encode() for name in dropped)]) == [b"key-" + name for name in names]
    assert dropped
    assert early


def test_a_full_disk_drops_nothing_and_says_so(running: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    delay(running, b"a", 3)
    delay(running, b"b", 3)
    broker = running.engine.broker
    assert broker is not None

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(broker.delays.settled, "_write", full)
        with pytest.raises(AdminError, match="No space left"):
            running.window.waiting_commands.run("drop", [place_of(running, "key-a")])
        act = running.window.waiting_commands.run("deliver_now", [place_of(running, "key-b")])
    assert act.counts == {"done_for_now": 1}
    assert act.results[0].why is not None
    assert "after a restart" in str(act.results[0].why)
    assert [row.unique_id for row in rows(running)] == ["key-a"]
    assert running.window.waiting_commands.run("drop", [place_of(running, "key-a")]).done == 1
    running.restart()
    assert rows(running) == [], "what could not be saved then was saved with the next"
