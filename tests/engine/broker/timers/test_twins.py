"""Two messages with one unique key, topic and time, as from a Java `Message` that is sent twice: both were
acknowledged, and an act on one does not touch the other."""

import pytest

from appliance.engine.broker.delays.early_batch import Chosen, Fate
from appliance.engine.broker.delays.settled import How
from appliance.engine.broker.timers.early import EarlyTimerActs
from appliance.engine.broker.timers.recall import mark_of
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.store.queues.consume_queue import unpack_entries
from tests.support.timers import TARGET, Timers

DAY_MS = 86_400_000


def twins(timers, due_ms, *bodies):
    for body in bodies:
        timers.send(body, f"UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x01{due_ms}\x02")
    timers.rounds()


def recall(timers, due_ms):
    mark = mark_of(TARGET, "K", due_ms - 1, timers.clock.wall_ms())
    timers.put(mark.body, mark.properties)
    timers.rounds()


def roll(timers):
    timers.roll.keep(timers.store.log.written)
    timers.roll_on(20)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("is_index_lost", [False, True])
def test_a_timer_with_the_key_of_another_is_kept_when_that_is_rolled(timers, clock, times, is_index_lost):
    due_ms = clock.wall_ms() + DAY_MS
    twins(timers, due_ms, b"one", b"two")
    for _ in range(times):
        roll(timers)
    twins(timers, due_ms, b"three")
    roll(timers)
    timers.save()
    timers.close()
    if is_index_lost:
        (timers.directory / "state").unlink()
    timers = Timers(timers.under_test, clock)
    timers.pass_time(2 * DAY_MS, DAY_MS // 4)
    timers.rounds(5)
    assert sorted(timers.arrived()) == [b"one", b"three", b"two"]


def acts_on(timers):
    return EarlyTimerActs(
        timers.store,
        timers.appends,
        timers.delivery,
        timers.topics.get,
        timers.clock,
        lambda: timers.rounds(1),
    )


def chosen(timers, *offsets):
    queue = timers.store.find_queue(TIMER_TOPIC, 0)
    found = []
    for offset in offsets:
        [(physical, size, _)] = unpack_entries(timers.store.queues.read_entries(queue, offset, 1))
        found.append(Chosen(0, offset, physical, size))
    return found


@pytest.mark.parametrize("how", [How.DELIVERED, How.DROPPED])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_timer_with_the_key_of_another_comes_when_that_is_handled_early(timers, clock, how, is_rolled):
    due_ms = clock.wall_ms() + 60_000
    twins(timers, due_ms, b"one", b"two")
    offset = 0
    if is_rolled:
        roll(timers)
        offset = 2
    timers.store.log.sync()
    acts = acts_on(timers)
    timers.store.log.sync()
    [ended] = acts.act(how, chosen(timers, offset))
    assert ended.fate in (Fate.DONE, Fate.UNSURE)
    if is_rolled:
        roll(timers)
    timers.pass_time(120_000, 10_000)
    assert sorted(timers.arrived()) == ([b"one", b"two"] if how is How.DELIVERED else [b"two"])


def test_both_of_one_key_are_handled_in_one_act(timers, clock):
    twins(timers, clock.wall_ms() + 60_000, b"one", b"two")
    timers.store.log.sync()
    ended = acts_on(timers).act(How.DROPPED, chosen(timers, 0, 1))
    assert {one.fate for one in ended} <= {Fate.DONE, Fate.UNSURE}
    timers.pass_time(120_000, 10_000)
    assert timers.arrived() == []


def test_a_recall_takes_back_all_of_the_key_that_were_there_and_none_that_came_later(timers, clock):
    due_ms = clock.wall_ms() + DAY_MS
    twins(timers, due_ms, b"one", b"two")
    recall(timers, due_ms)
    twins(timers, due_ms, b"sent again")
    roll(timers)
    roll(timers)
    timers.pass_time(2 * DAY_MS, DAY_MS // 4)
    assert timers.arrived() == [b"sent again"]


def test_what_only_a_broker_may_say_is_not_believed_of_a_client(timers, clock):
    due_ms = clock.wall_ms() + 5000
    twins(timers, due_ms, b"one")
    timers.send(
        b"evil",
        f"UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x01{due_ms}\x02TIMER_ROLL_TIMES\x017\x02TIMER_ENQUEUE_MS\x019999999999999\x02"
        "ROCKETBOX_TIMER_FIRST\x010:0:0\x02ROCKETBOX_TIMER_OF\x010\x02TIMER_DEQUEUE_MS\x011\x02",
    )
    timers.pass_time(7000)
    assert timers.arrived() == [b"one", b"evil"]
    stored = decode_properties(timers.under_test.records(TIMER_TOPIC, 0)[1].properties)
    assert not {name for name in stored if name.startswith("ROCKETBOX_TIMER") or name == "TIMER_ROLL_TIMES"}


def old_copy(timers, record, times):
    """Store a copy as earlier versions and Apache do: it does not name its original."""
    found = decode_properties(record.properties) | {
        "TIMER_ROLL_TIMES": str(times),
        "TIMER_ENQUEUE_MS": str(record.store_time_ms),
        "TIMER_DEQUEUE_MS": str(timers.clock.wall_ms()),
    }
    timers.put(record.body, encode_properties(found))


@pytest.mark.parametrize("is_rolled_again", [False, True])
def test_old_copies_take_the_place_of_what_they_are_copies_of(timers, clock, is_rolled_again):
    due_ms = clock.wall_ms() + DAY_MS
    twins(timers, due_ms, b"one")
    clock.advance(1000)
    twins(timers, due_ms, b"two")
    clock.advance(1000)
    for record in timers.under_test.records(TIMER_TOPIC, 0):
        old_copy(timers, record, 1)
    clock.advance(1000)
    twins(timers, due_ms, b"three")
    if is_rolled_again:
        roll(timers)
        roll(timers)
    timers.pass_time(2 * DAY_MS, DAY_MS // 4)
    assert sorted(timers.arrived()) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("is_rolled_again", [False, True])
def test_an_old_copy_that_was_recalled_before_it_was_made_stays_so(timers, clock, is_rolled_again):
    due_ms = clock.wall_ms() + DAY_MS
    twins(timers, due_ms, b"one")
    recall(timers, due_ms)
    clock.advance(1000)
    old_copy(timers, timers.under_test.records(TIMER_TOPIC, 0)[0], 1)
    timers.rounds()
    if is_rolled_again:
        roll(timers)
        roll(timers)
    timers.pass_time(2 * DAY_MS, DAY_MS // 4)
    assert timers.arrived() == []
