"""A tail: which published messages it shows, and that all others are counted."""

from __future__ import annotations

import random
import time
import zlib

import pytest

from appliance.engine.errors import InvalidInput, NotFound
from appliance.engine.window.messages import tail as tail_module
from appliance.engine.window.messages.snapshots import TailRow
from appliance.engine.window.messages.tail import Tail, Wanted
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine


@pytest.fixture(scope="module")
def broker(request):
    running = RunningEngine(shared_directory(request, "tail"))
    yield running
    running.stop()


@pytest.fixture
def topic(broker, request) -> str:
    name = "t-" + "".join(sign if sign.isalnum() else "-" for sign in request.node.name)[:90]
    broker.window.topic_commands.create(name, read_queues=4, write_queues=4)
    return name


def send(broker, topic: str, body: bytes = b"x", **named) -> None:
    broker.window.sender.send(topic, body, **named)


def watch(broker, topic: str, **wishes) -> Tail:
    tail = broker.window.tails.begin(Wanted(topic, **wishes))
    assert tail is not None
    return tail


def all_of(tail: Tail, until: int) -> tuple[list[TailRow], dict[str, int]]:
    """Look until so many messages have passed; check that the counts of all looks add up."""
    rows: list[TailRow] = []
    counts = dict.fromkeys(("passed", "filtered", "left_out", "unread"), 0)
    for _ in range(2000):
        if counts["passed"] >= until:
            break
        look = tail.look()
        if look is not None:
            rows += look.rows
            for name in counts:
                counts[name] += getattr(look, name)
    assert counts["passed"] == until
    assert counts["passed"] == len(rows) + counts["filtered"] + counts["left_out"] + counts["unread"]
    return rows, counts


def test_it_shows_what_comes_from_now_on_in_order_and_nothing_twice(broker, topic):
    send(broker, topic, b"before")
    tail = watch(broker, topic, body_chars=10, per_second=200)
    assert tail.look() is None
    for number in range(20):
        send(broker, topic, b"%d" % number)
    rows, _ = all_of(tail, 20)
    assert [row.glance for row in rows] == [str(number) for number in range(20)]
    assert tail.look() is None


def test_bodies_are_shown_only_when_asked_for_and_only_their_beginning(broker, topic):
    without, with_them = watch(broker, topic), watch(broker, topic, body_chars=12)
    for body in (b"secret", b"y" * 100, bytes(range(250, 256)) * 9, "äöü€".encode() * 9):
        send(broker, topic, body)
    assert {row.glance for row in all_of(without, 4)[0]} == {None}
    rows = all_of(with_them, 4)[0]
    assert [(row.glance, row.binary, row.cut) for row in rows] == [
        ("secret", False, False), ("y" * 12, False, True), ("fa fb fc fd", True, True), ("äöü€äöü€äöü€", False, True),
    ]  # fmt: skip
    broker.put(topic, zlib.compress(b"packed " * 5000), f=1)
    assert all_of(with_them, 1)[0][0].glance == "packed packe"


def test_tags_keys_and_properties_choose(broker, topic):
    wishes = [
        ({"tags": "a || c"}, lambda tag, key, size: tag in ("a", "c")),
        ({"key": "k1"}, lambda tag, key, size: key == "k1"),
        ({"expression": "size > 5"}, lambda tag, key, size: size > 5),
        ({"tags": "b", "key": "k0", "expression": "size BETWEEN 2 AND 8"},
         lambda tag, key, size: tag == "b" and key == "k0" and 2 <= size <= 8),
    ]  # fmt: skip
    tails = [watch(broker, topic, per_second=200, body_chars=20, **wish) for wish, _ in wishes]
    chance = random.Random(3)
    sent = []
    for number in range(60):
        tag, key, size = chance.choice("abc"), f"k{chance.randrange(2)}", chance.randrange(10)
        send(broker, topic, b"%d" % number, tags=tag, keys=(key, "other"), properties={"size": str(size)})
        sent.append((tag, key, size))
    for tail, (wish, matches) in zip(tails, wishes, strict=True):
        rows, counts = all_of(tail, 60)
        expected = [str(number) for number, one in enumerate(sent) if matches(*one)]
        assert sorted(int(row.glance) for row in rows) == [int(number) for number in expected], wish
        assert counts["filtered"] == 60 - len(expected) > 0


def test_a_tag_with_the_hash_of_another_is_not_shown(broker, topic):
    tail = watch(broker, topic, tags="Aa")
    send(broker, topic, tags="BB")
    send(broker, topic, tags="Aa")
    rows, counts = all_of(tail, 2)
    assert [row.tags for row in rows] == ["Aa"]
    assert counts["filtered"] == 1


@pytest.mark.parametrize("wish", [{}, {"tags": "a"}, {"expression": "n >= 0"}])
def test_one_in_so_many_is_shown(broker, topic, wish):
    tail = watch(broker, topic, one_in=5, per_second=200, **wish)
    shown, left_out = 0, 0
    for _ in range(7):
        for number in range(10):
            send(broker, topic, tags="a", properties={"n": str(number)})
        rows, counts = all_of(tail, 10)
        shown, left_out = shown + len(rows), left_out + counts["left_out"]
    assert (shown, left_out) == (14, 56)


@pytest.mark.parametrize("wish", [{}, {"tags": "a"}, {"expression": "n >= 0"}])
def test_no_more_than_so_many_a_second_are_shown(broker, topic, wish):
    begin = time.monotonic()
    tail = watch(broker, topic, per_second=4, **wish)
    for number in range(100):
        send(broker, topic, tags="a", properties={"n": str(number)})
    rows, counts = all_of(tail, 100)
    assert 1 <= len(rows) <= 2 + 4 * (time.monotonic() - begin)
    assert counts["left_out"] == 100 - len(rows)
    time.sleep(0.5)
    send(broker, topic, tags="a", properties={"n": "1"})
    assert len(all_of(tail, 1)[0]) == 1, "allowed again"


def test_a_topic_that_is_too_fast_is_passed_over_and_that_is_said(broker, topic, monkeypatch):
    monkeypatch.setattr(tail_module, "BACKLOG", 40)
    tail = watch(broker, topic, expression="n >= 0", per_second=200)
    for number in range(200):
        send(broker, topic, properties={"n": str(number)}, queue_id=number % 2)
    rows, counts = all_of(tail, 200)
    assert counts["unread"] == 160
    assert len(rows) == 40


def test_queues_that_come_to_be_later_and_a_topic_made_again_are_watched(broker, topic):
    tail = watch(broker, topic, body_chars=9)
    broker.window.topic_commands.edit(topic, read_queues=8, write_queues=8)
    send(broker, topic, b"seventh", queue_id=7)
    assert [row.glance for row in all_of(tail, 1)[0]] == ["seventh"]
    broker.window.topic_commands.delete(topic, force=True)
    with pytest.raises(NotFound):
        tail.look()
    broker.window.topic_commands.create(topic, read_queues=8, write_queues=8)
    send(broker, topic, b"again", queue_id=7)
    assert [row.glance for row in all_of(tail, 1)[0]] == ["again"]


def test_nobody_can_tell_that_it_watches(broker, topic):
    groups, offsets = broker.window.groups.page(system=True).total, broker.engine.broker.offsets.document()
    tail = watch(broker, topic)
    send(broker, topic)
    assert len(all_of(tail, 1)[0]) == 1
    assert broker.window.groups.page(system=True).total == groups
    assert broker.engine.broker.offsets.document() == offsets
    assert broker.window.topics.consumer_rows(topic) == ()


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"one_in": 0}, "one_in"), ({"per_second": 0}, "per_second"), ({"per_second": 100_000}, "per_second"),
        ({"expression": "a >"}, "expression"), ({"expression": "x" * 5000}, "expression"), ({"key": "k" * 5000}, "key"),
    ],
)  # fmt: skip
def test_what_cannot_be_watched_is_refused(broker, topic, wish, field):
    with pytest.raises(InvalidInput) as refused:
        watch(broker, topic, **wish)
    assert refused.value.field == field
    with pytest.raises(NotFound):
        watch(broker, "no-such-topic")


@pytest.mark.parametrize("tags", ["", "a || b"])
def test_who_comes_again_with_a_place_misses_nothing_and_sees_nothing_twice(broker, topic, tags):
    tails, wanted, dice = broker.window.tails, Wanted(topic, tags=tags), random.Random(5)
    send(broker, topic, b"before", tags="a")
    found = tails.since(wanted, None)
    assert (found.look.rows, found.look.passed) == ((), 0)
    sent, seen = 0, []
    for _ in range(30):
        for _ in range(dice.randrange(5)):
            send(
                broker, topic, str(sent).encode(), tags=dice.choice("ab"), queue_id=dice.randrange(4), keys=[f"k{sent}"]
            )
            sent += 1
        found = tails.since(wanted, found.place, found.matched)
        assert found.look.passed == len(found.look.rows)
        seen += [row.keys[0] for row in found.look.rows]
    assert seen == [f"k{number}" for number in range(sent)]


def test_what_is_more_than_the_limit_is_left_out_and_sampling_goes_on_over_calls(broker, topic):
    tails = broker.window.tails
    begin = tails.since(Wanted(topic), None)
    for number in range(12):
        send(broker, topic, keys=[str(number)])
    look = tails.since(Wanted(topic), begin.place, most=5).look
    assert (len(look.rows), look.left_out, look.passed) == (5, 7, 12)
    found, shown = tails.since(Wanted(topic, one_in=4), None), []
    for number in range(12):
        send(broker, topic, keys=[str(number)])
        found = tails.since(Wanted(topic, one_in=4), found.place, found.matched)
        shown += [row.keys[0] for row in found.look.rows]
    assert shown == ["0", "4", "8"]
    with pytest.raises(NotFound):
        tails.since(Wanted("no-such"), None)


def test_what_there_is_no_time_for_is_counted_as_unread(broker, topic, monkeypatch):
    tails = broker.window.tails
    begin = tails.since(Wanted(topic, tags="a"), None)
    for _ in range(200):
        send(broker, topic, tags="a", queue_id=0)
    monkeypatch.setattr(tail_module, "SINCE_MS", 0.0)
    monkeypatch.setattr(tail_module, "LOOK_MS", 0.0)
    look = tails.since(Wanted(topic, tags="a"), begin.place).look
    assert look.passed == 200 == len(look.rows) + look.unread
    assert look.unread
