"""Messages that wait at a delay level: the parts of their delivery, in one place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ...clock import Clock
from ...store.message_store import MessageStore
from ..sending.sending import Sending
from ..topics import TopicConfigManager
from .delivery import DeliverDelayed
from .progress import FILE_NAME, DelayProgress, SaveDelays
from .settled import NAME, SettledDelays, is_in_log

if TYPE_CHECKING:
    from .early import EarlyActs
    from .moving import MoveDelayed

logger = logging.getLogger(__name__)


class Delays:
    """The progress, the threads `deliver-delayed` and `save-delays`, and what acts on a message before it is due."""

    def __init__(
        self,
        store: MessageStore,
        sending: Sending,
        topics: TopicConfigManager,
        members_lack: Callable[[], str],
        clock: Clock,
    ) -> None:
        """members_lack: as `EarlyActs.members_lack`. Raises StartError; nothing stays open then."""
        # Constant after construction.
        self._store = store
        self._appends = sending.appends
        self._topics = topics
        self._dead_letters_of = partial(sending.retries.dead_letters_of, frees=True)
        self._members_lack = members_lack
        self._clock = clock
        self.progress = DelayProgress(store.paths.config / FILE_NAME, lambda: store.lasting, clock, store.disk)
        self.settled = SettledDelays(store.paths.own / NAME, store.disk, self._report)
        try:
            self.settled.load(lambda one: is_in_log(one, store.records))
            self.deliver = DeliverDelayed(
                store, sending.appends, sending.levels.delays_ms, self.progress, topics.get, self.settled, clock
            )
        except BaseException:
            self.settled.close()
            raise
        self.save = SaveDelays(self.progress)

    def _report(self, reason: str) -> None:
        """Log and keep a fault in the list of delayed messages that were handled early."""
        logger.error("settled delays: %s", reason)
        try:
            self._store.files.report("file", f"rocketbox/{NAME}", reason)
        except OSError as error:
            logger.error("settled delays: the finding cannot be kept: %s", error)

    def join_store(self) -> None:
        """Have the store start and stop the threads, and ask before it deletes log files. It stops them when its log is
        durable to the end: then all that was delivered may be saved."""
        self._store.services += [self.deliver, self.save]
        self._store.cleaner.keepers.append(lambda end: self.move.keep(end))

    def close(self) -> None:
        self.settled.close()
        if "move" in self.__dict__:
            self.move.close()

    @cached_property
    def early_acts(self) -> EarlyActs:
        """Administrators' acts on delayed messages before they are due; loaded at the first use."""
        from .early import EarlyActs

        acts = EarlyActs(
            self._store,
            self._appends,
            self.settled,
            self.deliver.delivered_to,
            self._topics.get,
            self._dead_letters_of,
            self._clock,
        )
        acts.members_lack = self._members_lack
        return acts

    @cached_property
    def move(self) -> MoveDelayed:
        """The part that moves delayed messages out of log files that are about to be deleted; loaded at the first
        use."""
        from .moving import MoveDelayed

        return MoveDelayed(
            self._store,
            self._appends,
            self.settled,
            self.deliver,
            self._topics.get,
            self._dead_letters_of,
            self._clock,
        )
