"""Delayed messages come when due, in order, once, and whole; one that cannot be delivered does not block the others."""

import errno

import pytest

from appliance.engine.broker.delays import delivery as delivery_module
from appliance.engine.broker.delays.settled import NAME as SETTLED_DELAYS
from appliance.engine.broker.delays.settled import Claim, How, Settled, SettledDelays
from appliance.engine.disk import Disk
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.message_id import decode_host
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC, tag_code
from appliance.engine.store.queues.consume_queue import unpack_entries
from tests.support.clock import FakeClock
from tests.support.delays import TARGET, Delays
from tests.support.store import BORN, FailingDisk, StoreUnderTest


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path, disk=FailingDisk()).open()
    yield under_test
    under_test.disk.failing.clear()
    under_test.stop()


@pytest.fixture
def delays(under_test, clock):
    return Delays(under_test, clock)


def test_a_message_comes_when_its_delay_has_passed_and_not_before(delays):
    delays.delay(1, b"x", queue_id=2)
    delays.pass_time(999)
    assert delays.arrived(2) == []
    delays.pass_time(1)
    assert delays.arrived(2) == [b"x"]
    delays.pass_time(5000)
    assert delays.arrived(2) == [b"x"]


def test_the_pause_ends_when_the_next_message_is_due(delays, clock):
    delays.delay(1, b"x")
    assert delays.rounds() <= 0.9
    clock.advance(700)
    delays.rounds()
    assert delays.rounds() == pytest.approx(0.3)
    clock.advance(300)
    assert delays.delivery.round() > 0.3
    assert delays.arrived() == [b"x"]


def test_the_copy_is_what_was_sent(delays, under_test):
    properties = "TAGS\x01A\x02KEYS\x01k\x02UNIQ_KEY\x017F01\x02"
    delays.delay(1, b"body", properties=properties)
    [waiting] = under_test.records(SCHEDULE_TOPIC, 0)
    delays.pass_time(1100)
    [copy] = under_test.records(TARGET, 0)
    assert copy.properties == waiting.properties.replace("DELAY\x011\x02", "") != waiting.properties
    found = decode_properties(copy.properties)
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["TAGS"]) == (TARGET, "0", "A")
    assert copy.body == b"body"
    assert (copy.born_time_ms, copy.born_host) == (waiting.born_time_ms, decode_host(BORN))
    assert (copy.flag, copy.sys_flag, copy.reconsume_times) == (
        waiting.flag, waiting.sys_flag, waiting.reconsume_times,
    )  # fmt: skip
    queue = under_test.store.find_queue(TARGET, 0)
    [(_, _, code)] = unpack_entries(under_test.store.queues.read_entries(queue, 0, 1))
    assert code == tag_code("A")


def test_levels_do_not_wait_for_each_other(delays):
    delays.delay(2, b"late")
    delays.delay(1, b"soon")
    delays.pass_time(1100)
    assert delays.arrived() == [b"soon"]
    delays.pass_time(4000)
    assert delays.arrived() == [b"soon", b"late"]


def test_many_come_in_order_batch_by_batch(delays, monkeypatch):
    monkeypatch.setattr(delivery_module, "MOST_BYTES", 5000)
    bodies = [b"%d" % n + b"x" * (400 if n % 50 == 0 else 3) for n in range(700)]
    for body in bodies:
        delays.delay(1, body)
    delays.pass_time(1500)
    delays.rounds(300)
    assert delays.arrived() == bodies
    assert delays.delivery.delivered == 700
    assert delays.delivery.waiting(1) == 0


def test_one_batch_of_a_level_is_under_way_at_a_time(delays):
    for n in range(3):
        delays.delay(1, b"%d" % n)
        delays.delay(2, b"%d" % n)
    delays.hold = True
    delays.clock.advance(500)
    delays.rounds()
    delays.clock.advance(6000)
    delays.rounds()
    assert len(delays.calls) == 2, "one of each level"
    delays.delay(1, b"more")
    delays.clock.advance(1100)
    delays.rounds()
    assert len(delays.calls) == 2
    assert delays.delivery.delivered_to(1) == 0
    assert delays.delivery.position(1) == 3
    delays.hold = False
    delays.run_calls()
    delays.rounds()
    assert delays.arrived().count(b"1") == 2
    assert delays.arrived()[-1] == b"more"
    assert delays.delivery.delivered_to(1) == 4


@pytest.fixture
def settled(tmp_path):
    return SettledDelays(tmp_path / SETTLED_DELAYS, Disk(tmp_path), pytest.fail)


def settle(settled, *entries):
    for level, offset in entries:
        assert settled.claim(level, offset) is Claim.YOURS
        settled.settle([Settled(level, offset, 0, 0, How.DROPPED)])


def test_what_an_operator_settled_is_not_delivered(under_test, clock, settled):
    settle(settled, (1, 1), (1, 3), (2, 0))
    delays = Delays(under_test, clock, settled)
    for body in (b"a", b"b", b"c", b"d"):
        delays.delay(1, body)
    delays.delay(2, b"e")
    assert (delays.delivery.waiting(1), delays.delivery.waiting(2)) == (2, 0)
    assert delays.delivery.levels() == [1, 2]
    delays.pass_time(6000)
    assert delays.arrived() == [b"a", b"c"]
    assert (delays.delivery.delivered_to(1), delays.delivery.delivered_to(2)) == (4, 1)
    assert (settled.between(1, 0, 9), settled.between(2, 0, 9)) == (2, 1), "until the progress is saved"
    delays.durable = lambda: under_test.store.log.written
    delays.saver.save_now()
    assert (settled.between(1, 0, 9), settled.between(2, 0, 9)) == (0, 0)


def test_nothing_passes_a_message_that_somebody_acts_on(under_test, clock, settled):
    delays = Delays(under_test, clock, settled)
    for body in (b"a", b"b", b"c"):
        delays.delay(1, body)
    assert settled.claim(1, 1) is Claim.YOURS
    delays.pass_time(6000)
    assert delays.arrived() == [b"a"]
    assert delays.delivery.delivered_to(1) == 1
    assert settled.claim(1, 0) is Claim.DELIVERED
    settled.release(1, [1])
    delays.pass_time(100)
    assert delays.arrived() == [b"a", b"b", b"c"]
    assert settled.claim(1, 2) is Claim.DELIVERED


# --- what cannot be delivered


def give_ups(delays):
    return {reason: count for reason, count in delays.delivery.given_up.items() if count}


def test_a_topic_that_is_gone_holds_nobody_up(delays, caplog):
    delays.delay(1, b"gone", topic="Gone")
    delays.delay(1, b"next")
    delays.pass_time(1200)
    assert delays.arrived() == [b"next"]
    assert give_ups(delays) == {"no topic": 1}
    assert "given up level=1 queue_offset=0" in caplog.text


def test_a_queue_that_is_gone_is_another_one_of_the_topic(delays):
    delays.delay(1, b"far", queue_id=7)
    delays.delay(1, b"far too", queue_id=7)
    delays.pass_time(1200)
    assert delays.arrived(3) == [b"far", b"far too"]
    assert give_ups(delays) == {}


def test_a_half_message_is_discarded_as_apache_does(delays):
    delays.delay(1, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    delays.delay(1, b"next")
    delays.pass_time(1200)
    assert delays.arrived() == [b"next"]
    assert give_ups(delays) == {"transaction": 1}


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x011\x02",
        "DELAY\x011\x02REAL_TOPIC\x01Orders\x02",
        "DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x01zero\x02",
        "DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x01--5\x02",
        f"DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x01{'9' * 5000}\x02",
        f"DELAY\x011\x02REAL_TOPIC\x01{SCHEDULE_TOPIC}\x02REAL_QID\x010\x02",
    ],
)
def test_one_that_says_not_where_it_is_to_go_is_given_up(delays, properties):
    delays.put_waiting(1, b"lost", properties)
    delays.delay(1, b"next")
    delays.pass_time(1200)
    assert delays.arrived() == [b"next"]
    assert give_ups(delays) == {"damaged": 1}


def test_a_damaged_record_is_given_up_and_no_altered_copy_is_made(delays, under_test):
    delays.delay(1, b"damaged body")
    delays.delay(1, b"next")
    [first, _] = under_test.records(SCHEDULE_TOPIC, 0)
    log = under_test.directory / "store" / "commitlog" / "00000000000000000000"
    data = bytearray(log.read_bytes())
    at = data.index(b"damaged body", first.physical_offset)
    data[at] ^= 1
    with log.open("r+b") as file:
        file.write(data)
    delays.pass_time(1200)
    assert delays.arrived() == [b"next"]
    assert give_ups(delays) == {"damaged": 1}


def test_a_message_that_is_refused_each_time_is_given_up_after_three_tries(delays, monkeypatch):
    delays.delay(1, b"a")
    delays.delay(1, b"b")
    delays.delay(1, b"c")
    refuse_when_staged(delays, monkeypatch, b"b", ResponseCode.MESSAGE_ILLEGAL)
    delays.pass_time(3000)
    assert delays.arrived() == [b"a", b"c"], "each once"
    assert give_ups(delays) == {"refused": 1}
    assert delays.delivery.delivered_to(1) == 3


def test_a_message_refused_for_the_moment_comes_later_and_what_was_stored_behind_it_comes_once(delays, monkeypatch):
    for body in (b"a", b"b", b"c"):
        delays.delay(1, body)
    mend = refuse_when_staged(delays, monkeypatch, b"b", ResponseCode.SERVICE_NOT_AVAILABLE)
    delays.pass_time(5000)
    assert delays.arrived() == [b"a", b"c"]
    assert delays.delivery.delivered_to(1) == 1
    assert delays.delivery.failure == "level 1: not now"
    mend()
    delays.pass_time(1200)
    assert delays.arrived() == [b"a", b"c", b"b"]
    assert delays.delivery.delivered_to(1) == 3
    assert delays.delivery.failure is None


def refuse_when_staged(delays, monkeypatch, body, code):
    """Return a function that ends the refusals."""
    from appliance.engine.broker.sending.outcome import refused

    put = delays.appends.put
    refusing = [True]

    def maybe(message, reply_to):
        if message.body == body and refusing:
            reply_to.put_ended(refused(code, "not now"))
        else:
            put(message, reply_to)

    monkeypatch.setattr(delays.appends, "put", maybe)
    return refusing.clear


def test_a_batch_of_which_nobody_knows_is_tried_again(delays, monkeypatch):
    for body in (b"a", b"b", b"c"):
        delays.delay(1, body)
    put = delays.appends.put

    def breaks(message, reply_to):
        if message.body == b"b":
            raise RuntimeError("a defect")
        put(message, reply_to)

    monkeypatch.setattr(delays.appends, "put", breaks)
    call_soon = delays._call_soon

    def guarded(call):
        def run():
            try:
                call()
            except RuntimeError:  # the loop logs it
                pass

        call_soon(run)

    delays.appends._call_soon = guarded
    delays.pass_time(4000)
    assert delays.arrived()[-1] == b"c"
    assert give_ups(delays) == {"refused": 1}
    assert delays.delivery.delivered_to(1) == 3


def test_too_many_batches_are_waited_for(delays, monkeypatch):
    delays.delay(1, b"x")
    monkeypatch.setattr("appliance.engine.broker.sending.own_appends.PENDING_LIMIT", 0)
    delays.pass_time(1100)
    assert 0 < delays.rounds() < 0.02
    monkeypatch.undo()
    delays.pass_time(20, step_ms=10)
    assert delays.arrived() == [b"x"]
    assert give_ups(delays) == {}


def test_a_disk_that_cannot_be_read_is_waited_for(delays, under_test):
    delays.delay(1, b"a")
    delays.delay(1, b"b")
    delays.pass_time(500)
    under_test.disk.failing["pread"] = errno.EIO
    delays.pass_time(200_000, step_ms=5000)
    assert delays.arrived_so_far() == 0
    assert delays.delivery.failure is not None
    under_test.disk.failing.clear()
    delays.pass_time(1500)
    assert delays.arrived() == [b"a", b"b"]
    assert delays.delivery.failure is None
    assert give_ups(delays) == {}


def test_one_place_that_cannot_be_read_is_given_up_after_a_minute(delays, under_test, monkeypatch):
    delays.delay(1, b"a")
    delays.delay(1, b"b")
    [first, _] = under_test.records(SCHEDULE_TOPIC, 0)
    read = under_test.store.log.read

    def bad_sector(offset, size):
        if offset == first.physical_offset:
            raise OSError(errno.EIO, "EIO")
        return read(offset, size)

    monkeypatch.setattr(under_test.store.log, "read", bad_sector)
    delays.pass_time(59_000, step_ms=1000)
    assert delays.arrived() == []
    delays.pass_time(5000, step_ms=1000)
    assert delays.arrived() == [b"b"]
    assert give_ups(delays) == {"damaged": 1}


def test_what_expired_before_it_was_due_is_counted(delays, under_test, caplog):
    for n in range(5):
        delays.delay(1, b"%d" % n)
    under_test.store.find_queue(SCHEDULE_TOPIC, 0).min_offset = 3
    delays.pass_time(1200)
    assert delays.arrived() == [b"3", b"4"]
    assert give_ups(delays) == {"expired": 3}
    assert "first=0 last=2" in caplog.text


def test_what_was_handled_at_the_front_is_known_as_handled_until_it_is_due(under_test, clock, settled):
    delays = Delays(under_test, clock, settled)
    for n in range(3):
        delays.delay(1, b"%d" % n)
    settle(settled, (1, 0), (1, 1))
    delays.pass_time(500)
    delays.progress.save()
    assert settled.claim(1, 0) is Claim.SETTLED
    assert delays.delivery.delivered_to(1) == 0
    delays.pass_time(700)
    assert delays.arrived() == [b"2"]


def test_what_was_handled_before_it_expired_is_no_loss(under_test, clock, settled, caplog):
    delays = Delays(under_test, clock, settled)
    for n in range(5):
        delays.delay(1, b"%d" % n)
    settle(settled, (1, 0), (1, 1))
    delays.pass_time(100)
    queue = under_test.store.find_queue(SCHEDULE_TOPIC, 0)
    queue.min_offset = 2
    delays.pass_time(100)
    assert (delays.delivery.delivered_to(1), give_ups(delays)) == (2, {})
    assert "expired" not in caplog.text
    settle(settled, (1, 3))
    queue.min_offset = 4
    delays.pass_time(1200)
    assert (delays.arrived(), give_ups(delays)) == ([b"4"], {"expired": 1})
    assert "first=2 last=3 lost=1" in caplog.text


def test_a_broken_log_is_looked_at_once_a_second(delays, under_test):
    delays.delay(1, b"x")
    delays.clock.advance(500)
    delays.rounds()
    under_test.disk.failing["pwrite"] = errno.EIO
    delays.clock.advance(600)
    assert delays.rounds() == 1.0
    assert delays.delivery.delivered_to(1) == 0
    assert give_ups(delays) == {}


# --- levels


def test_messages_of_a_level_that_is_not_configured_any_more_come_too(under_test, clock):
    Delays(under_test, clock).delay(2, b"x")
    delays = Delays(under_test, clock, levels_ms=(1000,))
    delays.pass_time(4900)
    assert delays.arrived() == []
    delays.pass_time(200)
    assert delays.arrived() == [b"x"]


def test_a_level_without_delay_is_delivered_within_a_moment(under_test, clock):
    delays = Delays(under_test, clock, levels_ms=(0,))
    delays.delay(1, b"x")
    delays.pass_time(300)
    assert delays.arrived() == [b"x"]


def test_a_level_that_comes_to_be_is_found(delays):
    assert delays.rounds() <= 0.9
    assert delays.delivery.levels() == []
    delays.delay(2, b"x")
    assert delays.delivery.levels() == [2]
    assert delays.delivery.offsets() == {2: (0, 1)}
    delays.pass_time(5100)
    assert delays.delivery.offsets() == {2: (1, 1)}


def test_what_waits_costs_nothing_but_its_entry(delays, monkeypatch):
    for n in range(500):
        delays.delay(2, b"%d" % n)
    delays.pass_time(1000)
    reads = []
    read = delays.store.queues.read_entries
    monkeypatch.setattr(delays.store.queues, "read_entries", lambda *args: reads.append(args[2]) or read(*args))
    delays.rounds(100)
    assert reads == []
