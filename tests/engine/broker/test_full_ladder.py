"""Hours of waiting in a whole engine whose clock the test moves: the sixteen retries of the default levels, and a wall
clock that is set while messages wait."""

from contextlib import closing

import pytest

from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.protocol.properties import decode_properties
from tests.support.engine import ROOMY, Peer, pull_fields, queue_entry, records, send_fields
from tests.support.figures import SkippingClock
from tests.support.waiting import wait_for

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
S, M, H = 1000, 60_000, 3_600_000
#: Waiting time of a group's message before each retry: levels 3 to 18.
LADDER = [10 * S, 30 * S, *(minutes * M for minutes in range(1, 11)), 20 * M, 30 * M, 1 * H, 2 * H]
#: Allowance for the machine to deliver a due message; the clock goes on by itself meanwhile.
LATE_MS = 3000
#: A little more than the time between two looks at the queues.
LOOK_MS = 1500


class Ladder:
    """An engine from which messages are pulled one at a time. Each request has a connection of its own: idle ones are
    closed over hours."""

    def __init__(self, data_dir, clock):
        self.clock = clock
        store = StoreConfig(**ROOMY, mapped_file_size_commit_log=8 << 20)
        config = EngineConfig(
            data_dir=data_dir, broker_port=0, namesrv_port=0, broker=BrokerConfig(broker_name="broker-a"), store=store
        )
        self.engine = Engine(config, clock=clock)
        self.engine.start()

    def ask(self, code, fields, body=b""):
        with closing(Peer(self.engine.broker_address)) as peer:
            return peer.ask(code, fields, body)

    def stored(self, topic, queue=0, offset=0):
        answer = self.ask(11, pull_fields(topic, queue, offset))
        return records(answer.body) if answer.code == 0 else []

    def send(self, body, level=0):
        delay = f"DELAY\x01{level}\x02" if level else ""
        assert self.ask(310, send_fields("Orders", 0, delay), body).code == 0

    def send_back(self, record, limit=16):
        fields = {
            "offset": record.physical_offset, "group": "CG", "delayLevel": 0, "originMsgId": "x",
            "originTopic": "Orders", "unitMode": "false", "maxReconsumeTimes": limit,
        }  # fmt: skip
        assert self.ask(36, fields).code == 0

    def waiting(self, level):
        """Return (the last record waiting at a level, its due time by its entry)."""
        store = self.engine.broker.store
        last = store.find_queue(SCHEDULE, level - 1).max_offset - 1
        physical, _, due_ms = queue_entry(self.engine, SCHEDULE, level - 1, last)
        return store.records.get(physical).record, due_ms

    def deliver(self):
        """Wake the delivery, which does not notice that the test moved the clock."""
        self.engine.broker.delays.deliver.wakeup()

    def arrives(self, topic, offset=0):
        def look():
            self.deliver()
            return self.stored(topic, 0, offset)

        return wait_for(look, f"{topic} {offset}", every=0.02)[0]

    def settle(self):
        """Let time pass in which delivery looks at all levels more than once."""
        for _ in range(2):
            self.clock.skipped_ms += LOOK_MS // 2
            seen = self.engine.broker.delays.deliver._time._looked
            wait_for(
                lambda seen=seen: self.deliver() or self.engine.broker.delays.deliver._time._looked > seen, "a look"
            )


@pytest.fixture
def clock():
    return SkippingClock()


@pytest.fixture
def ladder(tmp_path, clock):
    ladder = Ladder(tmp_path, clock)
    yield ladder
    ladder.engine.stop()


def test_sixteen_retries_each_when_its_level_says_and_then_a_dead_letter(ladder, clock):
    ladder.send(b"x")
    [origin] = ladder.stored("Orders")
    record = origin
    for times, delay_ms in enumerate(LADDER, 1):
        ladder.send_back(record)
        waits, due_ms = ladder.waiting(times + 2)
        assert due_ms == waits.store_time_ms + delay_ms
        assert decode_properties(waits.properties)["REAL_TOPIC"] == "%RETRY%CG"
        clock.skipped_ms += delay_ms - LOOK_MS - LATE_MS
        ladder.settle()
        assert clock.wall_ms() < due_ms, "the machine is too slow for this test"
        assert ladder.stored("%RETRY%CG", 0, times - 1) == []
        clock.skipped_ms += due_ms - clock.wall_ms()
        record = ladder.arrives("%RETRY%CG", times - 1)
        assert 0 <= record.store_time_ms - due_ms < LATE_MS
        assert (record.body, record.reconsume_times, record.born_time_ms) == (b"x", times, origin.born_time_ms)
    ladder.send_back(record)
    [dead] = ladder.stored("%DLQ%CG")
    found = decode_properties(dead.properties)
    assert (dead.body, dead.reconsume_times, found["RETRY_TOPIC"]) == (b"x", 17, "Orders")
    assert found["ORIGIN_MESSAGE_ID"].endswith(f"{origin.physical_offset:016X}")
    clock.skipped_ms += 3 * H
    ladder.settle()
    assert len(ladder.stored("%RETRY%CG", 0, 0)) == 16
    assert len(ladder.stored("%DLQ%CG")) == 1


@pytest.mark.parametrize("set_ms", [H, -H, 24 * H], ids=["+1h", "-1h", "+1d"])
def test_a_wall_clock_that_is_set_while_messages_wait_moves_no_delivery(ladder, clock, set_ms):
    """Summer time done by setting the clock, or a wrong date: level 5 stays a minute, before and after."""
    ladder.send(b"before", level=5)
    stored = clock.steady()
    ladder.settle()
    clock.set_by_ms = set_ms
    ladder.settle()
    ladder.send(b"after", level=5)
    stored_after = clock.steady()
    ladder.settle()
    for body, offset, since in ((b"before", 0, stored), (b"after", 1, stored_after)):
        clock.skipped_ms += round((since + 60 - clock.steady()) * 1000) - LOOK_MS - LATE_MS
        ladder.settle()
        assert ladder.stored("Orders", 0, offset) == [], f"{body!r} came early"
        clock.skipped_ms += round((since + 60 - clock.steady()) * 1000)
        assert ladder.arrives("Orders", offset).body == body
        assert clock.steady() - since - 60 < LATE_MS / 1000
    clock.skipped_ms += 2 * H
    ladder.settle()
    assert [record.body for record in ladder.stored("Orders")] == [b"before", b"after"]


def test_a_clock_that_was_set_back_over_a_restart_lets_messages_wait_their_delay_once_more(tmp_path, clock):
    ladder = Ladder(tmp_path, clock)
    ladder.send(b"x", level=5)
    ladder.settle()
    ladder.engine.stop()
    clock.set_by_ms = -24 * H
    ladder = Ladder(tmp_path, clock)
    started = clock.steady()
    try:
        clock.skipped_ms += M - LOOK_MS - LATE_MS
        ladder.settle()
        assert ladder.stored("Orders") == []
        clock.skipped_ms += round((started + 60 - clock.steady()) * 1000)
        assert ladder.arrives("Orders").body == b"x"
    finally:
        ladder.engine.stop()
