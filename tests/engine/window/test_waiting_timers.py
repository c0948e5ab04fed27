"""Messages with a time of their own among those that wait: listed, counted, found, delivered early and dropped."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.timers.claims import Claim
from appliance.engine.errors import Conflict, InvalidInput, NotFound, Unavailable
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.recall_handle import encode_recall_handle
from appliance.engine.window.waiting.snapshots import WaitingPage, WaitingPlace, WaitingRow
from tests.engine.window.test_waiting import bodies, delay, stored
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000
TOPIC = "Later"


@pytest.fixture
def running(tmp_path: Path):
    running = RunningEngine(tmp_path / "data", store={"message_delay_level": "1s 2s 1h 2h"})
    running.put(TOPIC, b"first")
    yield running
    running.stop()


def now_ms(running: RunningEngine) -> int:
    return running.engine.broker.timers.deliver.clock.wall_ms()


def timed(running: RunningEngine, body: bytes, due_ms: int, topic: str = TOPIC, **more: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    key = f"key-{body.decode()}"
    running.put(topic, body, properties=f"UNIQ_KEY\x01{key}\x02TIMER_DELIVER_MS\x01{due_ms}\x02{text}")


def recall(running: RunningEngine, body: bytes, due_ms: int, topic: str = TOPIC) -> Any:
    handle = encode_recall_handle(topic, "broker-a", due_ms - 1, f"key-{body.decode()}")
    return running._ours().ask(370, {"topic": topic, "recallHandle": handle, "producerGroup": "P"})


def indexed(running: RunningEngine) -> None:
    """Wait until the schedule holds all messages sent."""
    broker = running.engine.broker
    queue = broker.store.find_queue("rmq_sys_wheel_timer", 0)
    end = 0 if queue is None else queue.max_offset
    wait_for(lambda: broker.timers.index.indexed.queue_offset >= end, "it is indexed")


def page(running: RunningEngine, **filters: Any) -> WaitingPage:
    indexed(running)
    return running.window.waiting.page(**filters)


def names(rows: tuple[WaitingRow, ...]) -> list[str]:
    return [(row.unique_id or "").removeprefix("key-") for row in rows]


def place(running: RunningEngine, body: bytes) -> WaitingPlace:
    [row] = [row for row in page(running, limit=500).rows if row.unique_id == f"key-{body.decode()}"]
    return WaitingPlace(row.level, row.queue_offset, row.unique_id)


def test_levels_and_times_are_one_list_by_due_time(running: RunningEngine) -> None:
    begin = now_ms(running)
    delay(running, b"level", 3)  # an hour
    timed(running, b"late", begin + 3 * HOUR_MS, KEYS="k1 k2", TAGS="A")
    timed(running, b"soon", begin + HOUR_MS // 2)
    running.put("Other", b"x")
    timed(running, b"other", begin + HOUR_MS // 3, topic="Other")
    found = page(running)
    assert names(found.rows) == ["other", "soon", "level", "late"]
    assert [row.level for row in found.rows] == [0, 0, 3, 0]
    late = found.rows[-1]
    assert (late.due_at_ms, late.topic, late.keys, late.tags) == (begin + 3 * HOUR_MS, TOPIC, ("k1", "k2"), "A")
    assert (late.group, late.problem, found.next_cursor, found.truncated) == (None, None, None, False)
    assert found.pending == 4
    assert names(page(running, level=0).rows) == ["other", "soon", "late"]
    assert names(page(running, level=3).rows) == ["level"]
    assert names(page(running, topic=TOPIC).rows) == ["soon", "level", "late"]
    assert names(page(running, from_ms=begin + HOUR_MS // 2, to_ms=begin + 2 * HOUR_MS).rows) == ["soon", "level"]


def test_pages_go_on_where_the_last_one_ended(running: RunningEngine) -> None:
    due = now_ms(running) + HOUR_MS
    for number in range(20):
        timed(running, b"n%02d" % number, due + number // 7)  # several of one time
    delay(running, b"level", 4)
    assert recall(running, b"n03", due).code == 0
    seen: list[str] = []
    cursor = None
    for _ in range(30):
        found = page(running, cursor=cursor, limit=3)
        seen += names(found.rows)
        cursor = found.next_cursor
        if cursor is None:
            break
    assert seen == [f"n{number:02d}" for number in range(20) if number != 3] + ["level"]
    with pytest.raises(InvalidInput):
        running.window.waiting.page(cursor=page(running, limit=3).next_cursor, level=0)


def test_how_many_are_due_when(running: RunningEngine) -> None:
    begin = (now_ms(running) // HOUR_MS + 2) * HOUR_MS
    for body, minutes in ((b"a", -1), (b"b", 0), (b"c", 0), (b"d", 2), (b"e", 3), (b"f", 400)):
        timed(running, body, begin + minutes * 60_000)
    assert recall(running, b"c", begin).code == 0
    indexed(running)
    found = running.window.waiting.by_due(60_000, 4, begin_ms=begin)
    assert (found.before, found.counts, found.after, found.truncated) == (1, (1, 0, 1, 1), 1, False)
    assert running.window.waiting.by_due(60_000, 4, begin_ms=begin, level=3).counts == (0, 0, 0, 0)
    by_topic = running.window.waiting.by_due(60_000, 4, begin_ms=begin, topic=TOPIC)
    assert (by_topic.before, by_topic.counts, by_topic.after) == (1, (1, 0, 1, 1), 1)
    assert running.window.waiting.by_due(60_000, 4, begin_ms=begin, topic="Nobody").counts == (0, 0, 0, 0)


def test_delivered_before_its_time_and_not_again(running: RunningEngine) -> None:
    due = now_ms(running) + 3000
    timed(running, b"now", due, KEYS="k")
    timed(running, b"then", due)
    act = running.window.waiting_commands.run("deliver_now", [place(running, b"now")])
    assert (act.done, act.counts) == (1, {"done": 1})
    [result] = act.results
    assert result.copy_place == f"{TOPIC}/0/1"
    [copy] = stored(running, TOPIC, 0, 1)
    properties = decode_properties(copy.properties)
    assert copy.body == b"now"
    assert copy.store_time_ms < due
    assert (properties["KEYS"], properties["REAL_TOPIC"]) == ("k", TOPIC)
    with pytest.raises(Conflict):
        running.window.waiting_commands.run("deliver_now", [WaitingPlace(0, result.queue_offset, "key-now")])
    assert names(page(running).rows) == ["then"]
    wait_for(lambda: b"then" in bodies(running, TOPIC), "the other one")
    assert bodies(running, TOPIC) == [b"first", b"now", b"then"]


def test_what_was_dropped_never_comes_not_even_after_a_restart(running: RunningEngine) -> None:
    due = now_ms(running) + 4000
    for body in (b"kept", b"dropped"):
        timed(running, body, due)
    there = place(running, b"dropped")
    assert running.window.waiting_commands.run("drop", [there], dry_run=True).counts == {"possible": 1}
    assert running.window.waiting_commands.run("drop", [there]).done == 1
    with pytest.raises(Conflict):
        running.window.waiting_commands.run("drop", [there])
    running.restart()
    assert names(page(running).rows) == ["kept"]
    wait_for(lambda: b"kept" in bodies(running, TOPIC), "the other one")
    assert bodies(running, TOPIC) == [b"first", b"kept"]


def test_found_by_key_and_id_until_they_come(running: RunningEngine) -> None:
    due = now_ms(running) + HOUR_MS
    timed(running, b"timed", due, KEYS="order-1 order-2")
    timed(running, b"soon", now_ms(running) + 1500, KEYS="order-1")
    delay(running, b"level", 4, KEYS="order-1")
    running.put(TOPIC, b"plain", properties="KEYS\x01order-1\x02UNIQ_KEY\x01key-plain\x02")
    indexed(running)
    find = running.window.waiting.by_name
    assert names(find("order-1").rows) == ["soon", "timed", "level"]
    assert names(find(" order-2 ").rows) == ["timed"]
    assert names(find("key-level").rows) == ["level"]
    [row] = find("key-timed").rows
    assert (row.level, row.due_at_ms, row.keys) == (0, due, ("order-1", "order-2"))
    assert row.offset_id is not None
    assert find(row.offset_id).rows == (row,)
    assert find("nobody").rows == find("").rows == find("AB" * 16).rows == ()
    found = find("order-1", 2)
    assert (names(found.rows), found.truncated) == (["soon", "timed"], True)
    wait_for(lambda: b"soon" in bodies(running, TOPIC), "what was due")
    assert recall(running, b"timed", due).code == 0
    indexed(running)
    wait_for(lambda: names(find("order-1").rows) == ["level"], "only one waits")
    running.window.waiting_commands.run("drop", level=4)
    assert find("order-1").rows == ()


def test_a_test_message_with_a_time(running: RunningEngine) -> None:
    due = now_ms(running) + 1500
    sent = running.window.sender.send(TOPIC, b"test", queue_id=0, deliver_at_ms=due)
    assert sent.topic == "rmq_sys_wheel_timer"
    assert running.window.sender.send(TOPIC, b"at once", queue_id=0, deliver_at_ms=due - 60_000).topic == TOPIC
    for field, more in (("deliver_at_ms", {"delay_level": 1}), ("deliver_at_ms", {})):
        with pytest.raises(InvalidInput) as refused:
            running.window.sender.send(TOPIC, b"x", deliver_at_ms=due + 100 * 24 * HOUR_MS, **more)
        assert refused.value.field == field
    wait_for(lambda: b"test" in bodies(running, TOPIC), "its time has come")
    [record] = [record for record in stored(running, TOPIC) if record.body == b"test"]
    assert record.store_time_ms >= due


def test_by_a_filter_levels_and_times_alike(running: RunningEngine) -> None:
    due = now_ms(running) + HOUR_MS
    timed(running, b"timed", due)
    delay(running, b"level", 3)
    running.put("Other", b"x")
    timed(running, b"other", due, topic="Other")
    indexed(running)
    acts = [running.window.waiting_commands.run("deliver_now", topic=TOPIC)]
    while acts[-1].more:  # a search may end early on a busy machine
        acts.append(running.window.waiting_commands.run("deliver_now", topic=TOPIC))
    assert (sum(act.asked for act in acts), sum(act.done for act in acts)) == (2, 2)
    assert sorted(bodies(running, TOPIC)) == [b"first", b"level", b"timed"]
    assert names(page(running).rows) == ["other"]


def test_what_cannot_be_done(running: RunningEngine) -> None:
    due = now_ms(running) + HOUR_MS
    timed(running, b"timed", due)
    there = place(running, b"timed")
    window = running.window
    with pytest.raises(NotFound):
        window.waiting_commands.run("drop", [WaitingPlace(0, 99)])
    with pytest.raises(Conflict):
        window.waiting_commands.run("drop", [WaitingPlace(0, there.queue_offset, "another")])
    with pytest.raises(InvalidInput):
        window.waiting_commands.run("to_dead_letters", [there])
    claims = running.engine.broker.timers.claims
    assert claims.claim(f"{TOPIC}+key-timed", due - 1, "test") is Claim.YOURS
    with pytest.raises(Conflict):
        window.waiting_commands.run("deliver_now", [there])
    claims.release(f"{TOPIC}+key-timed", due - 1, 0)
    # A mark is no message.
    assert recall(running, b"timed", due).code == 0
    indexed(running)
    with pytest.raises(NotFound):
        window.waiting_commands.run("drop", [WaitingPlace(0, there.queue_offset + 1)])
    with pytest.raises(Conflict):
        window.waiting_commands.run("deliver_now", [there])
    assert bodies(running, TOPIC) == [b"first"]


def test_nobody_acts_twice_while_the_schedule_is_behind(running: RunningEngine) -> None:
    timed(running, b"timed", now_ms(running) + HOUR_MS)
    there = place(running, b"timed")
    delivery = running.engine.broker.timers.deliver
    delivery._take_in = lambda: False  # new ones do not reach it
    assert running.window.waiting_commands.run("deliver_now", [there]).done == 1
    with pytest.raises(Unavailable):
        running.window.waiting_commands.run("deliver_now", [there])
    del delivery._take_in
    with pytest.raises(Conflict):
        running.window.waiting_commands.run("deliver_now", [there])
    assert bodies(running, TOPIC) == [b"first", b"timed"]


def test_of_many_who_act_on_one_message_one_has_it(running: RunningEngine) -> None:
    due = now_ms(running) + HOUR_MS
    timed(running, b"timed", due)
    there = place(running, b"timed")
    done: list[int] = []

    def act(action: str) -> None:
        try:
            done.append(running.window.waiting_commands.run(action, [there]).done)
        except Conflict:
            done.append(0)

    threads = [threading.Thread(target=act, args=(action,)) for action in ["deliver_now"] * 4 + ["drop"] * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0] * 7 + [1]
    assert len(bodies(running, TOPIC)) <= 2
    assert page(running).rows == ()


@pytest.mark.parametrize("begin_ms", [-1, 1 << 63, 1 << 64, 1 << 200])
def test_a_beginning_that_is_no_time_is_refused(running: RunningEngine, begin_ms: int) -> None:
    with pytest.raises(InvalidInput):
        running.window.waiting.by_due(60_000, 4, begin_ms=begin_ms)


def test_acts_by_a_filter_go_on_behind_what_cannot_be_done(running: RunningEngine) -> None:
    """Otherwise the first refused ones would be tried again and again, and no others."""
    begin = now_ms(running) + HOUR_MS
    running.put("Gone", b"x")
    for n in range(12):
        timed(running, b"n%02d" % n, begin + n // 5, topic="Gone" if n % 3 == 0 else TOPIC)
    delay(running, b"level", 4)
    indexed(running)
    assert running._ours().ask(215, {"topic": "Gone"}).code == 0
    done: list[int] = []
    cursor = None
    for _ in range(10):
        act = running.window.waiting_commands.run("deliver_now", level=0, limit=3, cursor=cursor)
        done.append(act.done)
        assert act.more == (act.next_cursor is not None)
        cursor = act.next_cursor
        if cursor is None:
            break
    assert sum(done) == 8
    assert max(done) <= 2
    assert names(page(running).rows) == ["n00", "n03", "n06", "n09", "level"]
    with pytest.raises(InvalidInput):
        running.window.waiting_commands.run("drop", level=0, cursor="nonsense")
    other = running.window.waiting.page(limit=1).next_cursor
    with pytest.raises(InvalidInput):
        running.window.waiting_commands.run("drop", level=0, cursor=other)
    with pytest.raises(InvalidInput):
        running.window.waiting_commands.run("drop", [place(running, b"n00")], cursor=other)
