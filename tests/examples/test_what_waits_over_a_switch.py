"""Delayed and timer messages wait while the leader of a set of two is killed: each comes once, not before its time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from appliance.engine.broker.timers.apache_files import Done, read_checkpoint
from appliance.engine.disk import Disk
from appliance.engine.protocol.record import Record
from tests.support.peer import pull_fields, records, send_fields
from tests.support.set_of_two import PULL, SEND, TOPIC, SetOfTwo
from tests.support.waiting import wait_for

RECALL = 370
QUEUE = 1


@pytest.fixture
def brokers(tmp_path) -> Iterator[SetOfTwo]:
    with SetOfTwo(tmp_path) as running:
        yield running


def put(brokers: SetOfTwo, number: int, body: str, **properties: object) -> str:
    """Send a message with a unique key; return its recall handle, "" if there is none."""
    given = {"UNIQ_KEY": f"{body:0>32}", **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
    answer = brokers.peer(number).ask(SEND, send_fields(TOPIC, QUEUE, text), body.encode())
    assert answer.code == 0
    return answer.ext_fields.get("recallHandle", "")


def stored(brokers: SetOfTwo, number: int) -> list[Record]:
    found: list[Record] = []
    while True:
        answer = brokers.peer(number).ask(PULL, pull_fields(TOPIC, QUEUE, len(found)))
        if answer.code != 0:
            return found
        found += records(answer.body)


def arrived(brokers: SetOfTwo, number: int) -> list[str]:
    return [one.body.decode() for one in stored(brokers, number)]


def told(brokers: SetOfTwo, number: int) -> Done | None:
    """Return the leader's last report of its delivered timers, as a member has stored it."""
    left = read_checkpoint(Disk(), brokers.brokers[number].data_dir / "rocketbox/store")
    return None if left is None else left.done


def wait_told(brokers: SetOfTwo, number: int, timers: int) -> None:
    """Wait until a member has the leader's report of all deliveries up to now, and of at least `timers` timers: an
    earlier report, of fewer timers, does not cover the others."""
    now_ms = time.time() * 1000
    wait_for(
        lambda: (done := told(brokers, number)) and done.out_ms >= now_ms and done.queue_offset >= timers,
        "the follower to have it", every=0.1,
    )  # fmt: skip


def kill(brokers: SetOfTwo, number: int, other: int) -> None:
    brokers.brokers[number].kill()
    brokers.hang_up(number)
    brokers.hang_up(other)
    assert brokers.wait_for_sends((other,)) == other


def test_timers_that_were_delivered_do_not_come_again_because_another_waits(brokers):
    put(brokers, 1, "long", TIMER_DELAY_MS=3_600_000)
    wanted = [f"timer {n}" for n in range(10)]
    for body in wanted:
        put(brokers, 1, body, TIMER_DELAY_MS=1000)
    wait_for(lambda: sorted(arrived(brokers, 1)) == wanted, "the timers", every=0.1)
    wait_told(brokers, 2, 1 + len(wanted))
    kill(brokers, 1, 2)
    # Timers delivered again would come before one that is stored now.
    put(brokers, 2, "last", TIMER_DELAY_MS=1000)
    found = wait_for(lambda: "last" in (found := arrived(brokers, 2)) and found, "the last one", every=0.1)
    assert sorted(found) == ["last", *wanted]


def test_what_waits_comes_once_from_whoever_leads_then_and_not_what_was_recalled(brokers):
    begun_ms = time.time() * 1000
    handle = put(brokers, 1, "recalled", TIMER_DELAY_MS=6000)
    put(brokers, 1, "timer", TIMER_DELAY_MS=6000)
    put(brokers, 1, "delayed", DELAY=2)
    recalled = {"producerGroup": "PG", "topic": TOPIC, "recallHandle": handle}
    assert brokers.peer(1).ask(RECALL, recalled).code == 0
    kill(brokers, 1, 2)
    found = wait_for(lambda: len(found := stored(brokers, 2)) >= 2 and found, "both that wait", every=0.05)
    waited = {one.body.decode(): one.store_time_ms - begun_ms for one in found}
    assert waited["delayed"] >= 5000
    assert waited["timer"] >= 6000
    put(brokers, 2, "last", TIMER_DELAY_MS=1000)
    wait_for(lambda: "last" in arrived(brokers, 2), "the last one", every=0.05)
    assert sorted(arrived(brokers, 2)) == ["delayed", "last", "timer"]
