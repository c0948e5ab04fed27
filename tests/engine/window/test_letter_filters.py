"""Dead letters by origin, retries, keys and replays: pages, the summary, jobs; and which expire soon."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.errors import InvalidInput
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.window.dead_letters import facts as dead_letter_facts
from appliance.engine.window.dead_letters import walk as letter_walk
from appliance.engine.window.dead_letters.snapshots import ReplayFilter
from appliance.engine.window.snapshots import ByTopic
from tests.support.dead_letters import copies, dead_letter, make_group, properties_of, put
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

ORIGINS = ("Orders", "Refunds", None)


@pytest.fixture
def group(running: RunningEngine) -> RunningEngine:
    """G with 300 dead letters: of three origins in turn, with 3 or 17 retries in turn."""
    make_group(running, "G")
    put(running, [letter(number) for number in range(300)])
    return running


def letter(number: int, **more: str) -> OwnMessage:
    return replace(dead_letter("G", number, ORIGINS[number % 3], **more), reconsume_times=3 if number % 2 else 17)


def all_pages(running: RunningEngine, wanted: dict[str, Any], limit: int = 50, **more: Any) -> list[int]:
    found: list[int] = []
    cursor, seen = None, 0
    while True:
        page = running.window.dead_letters.page("G", wanted=wanted, cursor=cursor, limit=limit, **more)
        found += [row.message.queue_offset for row in page.rows]
        assert page.seen >= seen
        assert len(page.rows) <= limit
        seen, cursor = page.seen, page.next_cursor
        if cursor is None:
            assert page.seen == page.total
            return found


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ({"topic": "Orders"}, lambda n: n % 3 == 0),
        ({"topic": ""}, lambda n: n % 3 == 2),
        ({"topic": "Nobody"}, lambda n: False),
        ({"retries": 3}, lambda n: n % 2 == 1),
        ({"topic": "Refunds", "retries": 17}, lambda n: n % 3 == 1 and n % 2 == 0),
        ({"key": "k17"}, lambda n: n == 17),
        ({"key": f"{99:032X}"}, lambda n: n == 99),
        ({"key": "<b>"}, lambda n: False),
        ({"replayed": "no"}, lambda n: True),
        ({"replayed": "yes"}, lambda n: False),
        ({"replayed": "again"}, lambda n: False),
    ],
)
@pytest.mark.parametrize("limit", [7, 500])
def test_pages_hold_what_the_filter_means_newest_first(group, wanted, meant, limit) -> None:
    assert all_pages(group, wanted, limit) == [n for n in reversed(range(300)) if meant(n)]


def test_what_is_not_known_yet_is_read(group, monkeypatch) -> None:
    """The collected facts end in the middle, and there is no time to collect more."""
    views = group.window._running().dead_letters
    monkeypatch.setattr(dead_letter_facts, "MOST_KEPT", 200)
    assert all_pages(group, {"topic": "Orders"}, 10) == [n for n in reversed(range(300)) if n % 3 == 0]
    [known] = views._facts._queues.values()
    assert 0 < len(known.codes) < 300
    summary = group.window.dead_letters.summary("G")
    assert summary.truncated
    assert summary.counted == len(known.codes)
    assert summary.messages is None
    monkeypatch.setattr(letter_walk, "FILL_MS", -1)
    assert all_pages(group, {"retries": 3}, 10) == [n for n in reversed(range(300)) if n % 2]


def test_a_cursor_belongs_to_its_filter(group) -> None:
    first = group.window.dead_letters.page("G", wanted={"retries": 3}, limit=5)
    with pytest.raises(InvalidInput):
        group.window.dead_letters.page("G", wanted={"retries": 17}, cursor=first.next_cursor)
    with pytest.raises(InvalidInput):
        group.window.dead_letters.page("G", wanted={"replayed": "maybe"})
    with pytest.raises(InvalidInput):
        group.window.dead_letters.page("G", wanted={"retries": -1})


def test_the_summary_adds_up(group) -> None:
    summary = group.window.dead_letters.summary("G")
    assert not summary.truncated
    assert (summary.total, summary.counted, summary.unreadable) == (300, 300, 0)
    counts: Counter[tuple[str, int]] = Counter()
    for cell in summary.cells:
        counts[cell.topic, cell.retries] += cell.count
        assert cell.hour_at_ms <= time.time() * 1000 < cell.hour_at_ms + 2 * 3_600_000
    assert counts == {(topic or "", retries): 50 for topic in ORIGINS for retries in (3, 17)}
    assert (summary.messages, summary.again) == (300, 0)
    put(group, [letter(0, ROCKETBOX_REPLAY_JOB="j", ROCKETBOX_REPLAY_SEQ="0", ROCKETBOX_REPLAYED="1")])
    summary = group.window.dead_letters.summary("G")
    assert (summary.total, summary.counted, summary.messages, summary.again) == (301, 301, 300, 1)
    rows = {row.message.queue_offset: row.copies for row in group.window.dead_letters.page("G", limit=500).rows}
    assert (rows[300], rows[0], rows[1]) == (2, 2, 1), "the same message died twice"


def replayed(running: RunningEngine, **options: Any) -> Any:
    plan = running.window.replay_commands.start("G", rate=10_000, by="ann", **options)
    assert plan.job is not None
    wait_for(lambda: running.window.replays.job(plan.job.id).finished, "the job ends")
    return running.window.replays.job(plan.job.id)


def test_a_job_sends_what_its_filter_means(group) -> None:
    wanted = {"topic": "Orders", "retries": 3}
    plan = group.window.replay_commands.start("G", wanted=wanted, dry_run=True)
    assert (plan.total, plan.scanned, plan.not_chosen, plan.by_topic) == (300, 300, 250, (ByTopic("Orders", 50),))
    job = replayed(group, wanted=wanted)
    assert (job.state, job.replayed, job.not_chosen, job.chosen) == ("done", 50, 250, 50)
    assert job.filter == ReplayFilter(**wanted)
    sent = {properties_of(record)["KEYS"] for record in copies(group, "%RETRY%G")}
    assert sent == {f"k{number}" for number in range(300) if number % 3 == 0 and number % 2}
    results = group.window.replays.results(job.id, result="chosen", limit=500)
    assert len(results.rows) == 50
    assert {row.result for row in results.rows} == {"replayed"}
    assert group.window.replays.results(job.id, limit=1).rows[0].result == "not_chosen"
    # A job with "replayed": "no" leaves out the letters that were replayed before.
    assert all_pages(group, {"replayed": "yes"}) == [n for n in reversed(range(300)) if n % 3 == 0 and n % 2]
    rest = replayed(group, wanted={"topic": "Orders", "replayed": "no"})
    assert (rest.replayed, rest.not_chosen) == (50, 250)
    assert len(copies(group, "%RETRY%G")) == 100


def test_a_filter_outlives_a_restart(group) -> None:
    job = group.window.replay_commands.start("G", wanted={"retries": 3}, rate=10, by="ann").job
    assert job is not None
    wait_for(lambda: group.window.replays.job(job.id).replayed > 0, "it has begun")
    group.restart()
    found = group.window.replays.job(job.id)
    assert (found.filter, found.state) == (ReplayFilter(retries=3), "running")
    group.window.replay_commands.cancel(job.id)


def test_offsets_and_a_filter_are_too_much(group) -> None:
    with pytest.raises(InvalidInput):
        group.window.replay_commands.start("G", offsets=[(0, 1)], wanted={"retries": 3})


def test_what_expires_soon_is_counted(tmp_path) -> None:
    running = RunningEngine(tmp_path / "broker", store={"mapped_file_size_commit_log": 1 << 16})
    try:
        make_group(running, "G")
        put(running, [letter(number) for number in range(600)])
        assert running.window.dead_letters.expiring().total == 0
        log = running.engine.broker.store.log
        first = log.segments[0]
        old = time.time() - 60 * 3600
        assert len(log.segments) > 2
        path = next(path for path in tmp_path.rglob("*") if path.name == f"{first.start:020d}")
        os.utime(path, (old, old))
        # The next file's first record came just now, and the later of the two times counts.
        assert running.window.dead_letters.expiring().total == 0
        found = running.window.dead_letters.expiring(120 * 3_600_000)
        [one] = found.groups
        assert (one.group, found.total) == ("G", one.count)
        inside = [
            row
            for row in running.window.dead_letters.page("G", limit=500).rows
            if row.message.physical_offset < log.segments[-1].start
        ]
        assert one.count == len(inside) + 100
        assert one.first_at_ms > time.time() * 1000
        assert running.window.dead_letters.expiring(120 * 3_600_000) == found
    finally:
        running.stop()


def test_names_that_are_hostile(running: RunningEngine) -> None:
    make_group(running, "G")
    hostile = "=<script>\u202e\x07" + "y" * 300
    put(
        running,
        [
            OwnMessage(
                "%DLQ%G", 0, b"x", encode_properties({"RETRY_TOPIC": hostile, "ORIGIN_MESSAGE_ID": "\0"}), "", 1
            ),
            OwnMessage("%DLQ%G", 0, b"x", "", "", 1),
        ],
    )
    topics = {cell.topic for cell in running.window.dead_letters.summary("G").cells}
    assert topics == {hostile[:255], ""}
    assert all_pages(running, {"topic": hostile}) == [0]
    assert all_pages(running, {"topic": ""}) == [1]
