"""Sends at a fixed rate: the requested number, in turn, and a stall counts in the latency of every send it delayed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.build import build
from tests.bench.responder import Request, Responder, answer
from tests.bench.test_loadgen import Log, acknowledge, run

RATE = 2000


@pytest.fixture(scope="module")
def loadgen() -> Path:
    return build("loadgen", ("-O2", "-Wall", "-Wextra", "-Werror"))


def paced(loadgen: Path, responder: Responder, *options: object, seconds: float = 0.5):
    given = ("--rate", RATE, "--connections", 3, "--queues", 4, "--seconds", seconds, "--warm-up", 0.1, "--body", 10)
    return run(loadgen, responder, "paced", *given, *options)


def test_the_rate_is_kept_and_connections_and_queues_take_turns(loadgen: Path) -> None:
    log = Log()
    with Responder(lambda request: [acknowledge(log, request)]) as responder:
        status, result = paced(loadgen, responder)
    assert (status, result["errors"]) == (0, 0)
    assert result["messages"] == pytest.approx(RATE * 0.5, abs=3)
    assert len(responder.requests) == result["all_messages"] == pytest.approx(RATE * 0.6, abs=3)
    assert len({request.connection for request in responder.requests}) == 3
    assert max(log.next.values()) - min(log.next.values()) <= 1


def test_a_stall_is_charged_to_every_message_it_delayed(loadgen: Path) -> None:
    log = Log()

    def stall_once(request: Request) -> list[bytes]:
        if sum(log.next.values()) == RATE // 2:
            time.sleep(0.2)
        return [acknowledge(log, request)]

    with Responder(stall_once) as responder:
        _, result = paced(loadgen, responder, seconds=0.9)
    assert result["errors"] == 0
    assert result["messages"] == pytest.approx(RATE * 0.9, abs=3), "what was held up was sent all the same"
    assert result["latency_us"]["max"] >= 190_000
    assert result["latency_us"]["p90"] >= 50_000, "a closed loop would have told of one slow message"


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (lambda log, request: [answer(request, code=2)], "bad_code"),
        (lambda log, request: [answer(request, msgId="x", queueId=0, queueOffset=0)], "bad_answer"),
        (lambda log, request: [acknowledge(log, request)] * 2, "unknown_opaque"),
        (lambda log, request: [], "unanswered"),
    ],
)
def test_wrong_answers_are_counted(loadgen: Path, broken, kind: str) -> None:
    log, number = Log(), [0]

    def one_broken(request: Request) -> list[bytes]:
        number[0] += 1
        return broken(log, request) if number[0] == 300 else [acknowledge(log, request)]

    with Responder(one_broken) as responder:
        status, result = paced(loadgen, responder, seconds=0.3)
    assert status == 1
    assert result["error_kinds"] == {kind: 1}
