"""Quotas of users: buckets, lines and turns, with a clock that is handed in."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from appliance.engine.access import brake as brake_module
from appliance.engine.access.book import Account, Book, BookRefusal, of_known
from appliance.engine.access.brake import Brake, Meter
from appliance.engine.access.quotas import NAMES, Bucket, Quotas
from appliance.engine.config import MOST_QUOTA_BYTES
from appliance.engine.protocol.codes import RequestCode as CODE
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.window.access.users import WireUsers
from tests.support.clock import FakeClock


class StillLoop(EventLoop):
    """An event loop whose ticks this thread makes."""

    def tick(self, ms: int = 0) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(ms)
        self.monotonic = self.clock.monotonic()
        while self._calls:
            self._run_calls()
        self._run_timers()


class Line:
    """A connection that notes the answers."""

    def __init__(self, number: int = 1) -> None:
        self.born_host = bytes((10, 0, 0, number)) + number.to_bytes(4, "big")
        self.closed = False
        self.principals: frozenset[str] = frozenset()
        self.answers: list[tuple[int, int]] = []
        self.flushed = False

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        self.answers.append((request.opaque, response.code))

    def close_after_flush(self) -> None:
        self.flushed = True

    def close(self) -> None:
        self.closed = True


class Rig:
    """A brake with one user, `ann`, and what was handled of her."""

    def __init__(self, directory: Path) -> None:
        self.loop = StillLoop(FakeClock())
        self.book = Book(directory / "access.journal")
        self.book.create("ann", "ann's own secret")
        self.brake = Brake(self.loop, self.book, Quotas())
        self.book.on_change = self.brake.changed
        self.handled: list[int] = []
        self.is_current = True
        self._number = 0

    def close(self) -> None:
        self.book.close()
        self.loop.close()

    def quotas(self, **quotas: int | None) -> None:
        self.book.change(
            "ann", of_known("ann", lambda account: Account("ann", account.secrets, quotas=Quotas(**quotas)))
        )
        self.loop.tick()

    def meter(self) -> Meter:
        user = self.book.get("ann")
        assert user is not None
        meter = self.brake.meter_of(user)
        assert meter is not None
        return meter

    def ask(self, conn: Line, size: int = 0, code: int = CODE.SEND_MESSAGE_V2) -> int:
        """Ask as ann; return the request's number, which is in `handled` once it is."""
        self._number = number = self._number + 1
        request = RemotingCommand(code, opaque=number)
        proceed: Callable[[], None] = lambda: self.handled.append(number)  # noqa: E731
        if self.meter().passes(request, conn, size, lambda: self.is_current, proceed):  # type: ignore[arg-type]
            proceed()
        return number


@pytest.fixture
def rig(tmp_path):
    with closing(Rig(tmp_path)) as made:
        yield made


def test_a_bucket_gives_a_second_at_once_and_then_what_it_is_filled_with():
    bucket = Bucket(100, now=50.0)
    for _ in range(100):
        assert bucket.wait_s(50.0) < 0
        bucket.take(1, 50.0)
    assert bucket.wait_s(50.0) == pytest.approx(0)
    bucket.take(1, 50.0)
    assert bucket.wait_s(50.0) == pytest.approx(0.01)
    bucket.take(1000, 51.0)  # the largest message passes, and is paid for afterwards
    assert bucket.wait_s(51.0) == pytest.approx(10 - 0.99)
    bucket.change(10, 51.0)
    assert bucket.wait_s(51.0) == 0  # nothing is owed, and no burst is given
    bucket.take(1, 51.0)
    assert bucket.wait_s(51.0) == pytest.approx(0.1)
    bucket.change(0, 51.0)
    bucket.take(1 << 60, 51.0)
    assert bucket.wait_s(51.0) == 0
    bucket.change(100, 51.0)
    bucket.take(150, 500.0)  # however long it was idle, one second's worth is saved up
    assert bucket.wait_s(500.0) == pytest.approx(0.5)


def test_what_is_only_counted_owes_no_more_than_what_would_wait(rig):
    rig.brake = Brake(rig.loop, rig.book, Quotas(), counts_only=True)
    rig.book.on_change = rig.brake.changed
    rig.quotas(requests=10)
    for _ in range(1000):
        rig.ask(Line(), code=CODE.HEART_BEAT)
    assert len(rig.handled) == 1000
    assert rig.brake.limited.of("ann")["requests_delayed"] > 900
    rig.loop.tick(2500)
    rig.ask(Line())
    assert (rig.brake.limited.of("ann")["sends_refused"], rig.brake.limited.of("ann")["sends_delayed"]) == (0, 0)


def test_sends_over_the_quota_wait_in_order_and_those_that_would_wait_too_long_are_refused(rig):
    rig.quotas(send_bytes=1024)
    conn = Line()
    rig.loop.tick(5000)  # idle for long: no more than a second's worth is saved up
    numbers = [rig.ask(conn, 256) for _ in range(11)]
    assert rig.handled == numbers[:5]  # four are the burst, and the fifth is owed
    assert conn.answers == [(number, 2) for number in numbers[9:]]
    rig.loop.tick(250)
    assert rig.handled == numbers[:6]
    rig.loop.tick(250)
    assert rig.handled == numbers[:7]
    rig.loop.tick(500)
    assert rig.handled == numbers[:9]
    assert rig.brake.waiting.taken == 0
    counts = rig.brake.limited.of("ann")
    assert (counts["sends_delayed"], counts["sends_refused"]) == (4, 2)
    assert rig.brake.limited.lately(rig.loop.monotonic + 58) == ["ann"]
    assert rig.brake.limited.lately(rig.loop.monotonic + 61) == []
    assert [rig.brake.limited.is_lately("ann", rig.loop.monotonic + more) for more in (58, 61)] == [True, False]


def test_a_page_of_users_does_not_look_through_all_of_them_for_each(rig, monkeypatch):
    for name in ("bob", "carl"):
        rig.book.create(name, f"the secret of {name}")
    rig.brake.limited.add("bob", brake_module.SENDS_REFUSED, rig.loop.monotonic)
    monkeypatch.setattr(rig.brake.limited, "lately", lambda now: pytest.fail("it looks through all"))
    rows = WireUsers(rig.book, lambda: "enforce", list, rig.brake).page().rows
    assert [(row.name, row.limited.lately) for row in rows] == [("ann", False), ("bob", True), ("carl", False)]


def test_no_send_waits_for_longer_than_a_second_whatever_goes_before_it(rig):
    rig.quotas(send_bytes=1000)
    first, second = Line(1), Line(2)
    rig.ask(first, 1000)
    rig.ask(first, 1000)
    waiting = [rig.ask(conn, 600) for conn in (first, second)]
    assert not first.answers
    rig.loop.tick(999)
    assert rig.handled == [1, 2]
    rig.loop.tick(1)  # one second's worth is owed for: one goes on, the other has had its second
    answers = [number for number, code in first.answers + second.answers if code == 2]
    assert sorted(rig.handled[2:] + answers) == waiting
    assert rig.brake.waiting.taken == 0


def test_connections_of_a_user_take_turns(rig):
    rig.quotas(requests=10)
    greedy, modest = Line(1), Line(2)
    for _ in range(19):
        rig.ask(greedy)
    own = rig.ask(modest)
    rig.loop.tick(200)
    assert own in rig.handled  # not behind the eight of the other one
    assert not modest.answers


def test_work_of_clients_waits_and_is_never_refused_and_other_requests_are(rig):
    rig.quotas(requests=1)
    conn = Line()
    rig.ask(conn)
    rig.ask(conn)
    beats = [rig.ask(conn, code=CODE.HEART_BEAT) for _ in range(3)]
    assert rig.handled == [1, 2]
    query = rig.ask(conn, code=CODE.GET_CONSUMER_LIST_BY_GROUP)
    assert conn.answers == [(query, 2)]
    rig.loop.tick(1000)
    assert rig.handled == [1, 2, *beats]


def test_a_closed_connection_and_a_user_who_may_less_get_nothing_done(rig):
    rig.quotas(send_bytes=100)
    gone, there = Line(1), Line(2)
    rig.ask(there, 200)
    rig.ask(gone, 10)
    late = rig.ask(there, 10)
    gone.closed = True
    rig.is_current = False
    rig.loop.tick(1000)
    assert rig.handled == [1]
    assert gone.answers == []
    assert there.answers == [(late, 16)]
    assert rig.brake.waiting.taken == 0


def test_a_change_counts_at_once_for_what_waits(rig):
    rig.quotas(send_bytes=1)
    conn = Line()
    rig.ask(conn, 500)
    rig.quotas(send_bytes=10)
    rig.ask(conn, 9)
    waits = rig.ask(conn, 9)
    assert waits not in rig.handled
    rig.quotas()
    assert waits in rig.handled
    user = rig.book.get("ann")
    assert user is not None
    assert rig.brake.meter_of(user) is None  # without a quota there is nothing to ask
    rig.brake.change_defaults(Quotas(requests=1))
    rig.loop.tick()
    assert rig.brake.meter_of(user) is not None
    rig.quotas(requests=0)  # an own 0 is no limit
    assert rig.brake.meter_of(rig.book.get("ann")) is None


def test_what_waits_of_all_users_is_bounded(rig, monkeypatch):
    monkeypatch.setattr(brake_module, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr(brake_module, "FEW_WAITING_BYTES", 0)
    rig.brake.waiting.few = 0
    rig.quotas(send_bytes=1_000_000)
    conn = Line()
    rig.ask(conn, 1_000_000)
    rig.ask(conn, 10)
    numbers = [rig.ask(conn, 5000) for _ in range(20)]
    assert 0 < len(conn.answers) < len(numbers)
    assert rig.brake.waiting.taken <= 100_000
    rig.loop.tick(1000)
    assert rig.brake.waiting.taken == 0


def test_pulls_take_their_turn_among_sends(rig):
    """The requests of a second are shared, so sends alone must not use all of them."""

    class Held:
        def __init__(self) -> None:
            self.waiting = list(range(5))
            self.gone: list[int] = []

        def first_held(self, place: object) -> int | None:
            return self.waiting[0] if self.waiting else None

        def is_admitted(self, request: int) -> bool:
            return False

        def let_go(self, request: int) -> None:
            self.waiting.remove(request)
            self.gone.append(request)

    rig.quotas(requests=10)
    conn, held = Line(), Held()
    for _ in range(15):
        rig.ask(conn)
    assert not rig.meter().admits_pull()
    rig.meter().over(held)
    rig.loop.tick(450)
    assert 1 <= len(held.gone) < 5
    assert len(rig.handled) > 11
    rig.loop.tick(1000)
    assert held.gone == list(range(5))
    rig.loop.tick(1000)
    assert rig.meter().room is None


def test_connections_beyond_the_quota_are_refused_and_the_newest_are_closed(rig):
    rig.quotas(connections=2)
    user = rig.book.get("ann")
    lines = [Line(number) for number in range(1, 5)]
    for conn in lines[:2]:
        rig.brake.enter(user, conn)
        rig.brake.enter(user, conn)
    with pytest.raises(Exception, match="2 connections"):
        rig.brake.enter(user, lines[2])
    rig.loop.tick()
    assert lines[2].flushed
    assert not lines[0].flushed
    rig.brake.leave(lines[0])
    rig.brake.enter(user, lines[3])
    assert rig.brake.connections_of("ann") == 2
    shared = lines[3]
    shared.principals |= {"bob"}
    rig.quotas(connections=1)
    assert not lines[1].closed
    assert not shared.closed  # bob signs on it, too
    assert shared.principals == {"bob"}
    assert rig.brake.connections_of("ann") == 1


@pytest.mark.parametrize("wrong", [-1, MOST_QUOTA_BYTES + 1, 1 << 70, float("nan"), 1.5, True, "7"])
def test_what_is_no_quota_is_refused_and_not_kept(rig, wrong):
    for name in NAMES:
        with pytest.raises(BookRefusal, match="number from 0"):
            rig.quotas(**{name: wrong})
    assert rig.book.get("ann").account.quotas == Quotas()


def test_quotas_are_in_the_journal_and_one_of_before_is_read(tmp_path):
    path = tmp_path / "access.journal"
    book = Book(path)
    book.create("old", "an older secret")
    assert b"quotas" not in path.read_bytes()  # as it was written before there were any
    quotas = Quotas(requests=7, pull_bytes=0)
    book.change("old", of_known("old", lambda one: Account("old", one.secrets, quotas=quotas)))
    book.close()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    again = Book(path)
    assert again.get("old").account.quotas == quotas
    again.close()
    for cut in range(first, len(whole) + 1):
        path.write_bytes(whole[:cut])
        torn = Book(path)
        assert torn.get("old").account.quotas == (quotas if cut == len(whole) else Quotas())
        torn.close()


def test_fifty_thousand_meters_are_small(rig):
    meters = []
    tracemalloc.start()
    try:
        for number in range(50_000):
            meter = Meter(rig.brake, sys.intern("ann"), Quotas(send_bytes=number + 1))
            meter.passes(RemotingCommand(CODE.SEND_MESSAGE_V2), Line(), 1, lambda: True, lambda: None)
            meters.append(meter)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(meters) < 700, f"{taken / len(meters):.0f} bytes each"
