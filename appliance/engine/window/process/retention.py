"""Retention: the cleaner's rules, its state and what it deleted last, and cleaning at once."""

from __future__ import annotations

from collections.abc import Callable

from ...broker.deleted_unread import DeletedUnread
from ...broker.requested_cleaning import RequestedCleaning
from ...broker.topics import TopicConfigManager
from ...store.message_store import MessageStore
from ..admin_pool import AdminPool
from ..options import Options
from ..refusals import require_one_of
from .system_snapshots import Retention

#: Values of `what` of RetentionPart.clean.
CLEANABLE = ("log", "queues", "topics")


class RetentionPart:
    """Any thread; commands wait in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        options: Options,
        cleaning: RequestedCleaning,
        pool: AdminPool,
        deleted_unread: Callable[[], tuple[DeletedUnread, ...]] = tuple,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._options = options
        self._cleaning = cleaning
        self._pool = pool
        self._deleted_unread = deleted_unread

    def clean(self, what: str, *, by: str = "") -> tuple[str, ...]:
        """Delete expired data now. Return the topics whose queues were deleted. by: the user, for the log.

        what: "log" (expired log files, at any hour), "queues" (entries of every queue whose records have left the log),
        "topics" (queues whose topic has no configuration). The first two continue after the call has returned.
        InvalidInput for anything else; Unavailable.
        """
        require_one_of("what", what, CLEANABLE)
        cleaning = self._cleaning

        def job() -> tuple[str, ...]:
            if what == "log":
                cleaning.clean_log(by or "console")
                return ()
            return tuple((cleaning.clean_queues if what == "queues" else cleaning.clean_topics)(by or "console"))

        return self._pool.run(job)

    def snapshot(self) -> Retention:
        """Return the retention rules, and the cleaner's last state and acts."""
        store = self._store
        config, status, log = self._options.config.store, store.cleaner.status, store.log
        earliest_ms = store.earliest_time_ms()
        return Retention(
            reserved_hours=config.file_reserved_time_hours,
            delete_when=config.delete_when,
            clean_share=status.stages.clean,
            force_share=status.stages.force,
            refuse_share=status.stages.refuse,
            used_share=status.used_share,
            refusing=log.refused_by("disk"),
            failure=status.failure,
            clock_ahead_ms=status.clock_ahead_ms,
            log_begin=log.min_offset,
            log_end=store.published,
            log_files=len(log.segments),
            earliest_ms=earliest_ms if earliest_ms > 0 else None,
            deleted_log_files=status.log_files_deleted,
            deleted_queue_files=status.queue_files_deleted,
            deleted_at_ms=status.deleted_at_ms if status.deleted_at_ms >= 0 else None,
            topic_hours=self._topics.reserve_hours(),
            deleted_unread=self._deleted_unread(),
        )
