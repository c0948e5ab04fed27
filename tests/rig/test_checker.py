"""Each rule of the checker against a history that keeps it and ones that break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.rig import checker
from tests.rig.checker import Entry, Replica
from tests.rig.history import COMMIT, OK, ROLLBACK, UNKNOWN, Committed, Event, Seen, Send

T0 = 1_700_000_000.0


def send(number: int, at: int | None = None, **changes: Any) -> Send:
    """Return p1's send number `number`, acknowledged in queue 0."""
    offset = number if at is None else at
    fields = {"producer": "p1", "topic": "T", "id": f"p1-{number}", "queue": 0, "call": T0 + number,
              "back": T0 + number + 0.5, "outcome": OK, "node": "b1", "offset": offset}  # fmt: skip
    return Send(**(fields | changes))


def seen(offset: int, id: str, when: float = T0 + 60, node: str = "b2") -> Seen:
    return Seen(consumer="c", topic="T", queue=0, offset=offset, id=id, time=when, node=node)


def said(offset: int, when: float) -> Committed:
    return Committed(group="g", topic="T", queue=0, offset=offset, time=when)


def replica(name: str, *ids: str, log: bytes = b"0123456789", **changes: Any) -> Replica:
    entries = [Entry(offset, id, 100 + 10 * offset) for offset, id in enumerate(ids)]
    made = Replica(name, {("T", 0): entries}, {("T", 0): entries}, 100, log, ((1, 0), (2, 50)), {("g", "T", 0): 2})
    return made._replace(**changes)


THREE = ("p1-0", "p1-1", "p1-2")
HISTORY: list[Event] = [send(0), send(1), send(2), seen(0, "p1-0"), seen(2, "p1-2"), said(1, T0), said(2, T0 + 1)]


def both(*ids: str, **changes: Any) -> list[Replica]:
    return [replica("b1", *(ids or THREE)), replica("b2", *(ids or THREE), **changes)]


def test_what_is_well_is_well() -> None:
    assert checker.check(HISTORY, both()) == []
    # A send of unknown outcome may be there or not. A refused one may be there, too: the refusal may be late.
    unknown = send(3, outcome=UNKNOWN, offset=-1)
    assert checker.check([*HISTORY, unknown], both()) == []
    assert checker.check([*HISTORY, unknown], both(*THREE, "p1-3")) == []


def swapped(name: str) -> Replica:
    return replica(name, "p1-0", "p1-2", "p1-1")


def hole(made: Replica) -> Replica:
    entries = [Entry(0, "p1-0", 100), Entry(2, "p1-1", 110), Entry(3, "p1-2", 120)]
    return made._replace(queues={("T", 0): entries}, records={("T", 0): entries})


DELAYED = send(3, offset=-1, due=T0 + 30)
COMMITTED = send(3, offset=-1, half=True, verdict=COMMIT, verdict_outcome=OK)
ROLLED_BACK = send(3, offset=-1, half=True, verdict=ROLLBACK, verdict_outcome=UNKNOWN)
UNDECIDED = send(3, offset=-1, half=True)

WRONG: dict[str, tuple[list[Event], list[Replica], str]] = {
    "acknowledged and on one replica only": (HISTORY, [*both()[:1], replica("b2", *THREE[:2])], "b2: lost: 1: p1-2"),
    "acknowledged and nowhere": (HISTORY, both(*THREE[:2]), "b1: lost: 1: p1-2"),
    "never sent": (HISTORY, both(*THREE, "x-1"), "b1: invented: 1: x-1 was never sent"),
    "twice": (HISTORY, both(*THREE, "p1-1"), "b1: invented: 1: p1-1 is there 2 times"),
    "not in the order of calls": (
        [send(0), send(1, offset=-1), send(2, offset=-1)],
        [swapped("b1"), swapped("b2")],
        "b1: out of order: 1: p1-2 of p1 in T/0: at 1, behind one at 2",
    ),
    "acknowledged at another place": (
        [send(0), send(1, at=2), send(2, at=1)], both(), "moved: 2: T/0 at 2: p1-2 (in the end on b1), and p1-1 (ackn"
    ),
    "replicas that differ": (
        [send(0), send(1, outcome=UNKNOWN, offset=-1), send(2, outcome=UNKNOWN, offset=-1)],
        [replica("b1", *THREE), swapped("b2")],
        "moved: 2: T/0 at 1: p1-1 (in the end on b1), and p1-2 (in the end on b2)",
    ),
    "given and then another": (
        [*HISTORY, send(3, outcome=UNKNOWN, offset=-1), seen(1, "p1-3")], both(),
        "moved: 1: T/0 at 1: p1-1 (in the end on b1), and p1-3 (given to c by b2",
    ),
    "given and then gone": (
        [*HISTORY, send(3, outcome=UNKNOWN, offset=-1), seen(3, "p1-3")], both(), "moved: 1: T/0 at 3: p1-3 was given"
    ),
    "a gap": ([send(0), send(1, at=2), send(2, at=3)], [hole(one) for one in both()], "b1: gap: 1: T/0: 0, then 2"),
    "a queue that leads elsewhere": (
        HISTORY, both(records={("T", 0): [Entry(0, "p1-0", 100), Entry(1, "p1-1", 115), Entry(2, "p1-2", 120)]}),
        "b2: queue unlike the log: 1: T/0: 3 shown, 3 in the log, first other",
    ),
    "a record that no queue shows": (
        HISTORY, both(records={("T", 0): [Entry(at, f"p1-{at}", 100 + 10 * at) for at in range(4)]}),
        "b2: queue unlike the log: 1: T/0: 3 shown, 4 in the log",
    ),
    "a byte of the log": (HISTORY, both(log=b"01234x6789"), "unlike logs: 1: b1 and b2 from 105 on"),
    "a log that is longer": (HISTORY, both(log=b"0123456789a"), "unlike logs: 1: b1 ends at 110, b2 at 111"),
    "logs that begin elsewhere": (HISTORY, both(log=b"x56789", log_start=104), "unlike logs: 1: b1 and b2 from 104 on"),
    "epochs that differ": (HISTORY, both(epochs=((1, 0), (2, 51))), "unlike epochs: 1: b1 ((1, 0), (2, 50)), b2"),
    "epochs that go back": (HISTORY, both(epochs=((1, 0), (2, 50), (2, 60))), "unlike epochs: 1: b2: (2, 50), then (2"),
    "an offset beyond the end": (
        [*HISTORY, said(9, T0 + 2)], both(offsets={("g", "T", 0): 4}), "b2: offset too far: 1: g of T/0: 4, and"
    ),
    "an offset nobody said": (HISTORY, both(offsets={("g", "T", 0): 3}), "b2: offset too far: 1: g of T/0: 3, and it"),
    "an offset that went back": (
        [*HISTORY, said(3, T0 + 20)], both(offsets={("g", "T", 0): 1}), "offset went back: 1: b2: g of T/0 is at 1"
    ),
    "a delayed message early": ([*HISTORY, DELAYED, seen(3, "p1-3", T0 + 29)], both(*THREE, "p1-3"), "early: 1: p1-3"),
    "a delayed message lost": ([*HISTORY, DELAYED], both(), "b1: lost: 1: p1-3"),
    "a commit lost": ([*HISTORY, COMMITTED], both(), "b1: lost: 1: p1-3"),
    "a commit twice": ([*HISTORY, COMMITTED], both(*THREE, "p1-3", "p1-3"), "b1: invented: 1: p1-3 is there 2 times"),
    "rolled back and visible": (
        [*HISTORY, ROLLED_BACK], both(*THREE, "p1-3"), "b1: transaction visible: 1: p1-3, rolled back"
    ),
    "undecided and visible": (
        [*HISTORY, UNDECIDED], both(*THREE, "p1-3"), "b1: transaction visible: 1: p1-3, never decided"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(what: str) -> None:
    events, replicas, told = WRONG[what]
    found = checker.check(events, replicas)
    assert any(sentence.startswith(told) for sentence in found), found


def test_a_client_that_sends_again_may_have_two_and_its_own_word_orders_them() -> None:
    events: list[Event] = [send(0, again=True, at=1), send(1, again=True, at=2)]
    assert checker.check(events, both("p1-0", "p1-0", "p1-1")) == []
    assert checker.check(events, both("p1-1", "p1-0", "p1-1")) == []


def test_what_was_cut_off_counts_only_where_it_may() -> None:
    one = replica("b1", *THREE[:2], quarantine=frozenset({"p1-2"}))
    sends = [send(0), send(1), send(2)]
    assert checker.lost(sends, one)
    assert checker.lost(sends, one, quarantine=True) == []


def test_an_asynchronous_set_may_lose_only_what_it_has_set_aside() -> None:
    events: list[Event] = [*HISTORY, seen(3, "p1-3"), send(3)]
    assert [told[:16] for told in checker.check_asynchronous(events, both())] == [
        "b1: lost: 1: p1-",
        "b2: lost: 1: p1-",
    ]
    assert checker.check_asynchronous(events, both(quarantine=frozenset({"p1-3"}))) == []
    assert checker.check_asynchronous(events, both(log=b"01234x6789", quarantine=frozenset({"p1-3"})))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one, []),
        (lambda one: one._replace(log=one.log + b"more"), []),
        (lambda one: replica("b1", *THREE, "p1-3"), []),
        (lambda one: replica("b1", *THREE[:2]), ["changed by a restart: 1: b1: T/0"]),
        (lambda one: one._replace(log=b"012345678"), ["changed by a restart: 1: b1: its log"]),
    ],
)
def test_a_restart_changes_nothing(change: Callable[[Replica], Replica], told: list[str]) -> None:
    before = replica("b1", *THREE)
    assert checker.changed([before], [change(before)]) == told


def test_few_are_told_and_all_are_counted() -> None:
    [told] = checker.lost([send(number) for number in range(20)], replica("b1"))
    assert told.startswith("b1: lost: 20: ")
    assert told.endswith("(and 12 more)")
