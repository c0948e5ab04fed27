"""SIGKILL while administrators decide transactions: each is decided once, what was answered holds, and what was written
down is done at the next start."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engine.broker.transactions.test_transactions import COMMIT, end, send_half
from tests.support.engine import read_queue
from tests.support.engine_process import EngineProcess, Refused
from tests.support.waiting import wait_for

COUNT, PART = 120, 5
WHY = "the order was paid"


@pytest.mark.parametrize("delay_s", [0.001, 0.003, 0.006])
def test_a_kill_among_decisions(tmp_path: Path, delay_s: float) -> None:
    """Parts are committed and rolled back in turns; in the middle of one the process dies. Producers come too late for
    all of them, and decide a few before."""
    engine = EngineProcess(tmp_path / "data", store={"flush_disk_type": "SYNC_FLUSH"})
    answered: dict[int, str] = {}
    in_doubt: tuple[str, set[int]] = ("", set())
    with engine:
        peer = engine.peer()
        halves = [send_half(peer, f"K{number}", body=b"%d" % number, queue_id=0) for number in range(COUNT)]
        by_producer = set(range(3, COUNT, PART))
        for number in by_producer:
            assert end(peer, halves[number], COMMIT).code == 0
        peer.close()
        with suppress(Refused, OSError):
            for begin in range(0, COUNT, PART):
                action = ("commit", "roll_back")[begin // PART % 2]
                numbers = set(range(begin, begin + PART)) - by_producer
                in_doubt = action, numbers
                if begin == COUNT // 2:
                    threading.Timer(delay_s, engine.kill_it).start()
                places = [{"half_offset": n, "unique_id": f"K{n}"} for n in sorted(numbers)]
                act = engine.do("decide", action=action, places=places, reason=WHY, by="alice")
                assert act["done"] == len(numbers)
                answered |= dict.fromkeys(numbers, action)
                in_doubt = "", set()
        engine.kill()
        assert answered
        assert in_doubt[1], "it died too late to tell anything"
        for _ in range(2):  # the second start has nothing left to do
            engine.start()
            wait_for(lambda: engine.do("open_transactions", limit=1)["ready"], "the open ones are known")
            wait_for(lambda: not _unfinished(tmp_path / "data"), "what was written down is done")
            still_open = _open(engine)
            ended = set(range(COUNT)) - still_open
            action, numbers = in_doubt
            assert ended - numbers == by_producer | set(answered)
            # All of a part that was written down, or nothing of it.
            assert numbers & ended in (set(), numbers)
            committed = by_producer | {n for n, what in answered.items() if what == "commit"}
            if action == "commit":
                committed |= numbers & ended
            copies = sorted(int(record.body) for record in read_queue(engine.peer(), "Orders"))
            assert copies == sorted(committed)
            peer = engine.peer()
            for number in sorted(set(answered) | numbers & ended):
                assert end(peer, halves[number], COMMIT).remark == "the transaction was decided before"
            peer.close()
            engine.kill()
        engine.start()
        assert sorted(int(record.body) for record in read_queue(engine.peer(), "Orders")) == sorted(committed)


def _open(engine: EngineProcess) -> set[int]:
    page = engine.do("open_transactions", limit=500)
    assert page["next_cursor"] is None
    return {row["half_offset"] for row in page["rows"]}


def _unfinished(data: Path) -> bool:
    lines = (data / "rocketbox/transactions/decisions.journal").read_bytes()
    return lines.count(b'{"act":') != lines.count(b'{"ended":')
