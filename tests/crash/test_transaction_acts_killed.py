"""SIGKILL while administrators decide transactions: each is decided once, what was answered holds, and what was written
down is done at the next start."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.acts import Acts, numbers_in
from tests.engine.broker.transactions.test_transactions import COMMIT, end, send_half
from tests.support.engine_process import EngineProcess
from tests.support.waiting import wait_for

COUNT, PART = 120, 5
WHY = "the order was paid"


@pytest.mark.parametrize(
    "delay_s", [pytest.param(0.001, marks=pytest.mark.nightly), 0.003, pytest.param(0.006, marks=pytest.mark.nightly)]
)
def test_a_kill_among_decisions(tmp_path: Path, delay_s: float) -> None:
    """Parts are committed and rolled back in turns; in the middle of one the process dies. Producers come too late for
    all of them, and decide a few before."""
    engine = EngineProcess(tmp_path / "data", store={"flush_disk_type": "SYNC_FLUSH"})
    acts = Acts(engine, COUNT, PART, ("commit", "roll_back"))
    by_producer = set(range(3, COUNT, PART))

    def act(action: str, part: list[int]) -> None:
        numbers = set(part) - by_producer
        places = [{"half_offset": n, "unique_id": f"K{n}"} for n in sorted(numbers)]
        done = engine.do("decide", action=action, places=places, reason=WHY, by="alice")["done"]
        assert done == len(numbers)

    with engine:
        peer = engine.peer()
        halves = [send_half(peer, f"K{number}", body=b"%d" % number, queue_id=0) for number in range(COUNT)]
        for number in by_producer:
            assert end(peer, halves[number], COMMIT).code == 0
        peer.close()
        acts.until_killed(act, delay_s)
        answered = set().union(*acts.handled.values()) - by_producer
        numbers = acts.in_doubt - by_producer
        for _ in range(2):  # the second start has nothing left to do
            engine.start()
            wait_for(lambda: engine.do("transactions.open", limit=1)["ready"], "the open ones are known")
            wait_for(lambda: not _unfinished(tmp_path / "data"), "what was written down is done")
            still_open = _open(engine)
            ended = set(range(COUNT)) - still_open
            assert ended - numbers == by_producer | answered
            # All of a part that was written down, or nothing of it.
            assert numbers & ended in (set(), numbers)
            committed = by_producer | acts.handled["commit"]
            if acts.action == "commit":
                committed |= numbers & ended
            assert numbers_in(engine, "Orders") == Counter(committed)
            peer = engine.peer()
            for number in sorted(answered | numbers & ended):
                assert end(peer, halves[number], COMMIT).remark == "the transaction was decided before"
            peer.close()
            engine.kill()
        engine.start()
        assert numbers_in(engine, "Orders") == Counter(committed)


def _open(engine: EngineProcess) -> set[int]:
    page = engine.do("transactions.open", limit=500)
    assert page["next_cursor"] is None
    return {row["half_offset"] for row in page["rows"]}


def _unfinished(data: Path) -> bool:
    lines = (data / "rocketbox/transactions/decisions.journal").read_bytes()
    return lines.count(b'{"act":') != lines.count(b'{"ended":')
