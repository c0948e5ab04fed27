"""A message that waits at a delay level when its log file must go is moved, and comes once and in time."""

import errno

import pytest

from appliance.engine.broker.delays.levels import Place, make_wait
from appliance.engine.broker.delays.moving import MoveDelayed
from appliance.engine.broker.delays.settled import NAME, Claim, How, Settled, SettledDelays, is_in_log
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.names import TIMER_TOPIC
from appliance.engine.protocol.properties import MAX_PROPERTIES_BYTES, MSG_REGION, encode_properties
from appliance.engine.store.retention.deleted_topics import Deletion
from tests.support.clock import FakeClock
from tests.support.delays import TARGET, Delays
from tests.support.store import FailingDisk, StoreUnderTest
from tests.support.timers import Timers

LEVELS_MS = (1000, 60_000, 3_600_000)


class Both:
    """Delay levels and timers over one store."""

    def __init__(self, under_test, clock):
        self.under_test, self.clock, self.store = under_test, clock, under_test.store
        self.settled = SettledDelays(under_test.store.paths.own / NAME, under_test.disk, lambda said: None)
        under_test.disk.make_directory(under_test.store.paths.own)
        self.settled.load(lambda one: is_in_log(one, under_test.store.records))
        self.timers = Timers(under_test, clock)
        self.delays = Delays(under_test, clock, self.settled, LEVELS_MS)
        run_calls = self.delays.run_calls

        def run_and_sync():
            run_calls()
            self.store.log.sync()

        self.delays.run_calls = run_and_sync
        self.delays.topics[TIMER_TOPIC] = new_topic(TIMER_TOPIC, 1, 6)
        self.moves = MoveDelayed(
            self.store,
            self.delays.appends,
            self.settled,
            self.delays.delivery,
            self.delays.topics.get,
            lambda group: new_topic(f"%DLQ%{group}", 1, 6),
            clock,
        )

    def pass_time(self, ms, step_ms=100):
        while ms > 0:
            self.clock.advance(min(ms, step_ms))
            ms -= step_ms
            self.delays.rounds(2)
            self.timers.rounds(2)
            self.store.log.sync()
            self.delays.saver_save()

    def until_gone(self, end):
        """Ask until nothing must be kept below `end`, as the cleaner does, then remove the files."""
        for _ in range(20):
            self.store.log.sync()
            if self.moves.keep(end) is None:
                break
            self.pass_time(500)
        assert self.moves.keep(end) is None
        self.store.log.remove_before(end)

    def close(self):
        self.timers.close()
        self.settled.close()
        self.moves.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def both(tmp_path, clock, monkeypatch, request):
    monkeypatch.setattr(Delays, "saver_save", lambda self: self.progress.save(), raising=False)
    under_test = StoreUnderTest(tmp_path, segment_bytes=getattr(request, "param", 8192), disk=FailingDisk()).open()
    both = Both(under_test, clock)
    yield both
    under_test.disk.failing.clear()
    both.close()
    under_test.stop()


def fill(both):
    for n in range(60):
        both.timers.put(b"%d" % n + b"." * 300, "", Place(TARGET, 1))
    both.store.log.sync()


def test_what_waits_at_a_level_does_not_go_with_its_log_file(both, clock):
    for level, body in ((3, b"hour"), (2, b"minute"), (3, b"hour too"), (1, b"second")):
        both.delays.delay(level, body)
    fill(both)
    both.until_gone(both.store.log.segments[1].end)
    assert both.moves.moved == 3
    both.pass_time(58_000, 5000)
    assert both.delays.arrived() == [b"second"]
    both.pass_time(4000, 500)
    assert both.delays.arrived() == [b"second", b"minute"]
    both.pass_time(3_600_000, 300_000)
    assert both.delays.arrived() == [b"second", b"minute", b"hour", b"hour too"]
    assert sum(both.delays.delivery.given_up.values()) == 0
    assert both.delays.delivery.waiting(3) == 0


def test_what_was_moved_after_its_topic_was_deleted_does_not_come_into_the_next_one(both, clock):
    deleted = both.store.files.deleted_topics
    both.delays.delay(3, b"old")
    deleted.remember([Deletion(TARGET, both.store.log.written, {})], 0)
    both.delays.delay(3, b"new")
    fill(both)
    both.until_gone(both.store.log.segments[1].end)
    assert both.moves.moved == 2
    deleted.remember([], both.store.log.min_offset)
    assert deleted.below(TARGET) == 0, "all records of the old topic have left the log"
    both.pass_time(3_700_000, 300_000)
    assert both.delays.arrived() == [b"new"]
    assert both.timers.delivery.given_up["no topic"] == 1


def test_what_is_moved_is_due_when_it_was_whatever_the_clock_was_set_to(both, clock):
    both.delays.delay(3, b"hour")
    both.pass_time(1000)
    clock.jump(-600_000)
    both.pass_time(1000)
    fill(both)
    both.until_gone(both.store.log.segments[1].end)
    both.pass_time(3_590_000, 100_000)
    assert both.delays.arrived() == []
    both.pass_time(15_000, 1000)
    assert both.delays.arrived() == [b"hour"]


@pytest.mark.parametrize("when", ["before it is stored", "after it"])
@pytest.mark.parametrize("step_ms", [600_000, -600_000])
def test_what_is_moved_while_the_clock_is_set_is_due_when_it_was(both, clock, monkeypatch, step_ms, when):
    both.delays.delay(3, b"hour")
    both.pass_time(1000)
    fill(both)
    submit = both.delays.appends.submit

    def submit_beside(messages, frees=False):
        if when == "before it is stored":
            clock.jump(step_ms)
        found = submit(messages, frees)
        if when == "after it":
            both.delays.run_calls()
            clock.jump(step_ms)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(both.delays.appends, "submit", submit_beside)
        assert both.moves.keep(both.store.log.segments[1].end) is None
    assert both.moves.moved == 1
    both.pass_time(3_590_000, 1000)
    assert both.delays.arrived() == []
    both.pass_time(12_000, 1000)
    assert both.delays.arrived() == [b"hour"]


def test_what_was_stored_a_moment_ago_is_moved_for_no_longer_than_it_waits(both, clock):
    """Its store time is that of the message before it, which was stored before the clock was set back."""
    both.timers.put(b"first", "", Place(TARGET, 1))
    clock.jump(-3_600_000)
    both.delays.delay(2, b"minute")
    fill(both)
    both.until_gone(both.store.log.segments[1].end)
    assert both.moves.moved == 1
    both.pass_time(62_000, 1000)
    assert both.delays.arrived() == [b"minute"]


def test_a_full_disk_keeps_no_file_for_what_waits_or_is_due(both, clock):
    both.delays.delay(1, b"due")
    both.delays.delay(3, b"hour")
    both.delays.rounds()
    fill(both)
    both.store.log.refuse("the broker's disk is full")
    both.pass_time(3000)
    assert both.delays.arrived() == []
    both.until_gone(both.store.log.segments[1].end)
    both.store.log.refuse(None)
    both.pass_time(5000)
    both.pass_time(3_600_000, 300_000)
    assert both.delays.arrived() == [b"due", b"hour"]


def test_what_was_moved_is_passed_at_once_though_its_file_stays_for_others(both, clock):
    """The next leader receives the progress of a level, but not which of its messages were settled."""
    both.delays.delay(3, b"hour")
    both.delays.delay(3, b"hour too")
    fill(both)
    both.delays.delay(3, b"in a file that stays")
    assert both.moves.keep(both.store.log.segments[1].end) is None
    both.pass_time(1000)
    assert both.delays.progress.durable_of(3) == 2
    [last] = both.under_test.records("SCHEDULE_TOPIC_XXXX", 2)[2:]
    assert both.settled.claim(3, 2) is Claim.YOURS
    both.settled.settle([Settled(3, 2, last.physical_offset, last.store_time_ms, How.DROPPED)])
    both.pass_time(1000)
    assert both.settled.claim(3, 2) is Claim.SETTLED
    assert both.delays.progress.durable_of(3) == 2


def test_what_cannot_be_moved_keeps_its_file(both, clock):
    both.delays.delay(3, b"hour")
    fill(both)
    del both.delays.topics[TIMER_TOPIC]
    assert both.moves.keep(both.store.log.segments[1].end) is not None
    both.under_test.disk.failing["pread"] = errno.EIO
    assert both.moves.keep(both.store.log.segments[1].end) is not None


@pytest.mark.parametrize("both", [65_536], indirect=True)
@pytest.mark.parametrize("less", [0, 17, 18, 50])
def test_what_has_as_many_properties_as_there_may_be_is_moved(both, clock, less):
    found = {MSG_REGION: "DefaultRegion"}
    make_wait(found, 3, Place(TARGET, 0))
    text = encode_properties(found)
    both.delays.put_waiting(3, b"hour", f"a\x01{'x' * (MAX_PROPERTIES_BYTES - len(text) - 3 - less)}\x02{text}")
    for _ in range(3):
        fill(both)
    both.until_gone(both.store.log.segments[1].end)
    both.pass_time(3_700_000, 300_000)
    assert both.delays.arrived() == [b"hour"]
