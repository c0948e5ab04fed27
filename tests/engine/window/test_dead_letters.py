"""Dead letters and their replay in the window; the jobs themselves: tests/engine/broker/replay."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAY_SEQ, REPLAYED
from appliance.engine.errors import Conflict, InvalidInput, NotFound, Unavailable
from appliance.engine.window.dead_letters.snapshots import ReplayJob
from appliance.engine.window.sentences import TEMPLATES
from appliance.engine.window.snapshots import ByTopic
from tests.support.dead_letters import copies, dead_letter, make_group, put, put_dead_letters
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000


@pytest.fixture
def group(running: RunningEngine) -> RunningEngine:
    make_group(running, "G")
    return running


def ended(running: RunningEngine, job: str) -> ReplayJob:
    wait_for(lambda: running.window.replays.job(job).finished, "the job ends")
    return running.window.replays.job(job)


def replay(running: RunningEngine, **options: Any) -> ReplayJob:
    job = running.window.replay_commands.start("G", rate=10_000, by="ann", **options).job
    assert job is not None
    return ended(running, job.id)


def adds_up(job: ReplayJob) -> bool:
    parts = (
        job.replayed, job.skipped_by_guard, job.gone, job.failed, job.unknown, job.not_chosen, job.not_reached
    )  # fmt: skip
    return sum(parts) == job.total


def test_a_dead_letter_says_where_it_comes_from_and_how_long_it_stays(group: RunningEngine) -> None:
    put(group, [dead_letter("G", 0), dead_letter("G", 1, None)])
    now_ms = time.time() * 1000
    page = group.window.dead_letters.page("G")
    newer, older = page.rows
    assert (older.origin_topic, older.origin_id, older.message.unique_id) == ("Orders", f"{0:032X}", f"{0:032X}")
    assert newer.origin_topic is None
    assert (older.message.reconsume_times, older.message.tags, older.message.keys) == (17, "paid", ("k0",))
    assert abs(older.message.stored_at_ms - now_ms) < 60_000
    assert older.expires_not_before_at_ms is not None
    # 72 hours after the file's last record, then the next hour of deleteWhen (04)
    assert 72 * HOUR_MS - 60_000 <= older.expires_not_before_at_ms - now_ms <= 97 * HOUR_MS
    assert time.localtime(older.expires_not_before_at_ms / 1000).tm_hour == 4 or (
        older.expires_not_before_at_ms - now_ms < 72 * HOUR_MS + 60_000
    )
    assert (older.times_replayed, older.came_by_job, older.replayed_by) == (0, None, ())
    with pytest.raises(FrozenInstanceError):
        older.origin_topic = "x"  # type: ignore[misc]


def test_pages_walk_a_snapshot(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 7)
    first = group.window.dead_letters.page("G", limit=4)
    put_dead_letters(group, "G", 3, first=7)
    second = group.window.dead_letters.page("G", cursor=first.next_cursor, limit=4)
    assert [row.message.queue_offset for row in first.rows + second.rows] == [6, 5, 4, 3, 2, 1, 0]
    assert (second.total, second.seen, second.next_cursor) == (7, 7, None)
    middle = first.rows[0].message.stored_at_ms
    assert group.window.dead_letters.page("G", to_ms=middle - 60_000).rows == ()


def test_a_topics_own_time_is_shorter(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 1)
    topics = group.engine.broker.topics
    topics._configs["%DLQ%G"] = replace(topics.get("%DLQ%G"), attributes={"reserve.time": "2"})
    (row,) = group.window.dead_letters.page("G").rows
    assert row.expires_not_before_at_ms == row.message.stored_at_ms + 2 * HOUR_MS


def test_the_groups_that_have_dead_letters(group: RunningEngine) -> None:
    make_group(group, "H")
    make_group(group, "Empty")
    put_dead_letters(group, "G", 2)
    put_dead_letters(group, "H", 5)
    page = group.window.dead_letters.groups()
    assert [(row.group, row.count, row.known, row.job) for row in page.rows] == [
        ("H", 5, True, None),
        ("G", 2, True, None),
    ]
    assert all(row.oldest_at_ms <= row.newest_at_ms < row.expires_not_before_at_ms for row in page.rows)
    job = group.window.replay_commands.start("G", rate=1).job
    group.window.group_commands.delete("H", force=True)
    page = group.window.dead_letters.groups(q="", sort="group")
    assert [(row.group, row.known, row.job) for row in page.rows] == [("G", True, job.id), ("H", False, None)]
    assert [row.group for row in group.window.dead_letters.groups(q="h").rows] == ["H"]


def test_a_replay_and_what_is_known_of_it(group: RunningEngine) -> None:
    put(group, [dead_letter("G", 0), dead_letter("G", 1, **{REPLAY_JOB: "old", REPLAY_SEQ: "4", REPLAYED: "3"})])
    plan = group.window.replay_commands.start("G", by="ann")
    assert (plan.total, plan.scanned, plan.by_topic, plan.warnings) == (2, 0, (), ())
    job = ended(group, plan.job.id)
    assert (job.state, job.by, job.group, job.topic, job.target) == ("done", "ann", "G", "%RETRY%G", "group")
    assert (job.replayed, job.skipped_by_guard, job.not_reached) == (1, 1, 0)
    assert adds_up(job)
    page = group.window.replays.results(job.id)
    assert [(row.number, row.queue_offset, row.result) for row in page.rows] == [
        (0, 0, "replayed"),
        (1, 1, "skipped_by_guard"),
    ]
    assert str(page.rows[1].why) == "It has been replayed 3 times or more."
    newer, older = group.window.dead_letters.page("G").rows
    assert (older.times_replayed, older.came_by_job, older.replayed_by) == (1, None, (job.id,))
    assert (newer.times_replayed, newer.came_by_job, newer.replayed_by) == (3, "old", ())
    again = replay(group)
    assert (again.replayed, again.skipped_by_guard) == (1, 1)
    assert group.window.dead_letters.page("G").rows[1].replayed_by == (again.id, job.id)
    assert [found.id for found in group.window.replays.jobs().jobs] == [again.id, job.id]
    assert group.window.replays.jobs("Other").jobs == ()


def test_a_selection_of_offsets_or_of_a_time(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 10)
    job = replay(group, offsets=[(0, 7), (0, 2), (0, 3), (0, 7)])
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body 2", b"body 3", b"body 7"]
    assert job.total == 3
    assert [row.queue_offset for row in group.window.replays.results(job.id).rows] == [2, 3, 7]
    time.sleep(0.005)
    put_dead_letters(group, "G", 2, first=10)
    since = group.window.dead_letters.page("G", limit=1).rows[0].message.stored_at_ms
    assert replay(group, from_ms=since).total == 2
    assert replay(group, to_ms=since - 1).total == 10


def test_results_page_by_page_and_by_kind(group: RunningEngine) -> None:
    put(group, [dead_letter("G", n, **({REPLAYED: "3"} if n % 3 == 0 else {})) for n in range(20)])
    job = replay(group)
    numbers, cursor = [], None
    while True:
        page = group.window.replays.results(job.id, cursor=cursor, limit=3)
        numbers += [row.number for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert numbers == list(range(20))
    guarded, cursor = [], None
    while True:
        page = group.window.replays.results(job.id, result="skipped_by_guard", cursor=cursor, limit=2)
        guarded += [row.number for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert guarded == [0, 3, 6, 9, 12, 15, 18]
    other = replay(group)
    for options in ({"limit": 0}, {"result": "x"}, {"cursor": "x"}):
        with pytest.raises(InvalidInput):
            group.window.replays.results(job.id, **options)
    cursor = group.window.replays.results(other.id, limit=1).next_cursor
    with pytest.raises(InvalidInput):
        group.window.replays.results(job.id, cursor=cursor)


def test_a_dry_run_sends_nothing_and_counts(group: RunningEngine) -> None:
    put(
        group,
        [
            dead_letter("G", 0),
            dead_letter("G", 1),
            dead_letter("G", 2, "Nowhere"),
            dead_letter("G", 3, None),
            dead_letter("G", 4, **{REPLAYED: "3"}),
        ],
    )
    plan = group.window.replay_commands.start("G", dry_run=True)
    assert (plan.total, plan.scanned, plan.truncated, plan.job) == (5, 5, False, None)
    assert {one.topic: one.count for one in plan.by_topic} == {"Orders": 2, "Nowhere": 1, None: 1}
    assert (plan.skipped_by_guard, plan.gone, plan.failed) == (1, 0, 0)
    plan = group.window.replay_commands.start("G", target="original", dry_run=True)
    assert (plan.by_topic, plan.failed) == ((ByTopic("Orders", 2),), 2)
    assert [str(one) for one in plan.warnings] == [TEMPLATES["replay_to_everybody"]]
    assert copies(group, "%RETRY%G") == []
    assert group.window.replays.jobs().jobs == ()
    group.engine.broker.store.find_queue("%DLQ%G", 0).min_offset = 1
    plan = group.window.replay_commands.start("G", offsets=[(0, 0), (0, 1)], dry_run=True)
    assert (plan.gone, plan.by_topic) == (1, (ByTopic("Orders", 1),))


def test_pausing_by_the_window(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 30)
    job = group.window.replay_commands.start("G", rate=1).job
    with pytest.raises(Conflict, match=job.id):
        group.window.replay_commands.start("G")
    paused = group.window.replay_commands.pause(job.id, by="bob")
    assert paused.state == "paused"
    assert adds_up(paused)
    assert group.window.replay_commands.resume(job.id).state == "running"
    gone = group.window.replay_commands.cancel(job.id)
    assert (gone.state, gone.finished) == ("cancelled", True)
    assert adds_up(gone)
    assert gone.not_reached > 0
    rows = group.window.replays.results(job.id, limit=500).rows
    assert len(rows) == 30
    assert sum(row.result == "replayed" for row in rows) == gone.replayed
    for command in (
        group.window.replay_commands.pause,
        group.window.replay_commands.resume,
        group.window.replay_commands.cancel,
    ):
        with pytest.raises(Conflict):
            command(job.id)
        with pytest.raises(NotFound):
            command("nope")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("target", {"target": "everywhere"}),
        ("topic", {"target": "topic"}),
        ("topic", {"target": "topic", "topic": "SCHEDULE_TOPIC_XXXX"}),
        ("topic", {"target": "topic", "topic": "%DLQ%G"}),
        ("topic", {"target": "group", "topic": "Orders"}),
        ("rate", {"rate": 0}),
        ("rate", {"rate": 10_001}),
        ("max_replays", {"max_replays": 0}),
        ("to_ms", {"from_ms": 5, "to_ms": 4}),
        ("from_ms", {"from_ms": -1}),
        ("", {"to_ms": 1}),
        ("offsets", {"offsets": []}),
        ("offsets", {"offsets": [(0, 3)]}),
        ("offsets", {"offsets": [(1, 0)]}),
        ("offsets", {"offsets": [(0, -1)]}),
        ("offsets", {"offsets": [(0, 0)], "from_ms": 1}),
        ("offsets", {"offsets": [(0, 0)] * 10_001}),
    ],
)
def test_what_may_not_be_asked(group: RunningEngine, field: str, options: dict[str, Any]) -> None:
    put_dead_letters(group, "G", 3)
    for dry_run in (True, False):
        with pytest.raises(InvalidInput) as refused:
            group.window.replay_commands.start("G", dry_run=dry_run, **options)
        assert refused.value.field == field
    assert group.window.replays.jobs().jobs == ()


def test_what_there_is_not(group: RunningEngine) -> None:
    group.window.group_commands.create("NoLetters")
    with pytest.raises(NotFound):
        group.window.dead_letters.page("Nope")
    assert group.window.dead_letters.page("NoLetters").total == 0
    for name in ("Nope", "NoLetters"):
        with pytest.raises(NotFound):
            group.window.replay_commands.start(name)
    put_dead_letters(group, "G", 1)
    with pytest.raises(NotFound):
        group.window.replay_commands.start("G", target="topic", topic="Nope")
    group.window.group_commands.delete("G", force=True)
    with pytest.raises(NotFound):
        group.window.replay_commands.start("G")
    assert len(group.window.dead_letters.page("G").rows) == 1
    assert group.window.replay_commands.start("G", target="original").job is not None


def test_journals_cut_in_half_are_listed_and_other_jobs_go_on(group: RunningEngine) -> None:
    make_group(group, "H")
    put_dead_letters(group, "G", 30)
    put_dead_letters(group, "H", 30)
    cut = group.window.replay_commands.start("G", rate=1).job.id
    other = group.window.replay_commands.start("H", rate=20).job.id
    wait_for(lambda: copies(group, "%RETRY%H"), "some are sent")
    directory = group.data_dir / "rocketbox" / "replay"
    group.stop()
    path = directory / f"{cut}.job"
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:40])
    group.engine = type(group)(group.data_dir, **group.options).engine
    (unreadable,) = group.window.replays.jobs().unreadable
    assert unreadable.id == cut
    assert "cannot be read" in str(unreadable.why)
    with pytest.raises(Unavailable):
        group.window.replays.job(cut)
    assert ended(group, other).replayed == 30
    assert [record.body for record in copies(group, "%RETRY%H")] == [b"body %d" % n for n in range(30)]
    assert group.window.replay_commands.start("G").job is not None, "another job may be started"
