"""Messages that wait for a time of their own: the parts of their delivery, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ...config import EngineConfig, StoreConfig
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ..sending.sending import Sending
from ..topics import TopicConfigManager
from .claims import Claims
from .delivery import DeliverTimers
from .recall import RecallPath
from .rolling import RollTimers
from .saving import SaveTimers
from .schedule import DIRECTORY, TimerIndex
from .waiting import timer_rules

if TYPE_CHECKING:
    from .early import EarlyTimerActs


class Timers:
    """The index, the threads `deliver-timers` and `save-timers`, and what acts on a message before its time."""

    def __init__(
        self,
        store: MessageStore,
        sending: Sending,
        topics: TopicConfigManager,
        loop: EventLoop,
        options: Callable[[], EngineConfig],
    ) -> None:
        # Constant after construction.
        self._store = store
        self._appends = sending.appends
        self._places = sending.places
        self._topics = topics
        self._loop = loop
        self._options = options
        self.claims = Claims()
        self.index = TimerIndex(store.paths.own / DIRECTORY, store.disk, lambda: store.lasting)
        self.deliver = deliver = DeliverTimers(
            store,
            sending.appends,
            self.index,
            topics.get,
            lambda: options().store.timer_precision_ms,
            self.claims,
            loop.clock,
        )
        sending.places.on_timer = deliver.expect
        sending.places.on_wait = topics.note_heard
        self.save = SaveTimers(store, deliver, deliver.look, options().store.mapped_file_size_timer_log)
        self.roll = roll = RollTimers(
            store, sending.appends, deliver, lambda: options().store.file_reserved_time_hours * 3_600_000
        )
        # A circle: the cleaner asks for a roll, and both threads do a part of it.
        deliver.chores.append(roll.chore)
        self.save.roll = roll
        roll.on_asked, roll.on_wanted = self.save.wakeup, deliver.wakeup

    def join_store(self) -> None:
        """Have the store start and stop the threads, and ask before it deletes log files."""
        self._store.cleaner.keepers.append(self.roll.keep)
        self._store.services += [self.deliver, self.save]

    def take_options(self, store: StoreConfig) -> None:
        self._places.rules = timer_rules(store)

    def recalls(self, refusing: Callable[[], str | None]) -> RecallPath:
        """Return the path of producers' recalls. refusing: as RecallPath's `no_waiting`."""
        wall_ms = self._loop.clock.wall_ms
        return RecallPath(self._appends, self.claims, self._topics.get, self._options, wall_ms, self.deliver, refusing)

    @cached_property
    def early_acts(self) -> EarlyTimerActs:
        """Administrators' acts on messages that wait for a time of their own; loaded at the first use."""
        from .early import EarlyTimerActs

        return EarlyTimerActs(self._store, self._appends, self.deliver, self._topics.get, self._loop.clock)
