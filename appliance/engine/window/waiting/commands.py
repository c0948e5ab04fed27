"""Commands on waiting messages: deliver now, make dead letters, drop."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Unpack

from ...broker.delays.early import EarlyActs
from ...broker.delays.early_batch import Chosen, Ended, Fate
from ...broker.delays.settled import How
from ...broker.timers.early import EarlyTimerActs
from ...errors import AdminError, Conflict, InvalidInput, NotFound, Unavailable
from ..sentences import Sentence, say
from .snapshots import WaitingAct, WaitingOutcome, WaitingPlace
from .timers import TIMED
from .views import Filters, WaitingPlaceLike, WaitingViews, Wanted, named

logger = logging.getLogger(__name__)

#: Messages of one act.
MOST_MESSAGES = 1000
ACTIONS = {"deliver_now": How.DELIVERED, "to_dead_letters": How.DEAD_LETTER, "drop": How.DROPPED}
POSSIBLE = "possible"
#: Fates of messages that no longer wait.
_DONE = frozenset((Fate.DONE, Fate.DONE_FOR_NOW))
#: Fate -> code of its sentence.
_WHY = {
    Fate.DONE_FOR_NOW: "waiting_done_for_now",
    Fate.DELIVERED: "waiting_delivered",
    Fate.HANDLED: "waiting_handled",
    Fate.TAKEN: "waiting_taken",
    Fate.GONE: "waiting_record_gone",
    Fate.ANOTHER: "waiting_another",
    Fate.NO_RETRY: "waiting_no_retry",
    Fate.NO_TOPIC: "waiting_no_topic",
    Fate.REFUSED: "waiting_refused",
    Fate.UNSURE: "waiting_unsure",
    Fate.NOT_SAVED: "waiting_not_saved",
}
_MAX_OFFSET = (1 << 63) - 1


class WaitingCommands:
    """Any thread; waits in the caller's."""

    def __init__(self, views: WaitingViews, acts: EarlyActs, timer_acts: EarlyTimerActs) -> None:
        # Constant after construction.
        self._views = views
        self._acts = acts
        self._timer_acts = timer_acts

    def run(
        self,
        action: str,
        places: Sequence[WaitingPlaceLike] = (),
        *,
        group: str | None = None,
        cursor: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
        by: str = "",
        **filters: Unpack[Filters],
    ) -> WaitingAct:
        """Handle messages before they are due; durable when it returns.

        action: "deliver_now" (store it at once where it goes when due), "to_dead_letters" (retries only), "drop" (it is
        never delivered). Either `places`, or a filter as of `WaitingViews.page` with at least one field: the act takes
        its first `limit` (1 to 1000) messages, those due first; while there are `more`, call again with `next_cursor`
        as the cursor, so that neither handled messages nor impossible ones are looked at again. dry_run: the same
        checks, nothing changes. by: the user, for the log.

        Each message has its result, and `counts` add up to `asked`: among several, one that was delivered at the same
        moment is no error. For a single place it is an error: NotFound (no such message), Conflict (delivered, handled,
        or another unique id), InvalidInput (action, limit, no retry, no such topic), Unavailable (the log or the list
        of handled messages cannot be written; it is delivered when due). A crash meanwhile delivers twice at worst. If
        Apache's broker takes over the directory, it delivers messages of delay levels again that were handled early and
        are not due yet; timed messages it does not.
        """
        wanted = self._views.wanted(group, **filters)
        by_filter = wanted != Wanted()
        begin = time.monotonic()
        how = ACTIONS.get(action)
        if how is None:
            raise InvalidInput("action", say("one_of", field="action", choices=", ".join(ACTIONS)))
        if not 1 <= limit <= MOST_MESSAGES or len(places) > MOST_MESSAGES:
            raise InvalidInput("limit", say("out_of_range", field="limit", low=1, high=MOST_MESSAGES))
        if bool(places) == by_filter or (cursor is not None and not by_filter):
            raise InvalidInput("places", say("waiting_places_or_filter"))
        given = named(places)
        chosen: list[Chosen] = []
        missing: list[WaitingOutcome] = []
        next_cursor = None
        if by_filter:
            found, next_cursor = self._views.find(wanted, cursor, limit)
            chosen = [Chosen(one.level, one.queue_offset, one.physical_offset, one.size) for one in found]
        else:
            for place in given:
                self._choose(place, chosen, missing)
        ended = self._look(how, chosen) if dry_run else self._act(how, chosen)
        if not dry_run:
            for one in ended:
                if one.fate in _DONE:
                    self._views.settled(one.chosen.level, one.chosen.queue_offset)
        results = (*missing, *(_outcome(one, dry_run) for one in ended))
        counts = Counter(result.outcome for result in results)
        act = WaitingAct(
            action=action,
            dry_run=dry_run,
            asked=len(results),
            done=0 if dry_run else sum(one.fate in _DONE for one in ended),
            counts=dict(counts),
            results=results,
            more=next_cursor is not None,
            next_cursor=next_cursor,
            took_ms=(time.monotonic() - begin) * 1000,
        )
        if not dry_run:
            logger.info(
                "admin: %s of waiting messages asked=%d done=%d counts=%s first=%s by=%s",
                action,
                act.asked,
                act.done,
                act.counts,
                f"{results[0].level}/{results[0].queue_offset}" if results else None,
                by,
            )
        if len(places) == 1 and (dry_run or not act.done):
            _refuse(given[0], results[0])
        return act

    def _choose(self, place: WaitingPlace, chosen: list[Chosen], missing: list[WaitingOutcome]) -> None:
        if not TIMED <= place.level < 1 << 31 or not 0 <= place.queue_offset < _MAX_OFFSET:
            raise InvalidInput("places", say("waiting_bad_place"))
        found = self._views.at(place.level, place.queue_offset)
        if found is not None:
            chosen.append(Chosen(place.level, place.queue_offset, found.physical_offset, found.size, place.unique_id))
            return
        fate = Fate.DELIVERED if place.queue_offset < self._views.delivered_to(place.level) else Fate.GONE
        missing.append(
            WaitingOutcome(place.level, place.queue_offset, place.unique_id, fate.value, _why(fate, ""), None)
        )

    def _look(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        """Return the results of a dry run; DONE if the act is possible."""
        return [
            Ended(one, (self._timer_acts if one.level == TIMED else self._acts).look(how, one) or Fate.DONE)
            for one in chosen
        ]

    def _act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        """Act on the chosen messages. Return the results in the order of `chosen`."""
        timed = [one for one in chosen if one.level == TIMED]
        others = [one for one in chosen if one.level != TIMED]
        results = {TIMED: iter(self._timer_acts.act(how, timed)), 1: iter(self._acts.act(how, others))}
        return [next(results[min(one.level, 1)]) for one in chosen]


def _why(fate: Fate, reason: str) -> Sentence | None:
    code = _WHY.get(fate)
    return None if code is None else say(code, reason=reason)


def _outcome(ended: Ended, dry_run: bool) -> WaitingOutcome:
    chosen = ended.chosen
    return WaitingOutcome(
        level=chosen.level,
        queue_offset=chosen.queue_offset,
        unique_id=ended.unique_key or chosen.unique_key,
        outcome=POSSIBLE if dry_run and ended.fate is Fate.DONE else ended.fate.value,
        why=_why(ended.fate, ended.reason),
        copy_place=None if ended.copy is None else f"{ended.copy.topic}/{ended.copy.queue_id}/{ended.copy_offset}",
    )


def _refuse(place: WaitingPlace, result: WaitingOutcome) -> None:
    """Raise the error of an act on a single message that was not done."""
    if result.outcome in (POSSIBLE, Fate.DONE.value, Fate.DONE_FOR_NOW.value):
        return
    fate = Fate(result.outcome)
    why = result.why or ""
    error: AdminError
    if fate is Fate.GONE:
        error = NotFound("message", f"{place.level}/{place.queue_offset}")
    elif fate in (Fate.NO_RETRY, Fate.NO_TOPIC):
        error = InvalidInput("action", why)
    elif fate in (Fate.REFUSED, Fate.UNSURE, Fate.NOT_SAVED):
        error = Unavailable(why)
    else:
        error = Conflict(why)
    raise error
