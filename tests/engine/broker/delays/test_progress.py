"""`delayOffset.json`: written as Apache does, never ahead of what is durable, never far behind what was delivered."""

import errno
import json

import pytest

from appliance.engine.broker.delays.progress import SAVE_AFTER_S, DelayProgress, SaveDelays
from appliance.engine.broker.delays.settled import NAME as SETTLED_DELAYS
from appliance.engine.broker.delays.settled import Claim, SettledDelays
from appliance.engine.disk import Disk
from appliance.engine.errors import StartError
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from tests.support.clock import FakeClock
from tests.support.delays import Delays
from tests.support.golden import extract_store
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for


class Log:
    durable = 0


class Files(Disk):
    failing = False
    saves = 0

    def fsync(self, fd):
        if self.failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.saves += 1
        super().fsync(fd)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "delayOffset.json"


def open_progress(path, clock, log, files=None):
    return DelayProgress(path, lambda: log.durable, clock, files or Disk())


def offsets_in(path):
    text = path.read_text()
    table = text[text.index('"offsetTable":{') + 15 :].split("\n")[0].rstrip("}")
    return {int(level): int(offset) for level, offset in (pair.split(":") for pair in table.split(",") if pair)}


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_the_file_of_apache_is_read_and_written_as_it_is(version, tmp_path, clock):
    extract_store(version, "mixed", tmp_path)
    path = tmp_path / "store" / "config" / "delayOffset.json"
    before = path.read_bytes()
    log = Log()
    progress = open_progress(path, clock, log)
    assert progress.of(1) == 7
    progress.reached(1, 8, 10)
    log.durable = 11
    assert progress.save()
    after = path.read_bytes()
    if version == "5.3.3":
        assert after == before.replace(b"{1:7,16:0", b"{1:8,16:0")
    else:  # which has no version
        assert after.partition(b',\n\t"offsetTable":')[2] == before.partition(b'"offsetTable":')[2].replace(b"7", b"8")
    assert path.with_name("delayOffset.json.bak").read_bytes() == before


def test_a_copy_that_is_not_durable_is_not_saved(path, clock):
    log = Log()
    progress = open_progress(path, clock, log)
    progress.reached(1, 5, 1000)
    progress.reached(1, 9, 2000)
    assert progress.of(1) == 9
    assert not progress.save()
    assert not path.exists()
    log.durable = 1500
    assert not progress.save()
    assert offsets_in(path) == {1: 5}
    log.durable = 2000  # where the copy begins, it does not end
    assert not progress.save()
    log.durable = 2400
    assert progress.save()
    assert offsets_in(path) == {1: 9}


def test_what_was_given_up_does_not_pass_what_was_stored_before(path, clock):
    log = Log()
    progress = open_progress(path, clock, log)
    progress.reached(1, 5, 1000)
    progress.reached(1, 6, -1)
    progress.reached(2, 3, -1)
    progress.save()
    assert offsets_in(path) == {2: 3}
    log.durable = 1001
    progress.save()
    assert offsets_in(path) == {1: 6, 2: 3}


def test_many_steps_that_are_not_durable_are_kept_in_bounds(path, clock):
    log = Log()
    progress = open_progress(path, clock, log)
    for n in range(1, 5000):
        progress.reached(1, n, n * 100)
    assert len(progress._steps[1]) <= 1000
    log.durable = 3000 * 100
    progress.save()
    assert offsets_in(path)[1] < 3000
    log.durable = 5000 * 100
    progress.save()
    assert offsets_in(path) == {1: 4999}


def test_nothing_is_written_when_nothing_moved(path, clock):
    log, files = Log(), Files()
    progress = open_progress(path, clock, log, files)
    progress.reached(1, 1, -1)
    progress.save()
    saves = files.saves
    for _ in range(10):
        assert progress.save()
    assert files.saves == saves


def test_a_save_that_fails_is_told_of_and_tried_again(path, clock, caplog):
    log, files = Log(), Files()
    progress = open_progress(path, clock, log, files)
    saver = SaveDelays(progress, clock)
    files.failing = True
    progress.reached(3, 1, -1)
    saver.save_now()
    saver.save_now()
    assert "No space left" in str(saver.failure)
    assert caplog.text.count("cannot be saved") == 1
    assert progress.unsaved_s is not None
    files.failing = False
    saver.save_now()
    assert saver.failure is None
    assert offsets_in(path) == {3: 1}
    assert progress.unsaved_s is None


def test_the_version_moves_with_every_200_deliveries_as_apaches(path, clock):
    log = Log()
    progress = open_progress(path, clock, log)
    progress.reached(1, 199, -1)
    progress.save()
    assert progress.data_version.counter == 0
    progress.reached(1, 250, -1)
    progress.save()
    assert progress.data_version.counter == 1
    assert open_progress(path, clock, log).data_version == progress.data_version


@pytest.mark.parametrize(
    "text",
    ['{"offsetTable":{"one":1}}', '{"offsetTable":{"1":"x"}}', '{"offsetTable":[1]}', "[]", '{"offsetTable":{0:1}}'],
)
def test_a_file_that_holds_something_else_ends_the_start(path, clock, text):
    path.write_text(text)
    with pytest.raises(StartError, match="delayOffset"):
        open_progress(path, clock, Log())


def test_a_damaged_file_is_replaced_by_its_backup(path, clock):
    path.write_text('{"offsetTable":{1:7')
    path.with_name("delayOffset.json.bak").write_text('{"offsetTable":{1:5}}')
    assert open_progress(path, clock, Log()).of(1) == 5


# --- with a delivery


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    yield under_test
    under_test.stop()


@pytest.mark.parametrize(("saved", "delivered"), [(-3, [b"0", b"1", b"2"]), (2, [b"2"]), (50, [])])
def test_an_offset_outside_its_queue_is_moved_to_the_nearer_end(under_test, clock, saved, delivered):
    first = Delays(under_test, clock)
    for n in range(3):
        first.delay(1, b"%d" % n)
    first.path.write_text(json.dumps({"offsetTable": {"1": saved}}))
    delays = Delays(under_test, clock)
    delays.pass_time(1500)
    assert delays.arrived() == delivered
    delays.durable = lambda: under_test.store.log.written
    delays.saver.save_now()
    assert offsets_in(delays.path) == {1: 3}
    delays.delay(1, b"new")
    delays.pass_time(1500)
    assert delays.arrived() == [*delivered, b"new"]


def test_in_async_flush_a_published_copy_is_not_progress(under_test, clock):
    """The file must only count messages that survive a power cut."""
    delays = Delays(under_test, clock)
    delays.delay(1, b"x")
    durable = under_test.store.log.written
    delays.durable = lambda: durable
    delays.pass_time(1500)
    assert delays.arrived() == [b"x"]
    delays.saver.save_now()
    assert not delays.path.exists()
    assert delays.delivery.delivered_to(1) == 1


def test_a_second_life_goes_on_where_the_first_one_was(under_test, clock):
    first = Delays(under_test, clock)
    for n in range(3):
        first.delay(1, b"%d" % n)
    first.pass_time(1500)
    first.durable = lambda: under_test.store.log.written
    first.saver.save_now()
    assert under_test.store.max_offset(SCHEDULE_TOPIC, 0) == 3
    second = Delays(under_test, clock)
    second.delay(1, b"3")
    second.pass_time(1500)
    assert second.arrived() == [b"0", b"1", b"2", b"3"]


def test_the_thread_sleeps_until_there_is_something_to_save_and_saves_within_its_time(path):
    log = Log()
    progress = DelayProgress(path, lambda: log.durable)
    saver = SaveDelays(progress)
    saver.start()
    try:
        progress.reached(1, 1, 5)
        wait_for(lambda: progress.unsaved_s is not None and progress.unsaved_s > SAVE_AFTER_S, "it is old enough")
        assert not path.exists()
        log.durable = 6
        wait_for(path.exists, "it is saved")
        wait_for(lambda: progress.unsaved_s is None, "all is saved")
    finally:
        saver.stop()


@pytest.mark.parametrize("there", [0, 2])
def test_a_file_of_another_store_hides_no_message_that_comes_now(under_test, clock, there):
    """A message that was not there when the broker started cannot have been delivered, whatever the file says."""
    first = Delays(under_test, clock)
    for number in range(there):
        first.delay(1, b"before %d" % number)
    first.path.write_text('{"offsetTable":{1:1000,2:-3}}')
    settled = SettledDelays(under_test.directory / SETTLED_DELAYS, under_test.store.disk, lambda reason: None)
    delays = Delays(under_test, clock, settled)
    delays.delay(1, b"first")
    delays.delay(2, b"second")
    assert delays.delivery.waiting(1) == 1
    assert settled.claim(1, there) is Claim.YOURS
    settled.release(1, [there])
    delays.pass_time(5100)
    assert delays.arrived() == [b"first", b"second"]
    delays.durable = lambda: under_test.store.log.written
    delays.saver.save_now()
    assert offsets_in(delays.path) == {1: there + 1, 2: 1}
