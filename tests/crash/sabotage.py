"""Faults put into a store on purpose, each of them one a broker really had: the crashes must find every one."""

from __future__ import annotations

from tests.crash.life import Life


def acknowledge_before_sync(life: Life) -> None:
    """Sync flush answers when a tick is written."""
    life.store.settings = life.store.settings._replace(synchronous=False)


def forget_directories(life: Life) -> None:
    """Files are synced, their names are not."""
    life.disk._sync_directory = lambda path: None


def read_position_after_sync(life: Life) -> None:
    """What was written while the sync was under way counts as synced."""
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
    """The recovery position is saved before the queue files below it are synced."""
    service = life.store._flush_queues
    save, sync = service._save_position, service._files.sync
    service._files.sync = lambda: None

    def save_then_sync(current) -> None:
        save(current)
        sync()

    service._save_position = save_then_sync


SABOTAGES = [
    acknowledge_before_sync,
    forget_directories,
    read_position_after_sync,
    leave_no_abort_file,
    save_position_early,
]
