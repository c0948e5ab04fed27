"""Faults put into a store on purpose, each of them one a broker really had: the crashes must find every one."""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.broker.replay.journal import Line, TargetLine
from appliance.engine.broker.replay.run import Run
from tests.crash.life import Life
from tests.crash.replay_life import ReplayLife


def acknowledge_before_sync(life: Life) -> None:
    """Sync flush answers when a tick is written."""
    life.store.publication.watermarks.pop("durable", None)


def forget_directories(life: Life) -> None:
    """Files are synced, their names are not."""
    life.disk._sync_directory = lambda path: None


def read_position_after_sync(life: Life) -> None:
    """Count bytes that were written while the sync was under way as synced."""
    log = life.store.log

    def sync() -> int:
        begin = log.durable
        for segment in log.segments:
            if segment.end > begin and segment.start < log.written:
                life.disk.fdatasync(segment.fd)
        log.durable = log.written
        return log.durable

    log.sync = sync


def leave_no_abort_file(life: Life) -> None:
    """Every stop looks like a clean one."""
    life.store.files.mark_running = lambda: None


def save_position_early(life: Life) -> None:
    """Queue entries and the recovery position do not wait for the log below them."""
    life.store._flush_queues._wait_durable = lambda position, running: True


def believe_any_count(life: Life) -> None:
    """Save the recovery position before the queue files are synced, and skip the count of their entries."""
    service = life.store._flush_queues
    save, sync = service._save_position, service.files.sync
    service.files.sync = lambda: None

    def save_then_sync(current) -> None:
        save(current)
        sync()

    service._save_position = save_then_sync
    saved = life.store.files.lock_and_check

    def without_count() -> None:
        saved()
        position = life.store.files.recovery_position
        if position.position is not None:
            position.position = position.position._replace(entries=AnyCount())

    life.store.files.lock_and_check = without_count


class AnyCount(int):
    """Equal to every count."""

    def __ne__(self, other: object) -> bool:
        return False

    __eq__ = int.__eq__
    __hash__ = int.__hash__


def forget_the_journal(life: Life) -> None:
    """A message is acknowledged in a topic whose entry is not durable."""
    life.before_log = lambda: None


def delete_young_files(life: Life) -> None:
    """One log file more than was asked for is deleted."""
    cleaner = life.store.cleaner
    take = cleaner._take_first
    cleaner._take_first = lambda: take() and take()


def unlink_in_any_order(life: Life) -> None:
    """Log files are unlinked newest first: a crash in between leaves a log with a gap."""
    cleaner = life.store.cleaner
    take = cleaner._take_first

    def take_two() -> bool:
        done = take()
        take()
        cleaner._leaving.reverse()
        return done

    cleaner._take_first = take_two


def save_undurable_progress(life: Life) -> None:
    """A delayed message counts as delivered when its copy is published."""
    life.progress._durable = lambda: 1 << 62


def save_what_is_under_way(life: Life) -> None:
    """A delayed message counts as delivered when it was handed over."""
    submit = life.delivery._submit

    def submit_and_count(level, *batch) -> bool:
        done = submit(level, *batch)
        life.progress.reached(level.number, level.position, -1)
        return done

    life.delivery._submit = submit_and_count


def forget_undurable_timers(life: Life) -> None:
    """A timer is done with when its copy was stored, durable or not."""
    life.index._durable = lambda: 1 << 60


def announce_targets_late(life: ReplayLife) -> None:
    """A replay's journal says where the target ended only once copies are there."""
    journal = life.service.journal
    append, held = journal.append, list[Line]()

    def late(job: str, *lines: Line) -> None:
        if all(isinstance(line, TargetLine) for line in lines):
            held.extend(lines)
            return
        append(job, *held, *lines)
        held.clear()

    journal.append = late


def before_each_turn(life: ReplayLife, sabotage: Callable[[Run], None]) -> None:
    """Runs come and go."""
    work = life.service.work

    def sabotaged() -> None:
        for run in life.service._runs.values():
            sabotage(run)
        work()

    life.service.work = sabotaged


def resume_without_reading(life: ReplayLife) -> None:
    """A resumed replay does not look for what is stored already."""
    before_each_turn(life, lambda run: setattr(run, "checking", False))


def journal_before_sync(life: ReplayLife) -> None:
    """A replay's journal is ahead of the durable log."""
    before_each_turn(life, lambda run: setattr(run, "_is_durable", lambda mark: True))


SABOTAGES = [
    acknowledge_before_sync,
    forget_directories,
    read_position_after_sync,
    leave_no_abort_file,
    save_position_early,
    believe_any_count,
]
#: These need the broker's tables beside the store.
SERVICE_SABOTAGES = [delete_young_files, unlink_in_any_order]
REPLAY_SABOTAGES = [announce_targets_late, resume_without_reading, journal_before_sync]
TABLE_SABOTAGES = [forget_the_journal, forget_directories]
TIMER_SABOTAGES = [forget_undurable_timers]
DELAY_SABOTAGES = [save_undurable_progress, save_what_is_under_way]
