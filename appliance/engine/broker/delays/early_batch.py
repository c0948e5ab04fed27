"""The common part of acts on messages that wait at a level (`early.py`) or for a time of their own (`timers/early.py`):
they go in batches, whose copies are stored and waited for.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from ...clock import Clock
from ...errors import Unavailable
from ...store.message_store import MessageStore
from ..sending.durable_soon import durable_soon
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage
from .levels import Place
from .settled import How

logger = logging.getLogger(__name__)

#: Limits of a batch, which remoting-io stages in one go; nothing may hold up that thread for long (D10).
MOST_MESSAGES = 128
MOST_BYTES = 512 * 1024
#: Longest wait for a batch to be stored.
STORED_S = 15.0


class Fate(enum.Enum):
    """Outcome for one message. The first two mean done; after all others it waits, or delivery has it."""

    DONE = "done"
    #: Done, but that cannot be saved now, or not at all members of the set: after a restart or a fail-over before its
    #: due time the message may come again.
    DONE_FOR_NOW = "done_for_now"
    DELIVERED = "delivered"
    HANDLED = "handled"
    TAKEN = "taken"
    GONE = "gone"
    ANOTHER = "another"
    NO_RETRY = "no_retry"
    NO_TOPIC = "no_topic"
    REFUSED = "refused"
    #: It is not known if its copy is stored; the message comes again when it is due.
    UNSURE = "unsure"
    NOT_SAVED = "not_saved"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One message: its level (from 1 on; 0 for a time of its own) and queue offset, and its record's physical offset
    and size according to its entry. unique_key: the one that it must have, None for any."""

    level: int
    queue_offset: int
    physical_offset: int
    size: int
    unique_key: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome for one message. unique_key: "" if its record was not read. copy: where the copy is; copy_offset: its
    queue offset there. reason: the broker's words."""

    chosen: Chosen
    fate: Fate
    unique_key: str = ""
    copy: Place | None = None
    copy_offset: int = -1
    reason: str = ""


class Cannot(Exception):
    """The act cannot be done to this message. fate: why not."""

    def __init__(self, fate: Fate, reason: str = "") -> None:
        super().__init__(reason)
        self.fate = fate


@dataclass(frozen=True, slots=True)
class EarlyWork:
    """A message whose record was read. copy: the message to store in its place, None for none."""

    chosen: Chosen
    unique_key: str
    copy: OwnMessage | None

    def ended(self, fate: Fate, outcome: PutOutcome | None = None, reason: str = "") -> Ended:
        """Return the outcome for this message. outcome: of its copy."""
        if outcome is None or self.copy is None or not outcome.physical_offsets:
            return Ended(self.chosen, fate, self.unique_key, reason=reason)
        place = Place(self.copy.topic, outcome.queue_id)
        return Ended(self.chosen, fate, self.unique_key, place, outcome.queue_offset, reason)


#: Number in the batch -> function that gives the message back to delivery.
Claimed = dict[int, Callable[[], object]]


class EarlyBatches:
    """Acts on messages in batches. Any thread; waits in the caller's. frees: the copies let a log file go."""

    frees = False

    def __init__(self, store: MessageStore, appends: OwnAppends, clock: Clock) -> None:
        # Constant after construction.
        self._store = store
        self._appends = appends
        self._clock = clock

    def act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        """Do the act to each message, in this order; return one outcome each."""
        found: list[Ended] = []
        begin = 0
        while begin < len(chosen):
            end, size = begin, 0
            while end < len(chosen) and end - begin < MOST_MESSAGES and (end == begin or size < MOST_BYTES):
                size += chosen[end].size
                end += 1
            found += self._act(how, chosen[begin:end])
            begin = end
        return found

    def _act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        """Do the same for one batch."""
        raise NotImplementedError

    def _append(
        self, messages: dict[int, OwnMessage], work: Mapping[int, EarlyWork], ended: dict[int, Ended], claimed: Claimed
    ) -> dict[int, PutOutcome]:
        """Store the messages; return number -> outcome of those that are in the log, and enter the others in `ended`.
        If the batch is still under way, its messages leave `claimed`: they go back to delivery when it has ended."""
        try:
            future = self._appends.submit(list(messages.values()), self.frees)
            outcomes = future.result(STORED_S)
        except FutureTimeout:
            _release_after(future, [claimed.pop(number) for number in messages])
            ended.update({number: work[number].ended(Fate.UNSURE) for number in messages})
            return {}
        except Unavailable as error:
            ended.update({number: work[number].ended(Fate.REFUSED, reason=str(error)) for number in messages})
            return {}
        except Exception as error:  # unexpected, on remoting-io: it is not known what is stored
            logger.exception("an early act failed")
            ended.update({number: work[number].ended(Fate.UNSURE, reason=str(error)) for number in messages})
            return {}
        stored = {}
        for number, outcome in zip(messages, outcomes, strict=True):
            if outcome.is_stored:
                stored[number] = outcome
            else:
                ended[number] = work[number].ended(Fate.REFUSED, reason=outcome.reason)
        return stored

    def _durable(self, end: int) -> bool:
        return durable_soon(self._store.log, end, self._clock)


def _release_after(future: Future[list[PutOutcome]], releases: list[Callable[[], object]]) -> None:
    def release(_: object) -> None:
        for one in releases:
            one()

    future.add_done_callback(release)
