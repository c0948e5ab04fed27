"""Jobs at work in a running broker: which copies arrive where, the counts, and how a job goes on after a restart."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.engine.broker.replay import run as replay_run
from appliance.engine.broker.replay import service as replay_service
from appliance.engine.broker.replay.history import MOST_JOBS
from appliance.engine.broker.replay.job import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    TO_GROUP,
    TO_ORIGINAL,
    TO_TOPIC,
    JobSpec,
    Result,
    Span,
)
from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAY_PROOF, REPLAY_SEQ, REPLAYED
from appliance.engine.broker.replay.run import Run
from appliance.engine.broker.replay.service import JobView, Refused, ReplayService, new_job_id
from appliance.engine.clock import SYSTEM
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties
from tests.support.clock import FakeClock
from tests.support.dead_letters import (
    BORN_MS,
    copies,
    dead_letter,
    make_group,
    properties_of,
    put,
    put_dead_letters,
)
from tests.support.engine import RunningEngine, start_engine
from tests.support.waiting import wait_for


def service(running: RunningEngine) -> ReplayService:
    broker = running.engine.broker
    assert broker is not None
    return broker.replays


def spec_of(running: RunningEngine, group: str = "G", **more: Any) -> JobSpec:
    broker = running.engine.broker
    assert broker is not None
    _, end = broker.store.offset_range(f"%DLQ%{group}", 0)
    fields: dict[str, Any] = {
        "id": new_job_id(broker.store.scheduler.wall_ms), "group": group, "target": TO_GROUP,
        "topic": f"%RETRY%{group}", "spans": (Span(0, 0, end),), "rate": 10_000, "max_replays": 3, "by": "ann",
        "created_ms": broker.store.scheduler.wall_ms + 1,
    }  # fmt: skip
    return JobSpec(**(fields | more))


def start(running: RunningEngine, group: str = "G", **more: Any) -> JobView:
    return service(running).start_job(spec_of(running, group, **more))


def wait_state(running: RunningEngine, job: str, *states: str) -> JobView:
    def look() -> JobView | None:
        view = service(running).job(job)
        return view if view is not None and view.state.state in states else None

    found = wait_for(look, f"the job is {states}")
    assert found is not None
    return found


def results(running: RunningEngine, view: JobView) -> bytes:
    return service(running).results(view.state.spec.id, 0, view.state.spec.total)


@pytest.fixture
def group(running: RunningEngine) -> RunningEngine:
    make_group(running, "G")
    return running


def test_a_consumer_of_the_group_gets_the_message_as_it_was_with_its_origin(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 3)
    job = wait_state(group, start(group).state.spec.id, DONE)
    found = copies(group, "%RETRY%G")
    assert [record.body for record in found] == [b"body 0", b"body 1", b"body 2"]
    for number, record in enumerate(found):
        properties = properties_of(record)
        assert (record.reconsume_times, record.born_time_ms) == (0, BORN_MS)
        assert properties["RETRY_TOPIC"] == "Orders"
        assert properties["ORIGIN_MESSAGE_ID"] == properties["UNIQ_KEY"] == f"{number:032X}"
        assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == ("paid", f"k{number}", "red")
        assert "DELAY" not in properties
        assert properties[REPLAY_JOB] == job.state.spec.id
        assert (properties[REPLAY_SEQ], properties[REPLAYED]) == (str(number), "1")
    assert copies(group, "Orders", 2) == []
    assert job.counts[Result.REPLAYED] == 3 == sum(job.counts)
    assert results(group, job) == bytes((Result.REPLAYED,)) * 3


def test_to_the_original_topic_each_goes_where_it_came_from(group: RunningEngine) -> None:
    group.window.topic_commands.create("Bills", read_queues=1, write_queues=1)
    put_dead_letters(group, "G", 2)
    put(
        group,
        [
            dead_letter("G", 2, "Bills"),
            dead_letter("G", 3, "Nowhere"),
            dead_letter("G", 4, None),
            dead_letter("G", 5, "SCHEDULE_TOPIC_XXXX"),
            dead_letter("G", 6, "%RETRY%Other"),
        ],
    )
    job = wait_state(group, start(group, target=TO_ORIGINAL, topic="").state.spec.id, DONE)
    assert sorted(record.body for record in copies(group, "Orders", 2)) == [b"body 0", b"body 1"]
    (bill,) = copies(group, "Bills")
    assert bill.body == b"body 2"
    assert "RETRY_TOPIC" not in properties_of(bill), "a retry of it would come back as of another topic"
    assert list(results(group, job)) == [
        1,
        1,
        1,
        Result.NO_TOPIC,
        Result.NO_ORIGIN,
        Result.NOT_WRITABLE,
        Result.NO_TOPIC,
    ]
    assert sum(job.counts) == 7


def test_to_another_topic(group: RunningEngine) -> None:
    group.window.topic_commands.create("Repair", read_queues=2, write_queues=2)
    put_dead_letters(group, "G", 4)
    wait_state(group, start(group, target=TO_TOPIC, topic="Repair").state.spec.id, DONE)
    assert len(copies(group, "Repair", 2)) == 4
    assert copies(group, "%RETRY%G") == []


def test_the_guard_counts_what_came_back_and_what_lies_here(group: RunningEngine) -> None:
    """Replayed twice before it died again, and once since."""
    put(group, [dead_letter("G", 0, **{REPLAYED: "2"}), dead_letter("G", 1)])
    wait_state(group, start(group).state.spec.id, DONE)
    assert [properties_of(record)[REPLAYED] for record in copies(group, "%RETRY%G")] == ["3", "1"]
    second = wait_state(group, start(group).state.spec.id, DONE)
    assert list(results(group, second)) == [Result.GUARD, Result.REPLAYED]
    assert [properties_of(record)[REPLAYED] for record in copies(group, "%RETRY%G")] == ["3", "1", "2"]


def test_the_guard_remembers_over_many_jobs_of_other_messages(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 2)
    first, second = (Span(0, 0, 1),), (Span(0, 1, 2),)
    wait_state(group, start(group, spans=first, max_replays=1).state.spec.id, DONE)
    for _ in range(MOST_JOBS + 1):
        wait_state(group, start(group, spans=second, max_replays=1000).state.spec.id, DONE)
    again = wait_state(group, start(group, spans=first, max_replays=1).state.spec.id, DONE)
    assert list(results(group, again)) == [Result.GUARD]


def test_one_job_a_group_at_a_time(group: RunningEngine) -> None:
    make_group(group, "H")
    put_dead_letters(group, "G", 50)
    put_dead_letters(group, "H", 1)
    first = start(group, rate=1)
    with pytest.raises(Refused) as refused:
        start(group)
    assert (refused.value.kind, refused.value.why.code) == ("conflict", "replay_under_way")
    wait_state(group, start(group, "H").state.spec.id, DONE)
    service(group).cancel(first.state.spec.id, "ann")
    wait_state(group, start(group).state.spec.id, DONE)


def test_pause_resume_cancel_and_the_sum_is_the_total(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 400)
    job = start(group, rate=50).state.spec.id
    wait_for(lambda: len(copies(group, "%RETRY%G")) >= 5, "some are sent")
    view = service(group).pause(job, "bob")
    assert view.state.state == PAUSED
    sent = len(copies(group, "%RETRY%G"))
    assert view.counts[Result.REPLAYED] == sent < 400
    with pytest.raises(Refused):
        service(group).pause(job, "bob")
    assert service(group).resume(job, "bob").state.state == RUNNING
    wait_for(lambda: len(copies(group, "%RETRY%G")) > sent, "it goes on")
    view = service(group).cancel(job, "bob")
    assert view.state.state == CANCELLED
    found = copies(group, "%RETRY%G")
    assert [record.body for record in found] == [b"body %d" % number for number in range(len(found))]
    assert view.counts[Result.REPLAYED] == len(found) == len(results(group, view)) < 400
    for refused in (service(group).resume, service(group).cancel):
        with pytest.raises(Refused):
            refused(job, "bob")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_forward_for_a_while_deletes_no_job(group: RunningEngine, is_restarted: bool) -> None:
    """Else a job's results, and the proof of which letters were sent again, would be gone."""
    broker = group.engine.broker
    assert broker is not None
    put_dead_letters(group, "G", 1)
    job = start(group).state.spec.id
    wait_for(lambda: service(group).job(job).state.finished, "the job to end", 20)
    clock = FakeClock(int(time.time() * 1000))
    ahead_ms = 2 * replay_service.KEEP_MS
    if is_restarted:
        clock.jump(ahead_ms)
    directory = broker.store.paths.own / "replay"
    other = ReplayService(directory, broker.store, broker.sending.appends, broker.topics, broker.groups, clock)
    other.load()
    if not is_restarted:
        other.work()
        clock.jump(ahead_ms)
    other._prune()
    assert other.job(job) is not None
    clock.advance(3_600_000)
    other._prune()
    assert other.job(job) is None, "it has stayed so"


def test_the_rate_is_kept(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 30)
    begin = group.engine.loop.monotonic
    wait_state(group, start(group, rate=30).state.spec.id, DONE)
    assert group.engine.loop.monotonic - begin > 0.7


def test_a_stall_is_caught_up_and_nobody_gets_a_burst() -> None:
    """Batches of 100 at 1,000 a second, with a stall of a second at the tenth: the clock is the test's."""
    now = due = on_time = 0.0
    times = []
    for number in range(200):
        now = max(now, due) + (1.0 if number == 10 else 0.003)
        times.append(now)
        on_time, due = replay_run.next_due(on_time, now, 0.1)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert abs(200 * 0.1 / (times[-1] + 0.1) - 1) < 0.01, "the rate holds on average"
    assert min(gaps) >= 0.08 - 0.01, "never more than a quarter faster"


def test_a_job_goes_on_after_two_restarts_and_nothing_comes_twice(make_running: Callable[..., RunningEngine]) -> None:
    running = make_running()
    make_group(running, "G")
    put_dead_letters(running, "G", 60)
    job = start(running, rate=40).state.spec.id
    for least in (5, 25):
        wait_for(lambda least=least: len(copies(running, "%RETRY%G")) >= least, "some are sent")
        running.restart()
    view = wait_state(running, job, DONE)
    assert [record.body for record in copies(running, "%RETRY%G")] == [b"body %d" % n for n in range(60)]
    assert view.counts[Result.REPLAYED] == 60


def test_a_job_that_was_killed_does_not_believe_marks_that_a_stranger_wrote(
    group: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger has read a copy and can repeat all its properties."""
    put_dead_letters(group, "G", 20)
    job = start(group, rate=10).state.spec.id
    wait_for(lambda: copies(group, "%RETRY%G"), "one is sent")
    seen = properties_of(copies(group, "%RETRY%G")[0])
    for number in [*range(20), "letters"]:
        forged = {"UNIQ_KEY": "x", REPLAY_JOB: job, REPLAY_SEQ: str(number), REPLAY_PROOF: seen[REPLAY_PROOF]}
        group.put("%RETRY%G", b"forged", properties=encode_properties(forged))
    with monkeypatch.context() as patched:
        patched.setattr(Run, "leave", lambda self: None)  # as a kill does
        group.restart()
    view = wait_state(group, job, DONE)
    assert view.counts[Result.REPLAYED] == 20
    bodies = [record.body for record in copies(group, "%RETRY%G") if record.body != b"forged"]
    assert bodies == [b"body %d" % number for number in range(20)]


@pytest.mark.parametrize("how", ["stopped", "paused", "saved"])
def test_copies_that_were_found_are_found_again_when_it_ends_before_they_were_passed(
    group: RunningEngine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put_dead_letters(group, "G", 20)
    job = start(group, rate=20).state.spec.id
    wait_for(lambda: len(copies(group, "%RETRY%G")) > 5, "some are sent")
    passes, send_some = [how == "saved"] * 2, Run._send_some
    with monkeypatch.context() as patched:
        patched.setattr(Run, "leave", lambda self: None)  # as a kill does
        patched.setattr(Run, "_send_some", lambda self: send_some(self) if passes and passes.pop() else 0.01)
        patched.setattr("appliance.engine.broker.replay.run.STEP_MESSAGES", 1)
        patched.setattr("appliance.engine.broker.replay.run.SAVE_EVERY_S", 0.0)
        group.restart()
        assert service(group).wait_loaded()
        wait_for(lambda: not service(group).job(job).checking, "it has looked for them")
        if how == "saved":
            wait_for(lambda: service(group).job(job).state.next > 1, "it says how far it is")
        if how == "paused":
            service(group).pause(job, "bob")
        if how == "stopped":
            patched.undo()
            patched.setattr(Run, "_send_some", lambda self: 0.01)
        group.stop()
    group.engine = start_engine(group.data_dir, **group.options)
    if how == "paused":
        assert service(group).wait_loaded()
        service(group).resume(job, "bob")
    wait_state(group, job, DONE)
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body %d" % number for number in range(20)]


def test_a_paused_job_stays_paused_over_a_restart(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 20)
    job = start(group, rate=10).state.spec.id
    service(group).pause(job, "bob")
    sent = len(copies(group, "%RETRY%G"))
    group.restart()
    assert service(group).wait_loaded()
    assert service(group).job(job).state.state == PAUSED
    service(group).resume(job, "bob")
    wait_for(lambda: len(copies(group, "%RETRY%G")) > sent, "it goes on")


def test_a_target_deleted_in_the_middle_ends_the_job(group: RunningEngine) -> None:
    group.window.topic_commands.create("Repair", read_queues=1, write_queues=1)
    put_dead_letters(group, "G", 400)
    job = start(group, rate=20, target=TO_TOPIC, topic="Repair").state.spec.id
    wait_for(lambda: copies(group, "Repair"), "some are sent")
    group.window.topic_commands.delete("Repair", force=True)
    view = wait_state(group, job, FAILED)
    assert view.state.why.code == "replay_target_gone"
    assert 0 < view.counts[Result.REPLAYED] < 400
    assert group.engine.broker.topics.get("Repair") is None


def test_dead_letters_and_groups_deleted_in_the_middle(group: RunningEngine) -> None:
    make_group(group, "H")
    put_dead_letters(group, "G", 400)
    put_dead_letters(group, "H", 400)
    of_g, of_h = start(group, rate=20), start(group, "H", rate=20)
    group.window.group_commands.delete("G", force=True)
    group.window.topic_commands.delete("%DLQ%H", force=True)
    assert wait_state(group, of_g.state.spec.id, FAILED).state.why.code == "replay_group_gone"
    assert wait_state(group, of_h.state.spec.id, FAILED).state.why.code == "replay_letters_gone"


def test_a_target_that_may_not_be_written_pauses_the_job(group: RunningEngine) -> None:
    group.window.topic_commands.create("Repair", read_queues=1, write_queues=1)
    put_dead_letters(group, "G", 400)
    job = start(group, rate=20, target=TO_TOPIC, topic="Repair").state.spec.id
    group.window.topic_commands.edit("Repair", writable=False)
    assert wait_state(group, job, PAUSED).state.why.code == "replay_target_unwritable"
    group.window.topic_commands.edit("Repair", writable=True)
    service(group).resume(job, "ann")
    wait_for(lambda: copies(group, "Repair"), "it goes on")


def test_a_log_that_takes_nothing_pauses_the_job_and_a_restart_lets_it_go_on(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 30)
    job = start(group, rate=20).state.spec.id
    wait_for(lambda: copies(group, "%RETRY%G"), "some are sent")
    log = group.engine.broker.store.log
    group.engine.loop.call_soon(lambda: log.fail("the disk is gone"))
    view = wait_state(group, job, PAUSED)
    assert view.state.why.code == "replay_store_refused"
    assert "the disk is gone" in view.state.why.args["reason"]
    group.restart()
    assert service(group).wait_loaded()
    assert service(group).job(job).state.state == PAUSED
    service(group).resume(job, "ann")
    wait_state(group, job, DONE)
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body %d" % n for n in range(30)]


def test_a_full_disk_pauses_the_job(group: RunningEngine) -> None:
    put_dead_letters(group, "G", 30)
    job = start(group, rate=20).state.spec.id
    log = group.engine.broker.store.log
    group.engine.loop.call_soon(lambda: log.refuse("the disk is full", "test"))
    assert "the disk is full" in wait_state(group, job, PAUSED).state.why.args["reason"]
    group.engine.loop.call_soon(lambda: log.refuse(None, "test"))
    service(group).resume(job, "ann")
    wait_state(group, job, DONE)
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body %d" % n for n in range(30)]


def test_what_a_full_disk_paused_goes_on_by_itself_and_over_a_restart(
    group: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_service, "TRY_AGAIN_S", 0.2)
    monkeypatch.setattr(replay_service, "MOST_WAIT_S", 0.4)
    put_dead_letters(group, "G", 100)  # not done before the disk is full
    job = start(group, rate=20).state.spec.id
    wait_for(lambda: copies(group, "%RETRY%G"), "some are sent")
    log = group.engine.broker.store.log
    group.engine.loop.call_soon(lambda: log.refuse("the disk is full", "test"))
    wait_state(group, job, PAUSED)
    time.sleep(1)
    assert service(group).job(job).state.state in (PAUSED, RUNNING), "it tries, and is refused again"
    sent = len(copies(group, "%RETRY%G"))
    assert sent < 100
    wait_state(group, job, PAUSED)
    group.restart()
    wait_state(group, job, DONE)
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body %d" % n for n in range(100)]


def test_what_a_person_paused_waits_for_a_person(group: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_service, "TRY_AGAIN_S", 0.1)
    put_dead_letters(group, "G", 30)
    job = start(group, rate=1).state.spec.id
    service(group).pause(job, "ann")
    time.sleep(1)
    assert service(group).job(job).state.state == PAUSED
    group.restart()
    time.sleep(1)
    assert service(group).job(job).state.state == PAUSED


def test_what_has_expired_or_fits_nowhere_is_said_of_each_message(group: RunningEngine) -> None:
    filler = "x" * (MAX_PROPERTIES_BYTES - len(dead_letter("G", 1, filler="").properties) - 50)
    put(group, [dead_letter("G", 0), dead_letter("G", 1, filler=filler), dead_letter("G", 2)])
    queue = group.engine.broker.store.find_queue("%DLQ%G", 0)
    queue.min_offset = 1
    spans = (Span(0, 0, 3), Span(3, 0, 2))
    job = wait_state(group, start(group, spans=spans).state.spec.id, DONE)
    assert list(results(group, job)) == [Result.GONE, Result.TOO_LONG, Result.REPLAYED, Result.GONE, Result.GONE]


def test_a_journal_that_cannot_be_written_pauses_the_job(group: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    put_dead_letters(group, "G", 60)
    job = start(group, rate=50).state.spec.id
    wait_for(lambda: copies(group, "%RETRY%G"), "some are sent")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(service(group).journal, "append", full)
        view = wait_state(group, job, PAUSED)
    assert view.state.why.code == "replay_journal_failing"
    assert service(group).failure == "No space left on device"
    assert group.engine.broker.failures()["replay"] is not None
    service(group).resume(job, "ann")
    assert service(group).failure is None
    wait_state(group, job, DONE)
    assert [record.body for record in copies(group, "%RETRY%G")] == [b"body %d" % n for n in range(60)]


def test_compressed_bodies_and_senders_of_ipv6_stay_as_they_are(group: RunningEngine) -> None:
    packed = zlib.compress(b"body" * 100)
    letter = replace(dead_letter("G", 0), body=packed, sys_flag=1, flag=7, born_host=encode_host("fd00::1", 5000))
    put(group, [letter])
    wait_state(group, start(group).state.spec.id, DONE)
    (copy,) = copies(group, "%RETRY%G")
    assert (copy.body, copy.sys_flag & 1, copy.flag, copy.born_host) == (packed, 1, 7, ("fd00::1", 5000))


def test_properties_without_a_unique_key(group: RunningEngine) -> None:
    put(group, [replace(dead_letter("G", 0), properties=encode_properties({"RETRY_TOPIC": "Orders"}), unique_key="")])
    wait_state(group, start(group).state.spec.id, DONE)
    assert len(copies(group, "%RETRY%G")) == 1


def test_where_no_job_is_worked_off_jobs_can_be_looked_at(running, tmp_path):
    """A slave does so: a job that ran here is shown as paused, and its journal stays as it was."""
    make_group(running, "G")
    put_dead_letters(running, "G", 10)
    broker = running.engine.broker
    job = start(running, rate=1).state.spec.id
    directory = broker.store.paths.own / "replay"
    before = sorted(path.name for path in directory.iterdir())
    resting = ReplayService(directory, broker.store, broker.sending.appends, broker.topics, broker.groups, SYSTEM)
    assert not resting.wait_loaded(0.0)
    resting.rest()
    assert resting.wait_loaded(0.0)
    (view,) = resting.jobs()
    assert (view.state.spec.id, view.state.state, view.state.why.code) == (job, PAUSED, "replay_rests")
    assert sorted(path.name for path in directory.iterdir()) == before
    assert service(running).job(job).state.state == RUNNING
