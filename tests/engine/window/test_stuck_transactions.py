"""Open transactions that are not ended are a need on the overview."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.engine.window.health import limits
from appliance.engine.window.transactions import stuck as stuck_transactions
from tests.engine.broker.transactions.test_transactions import COMMIT, GROUP, end, question, send_half
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

FAST = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 200}


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_transactions, "_LOOK_S", 0.0)


def needs(running: RunningEngine) -> list[tuple[str, str, str]]:
    found = running.window.overview.snapshot().needs
    return [(need.level, need.name, str(need.sentence)) for need in found if need.kind == "transactions"]


def test_without_a_producer(make_running: Callable[..., RunningEngine], monkeypatch: pytest.MonkeyPatch):
    running = make_running(broker=FAST)
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(3)]
    wait_for(lambda: running.window.transactions.counts().waiting == 3, "they wait for a producer")
    assert needs(running) == [], "they are not old"
    monkeypatch.setattr(limits, "WITHOUT_PRODUCER_MINUTES", 0)
    assert needs(running) == [
        ("stuck", GROUP, "PG has 3 open transactions, and none of its producers is connected. The oldest one is 0 "
         "minutes old.")
    ]  # fmt: skip
    end(peer, halves[1], COMMIT)
    assert "PG has 2 open transactions, " in needs(running)[0][2]
    end(peer, halves[0], COMMIT)
    end(peer, halves[2], COMMIT)
    assert needs(running) == []


def test_asked_again_and_again(make_running: Callable[..., RunningEngine]):
    running = make_running(broker=FAST | {"transaction_check_max": 200, "transaction_check_interval_ms": 500})
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    question(producer)
    assert needs(running) == []
    for _ in range(2):
        question(producer)
    running.window.option_commands.change({"transactionCheckInterval": 3_600_000})
    transactions = running.engine.broker.transactions
    now_ms = transactions.check.now_ms
    wait_for(lambda: transactions.open_halves.due_times({0}).get(0, 0) > now_ms() + 60_000, "it is not set aside")
    running.window.option_commands.change({"transactionCheckMax": 4})  # two thirds of it are 2 checks
    assert needs(running) == [
        ("watch", "", "1 open transaction is still undecided after its producers were asked 2 times or more.")
    ]
