"""A topic is deleted, and made again, between the making of a waiting message's copy and its storing: slow disks and
refusals make that moment long. The message does not come into the next topic of its name."""

import pytest

from appliance.engine.broker.transactions.half import OF_DELETED
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.store.queues.flush_queues import TopicDeletion
from tests.engine.broker.delays.test_moving import Both, fill
from tests.support.clock import FakeClock
from tests.support.delays import TARGET
from tests.support.store import FailingDisk, StoreUnderTest

DAY_MS = 24 * 3_600_000


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def both(tmp_path, clock, monkeypatch):
    under_test = StoreUnderTest(tmp_path, segment_bytes=8192, disk=FailingDisk()).open()
    made = Both(under_test, clock)
    monkeypatch.setattr(made.delays, "saver_save", lambda: None, raising=False)
    yield made
    made.close()
    under_test.stop()


def delete(both):
    """What remoting-io does for a deletion; the topic is made again at once, the file has no note yet."""
    both.store.forget_topic(TopicDeletion(TARGET))


@pytest.mark.parametrize("kind", ["level", "time"])
def test_what_is_being_delivered_when_its_topic_is_deleted(both, kind):
    side = both.delays if kind == "level" else both.timers
    if kind == "level":
        both.delays.delay(1, b"old")
    else:
        both.timers.wait(b"old", 1000)
    both.pass_time(500)
    side.hold = True
    both.pass_time(1500)
    assert side.calls, "its copy is made"
    delete(both)
    side.hold = False
    side.run_calls()
    both.pass_time(3000)
    assert side.arrived() == []
    assert side.delivery.given_up["no topic"] == 1


def test_what_is_being_stored_once_more_when_its_topic_is_deleted(both, clock):
    both.timers.wait(b"old", 3 * DAY_MS)
    both.timers.rounds()
    fill(both)
    end = both.store.log.segments[0].end
    both.timers.roll.keep(end)
    both.timers.hold = True
    for _ in range(10):
        both.timers.roll.look_again()
        both.timers.roll.chore()
        both.timers.save()
    assert both.timers.calls, "its copy is made"
    delete(both)
    both.timers.hold = False
    both.timers.run_calls()
    for _ in range(10):
        both.timers.roll_on(10)
        clock.advance(1000)
    assert both.timers.roll.keep(end) is None
    [rolled] = both.under_test.records(TIMER_TOPIC, 0)[1:]
    assert OF_DELETED in rolled.properties
    both.pass_time(3 * DAY_MS + 10_000, DAY_MS // 4)
    assert both.timers.arrived() == []


def test_what_is_moved_while_the_note_of_its_topics_deletion_cannot_be_saved(both):
    """A full disk: files have to go, and the note waits for room. Here it is never saved, as no thread does it."""
    both.delays.delay(3, b"old")
    fill(both)
    delete(both)
    both.delays.delay(3, b"new")
    both.until_gone(both.store.log.segments[1].end)
    assert both.moves.moved == 1
    both.pass_time(3_700_000, 300_000)
    assert both.delays.arrived() == [b"new"]
