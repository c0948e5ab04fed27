"""SIGKILL while administrators act on waiting messages, and producers take some back: what was answered holds, what was
not loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from appliance.engine.protocol.recall_handle import encode_recall_handle
from tests.crash.acts import Acts, numbers_in, wait_for_all_of, wait_for_one_of
from tests.support.engine import Peer, send_fields
from tests.support.engine_process import EngineProcess

TOPIC, COUNT, PART = "Waiting", 300, 10
#: When the even ones are due: at the second start, whose clock says so. The odd ones are not while the test runs.
SOON_S, LATE_S = 1800, 14_400


class Waits(NamedTuple):
    """A way to wait. text: number, now in ms -> its property; place: number -> its place, as acts name it."""

    store: dict[str, Any]
    actions: tuple[str, ...]
    text: Callable[[int, int], str]
    place: Callable[[int], dict[str, int]]


#: A queue a level: level 1 is due soon, level 2 late.
AT_A_LEVEL = Waits(
    {"message_delay_level": f"{SOON_S // 60}m {LATE_S // 3600}h"},
    ("deliver_now", "drop"),
    lambda number, now_ms: f"DELAY\x01{1 + number % 2}\x02",
    lambda number: {"level": 1 + number % 2, "queue_offset": number // 2},
)
FOR_A_TIME = Waits(
    {},
    ("deliver_now", "drop", "recall"),
    lambda number, now_ms: f"TIMER_DELIVER_MS\x01{due_ms(number, now_ms)}\x02",
    lambda number: {"level": 0, "queue_offset": number},
)


def due_ms(number: int, now_ms: int) -> int:
    return now_ms + (SOON_S, LATE_S)[number % 2] * 1000


@pytest.mark.parametrize("waits", [AT_A_LEVEL, FOR_A_TIME], ids=["at a level", "for a time"])
def test_a_kill_among_acts_on_waiting_messages(tmp_path: Path, waits: Waits) -> None:
    """Delivered early, dropped and taken back in turns; the process dies in the middle of one, is started when the rest
    is due, and dies again while that comes."""
    engine = EngineProcess(tmp_path / "data", store={"flush_disk_type": "SYNC_FLUSH"} | waits.store)
    now_ms = time.time_ns() // 1_000_000
    acts = Acts(engine, COUNT, PART, waits.actions)

    def act(action: str, numbers: list[int]) -> None:
        if action == "recall":
            with closing(engine.peer()) as peer:
                for number in numbers:
                    recall(peer, number, due_ms(number, now_ms))
                    acts.answered(number)
            return
        places = [{**waits.place(number), "unique_id": str(number)} for number in numbers]
        assert engine.do("act", action=action, places=places)["done"] == PART

    with engine:
        with closing(engine.peer()) as peer:
            for number in range(COUNT):
                fields = send_fields(TOPIC, 0, f"{waits.text(number, now_ms)}UNIQ_KEY\x01{number}\x02")
                assert peer.ask(310, fields, b"%d" % number).code == 0
        acts.until_killed(act)
        engine.ahead_s = SOON_S + 60
        engine.start()
        early, in_doubt = acts.handled["deliver_now"], acts.in_doubt
        gone = acts.handled["drop"] | acts.handled["recall"]
        due = set(range(0, COUNT, 2)) - gone - early - in_doubt
        places = [{**waits.place(number), "unique_id": None} for number in sorted(gone) if number % 2]
        assert engine.do("act", action="deliver_now", places=places)["counts"] == {"handled": len(places)}
        wait_for_one_of(engine, TOPIC, due)
        engine.kill()
        engine.start()
        wait_for_all_of(engine, TOPIC, due)
        time.sleep(1.0)
        found = numbers_in(engine, TOPIC)
    assert not gone & found.keys()
    assert early <= found.keys()
    assert all(found[number] == 1 for number in early), "delivered early and again when due"
    # Each kill may repeat one delivery, and of those in doubt both fell to the same one.
    assert all(times <= 2 + (number in in_doubt) for number, times in found.items())
    assert not {n for n in found if n % 2} - early - in_doubt, "hours later"
    print(f"{len(early)} early, {len(gone)} gone, {len(in_doubt)} in doubt")


def recall(peer: Peer, number: int, due_ms: int) -> None:
    handle = encode_recall_handle(TOPIC, "broker-a", due_ms - 1, str(number))
    answer = peer.ask(370, {"topic": TOPIC, "recallHandle": handle, "producerGroup": "P"})
    assert (answer.code, answer.ext_fields["msgId"]) == (0, str(number))
