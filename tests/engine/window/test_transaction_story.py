"""A transaction in the story of a message: the half message, and how it ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.engine.loop_calls import run_on_loop
from appliance.engine.window.messages import snapshots as m
from appliance.engine.window.transactions.snapshots import HalfPlace
from tests.engine.broker.transactions.test_transactions import (
    COMMIT,
    GROUP,
    ROLL_BACK,
    TOPIC,
    end,
    send_half,
)
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

HALF = "RMQ_SYS_TRANS_HALF_TOPIC/0/0"
COPY = f"{TOPIC}/2/0"


def what(detail: m.MessageDetail) -> list[str]:
    return [line.what for line in detail.story]


def line(detail: m.MessageDetail, name: str) -> dict[str, object]:
    return next(line.detail for line in detail.story if line.what == name)


def test_an_open_one(running):
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    running.join("c1", "CG", TOPIC)
    told = running.window.messages.detail(HALF)
    assert what(told) == ["born", "half", "open"]
    half, still_open = line(told, "half"), line(told, "open")
    assert (half["place"], half["target"], half["group"]) == (HALF, TOPIC, GROUP)
    assert (still_open["checks"], still_open["max_checks"], still_open["producers"]) == (0, 15, 1)
    assert (still_open["waits_for_producer"], still_open["half_place"]) == (False, HALF)
    assert isinstance(still_open["next_check_ms"], int)
    [one] = told.groups
    assert (one.group, one.state, str(one.why)) == (
        "CG", "uncommitted", "The transaction is open: nobody has decided it yet.",
    )  # fmt: skip


def test_a_committed_one_and_its_half_know_each_other(running):
    peer = running.peer()
    half = send_half(peer, "K")
    end(peer, half, COMMIT, fromTransactionCheck="true")
    running.join("c1", "CG", TOPIC)
    for place in (HALF, COPY):
        told = wait_for(
            lambda place=place: (found := running.window.messages.detail(place)) and "stored" in what(found) and found,
            "the index knows both",
        )
        assert what(told) == ["born", "half", "committed", "stored"]
        committed = line(told, "committed")
        assert (committed["by"], committed["half_place"], committed["group"]) == ("check", HALF, GROUP)
        assert str(committed["client"]).startswith("127.0.0.1:")
        assert line(told, "stored")["place"] == COPY
        assert line(told, "half")["offset_id"] == committed["half_offset_id"]
        times = [one.at_ms for one in told.story if one.at_ms is not None]
        assert times[1:] == sorted(times[1:])
    told = running.window.messages.detail(HALF)
    [one] = told.groups
    assert (one.state, one.place) == ("unknown", COPY)  # the group has the message, and never committed an offset
    assert running.window.messages.detail(COPY).prepared_transaction_offset == int(half["commitLogOffset"])


def test_one_that_an_administrator_rolled_back(running):
    send_half(running.peer(), "K")
    running.window.transaction_commands.act("roll_back", [HalfPlace(0)], reason="twice paid", by="alice")
    running.join("c1", "CG", TOPIC)
    told = running.window.messages.detail(HALF)
    assert what(told) == ["born", "half", "rolled_back"]
    rolled_back = line(told, "rolled_back")
    assert (rolled_back["by"], rolled_back["admin"], rolled_back["reason"]) == ("administrator", "alice", "twice paid")
    assert [(one.state, one.why.code) for one in told.groups] == [("uncommitted", "half_not_committed")]


def test_one_that_was_set_aside_and_resumed(make_running: Callable[..., RunningEngine]):
    fast = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 30, "transaction_check_max": 1}
    running = make_running(broker=fast)
    send_half(running.produce_as("p1", GROUP), "K")
    [one] = wait_for(lambda: running.window.transactions.discarded().rows, "it is set aside")
    aside = one.message.offset_id
    wait_for(lambda: "set_aside" in what(running.window.messages.detail(HALF)), "the index knows it")
    told = running.window.messages.detail(HALF)
    assert what(told) == ["born", "half", "discarded", "set_aside"]
    assert (line(told, "discarded")["by"], line(told, "discarded")["checks"]) == ("broker", 1)
    assert line(told, "set_aside")["checks"] == 1
    running.hang_up()
    running.window.option_commands.change({"transactionTimeOut": 600_000})
    done = running.window.transaction_commands.resume(aside, reason="the producer is back", by="alice")
    told = wait_for(
        lambda: (found := running.window.messages.detail(done.offset_id)) and "set_aside" in what(found) and found,
        "the index knows all",
    )
    assert what(told) == ["born", "half", "discarded", "set_aside", "half", "open"]


def test_one_that_was_put_back_before_it_expired(running):
    peer = running.peer()
    send_half(peer, "K")
    running.join("c1", "CG", TOPIC)
    broker = running.engine.broker
    one = broker.transactions.acts.half_at(0)
    assert run_on_loop(
        running.engine.loop.call_soon, lambda: broker.transactions.decisions.put_back(one, 2, 0), lambda: False
    )
    told = wait_for(
        lambda: (found := running.window.messages.detail(HALF)) and what(found).count("half") == 2 and found,
        "both are known",
    )
    assert what(told) == ["born", "half", "half", "open"]
    assert [row.half_offset for row in running.window.transactions.open().rows] == [1]
    assert running.window.transactions.open().rows[0].checks == 2
    assert [one.state for one in told.groups] == ["uncommitted"]
    running.window.transaction_commands.act("commit", [HalfPlace(0, "K")], reason="paid", by="alice")
    told = wait_for(
        lambda: (found := running.window.messages.detail(HALF)) and "stored" in what(found) and found,
        "the copy is known",
    )
    assert what(told) == ["born", "half", "half", "committed", "stored"]
    assert [one.place for one in told.groups] == [COPY]


def test_when_nothing_is_kept_of_its_end(running, tmp_path):
    peer = running.peer()
    end(peer, send_half(peer, "K0"), ROLL_BACK)
    end(peer, send_half(peer, "K1"), COMMIT)
    resolved = running.engine.broker.transactions.resolved
    resolved.write()
    for number in resolved.numbers():
        (resolved.directory / f"{number:010d}").unlink()
    assert what(running.window.messages.detail(HALF)) == ["born", "half", "ended"]
    told = wait_for(
        lambda: (
            (found := running.window.messages.detail("RMQ_SYS_TRANS_HALF_TOPIC/0/1"))
            and "stored" in what(found)
            and found
        ),
        "the index knows both",
    )
    assert what(told) == ["born", "half", "committed", "stored"]
    assert "by" not in line(told, "committed")


@pytest.mark.parametrize("delay", ["DELAY\x012\x02"])
def test_a_committed_one_that_waits(make_running: Callable[..., RunningEngine], delay):
    running = make_running(store={"message_delay_level": "1s 1h"})
    peer = running.peer()
    end(peer, send_half(peer, "K", delay), COMMIT)
    told = wait_for(
        lambda: (found := running.window.messages.detail(HALF)) and "delayed" in what(found) and found,
        "the index knows both",
    )
    assert what(told) == ["born", "half", "committed", "delayed"]
