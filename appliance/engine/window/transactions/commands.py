"""Commands on transactions: check now, commit, roll back, resume."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Unpack

from ...broker.transactions.admin_acts import COMMIT, ROLL_BACK, AdminActs, Chosen, Decided, Fate
from ...broker.transactions.admin_journal import MOST_REASON
from ...broker.transactions.half import Half
from ...errors import AdminError, Conflict, InvalidInput, NotFound, Unavailable
from ...protocol.message_id import encode_offset_id
from ...protocol.record import Record
from ..refusals import require_one_of, require_within
from ..sentences import Sentence, say
from .snapshots import HalfPlace, ResolvedTransaction, ResumedTransaction, TransactionAct, TransactionOutcome
from .views import Filters, TransactionViews, Wanted

logger = logging.getLogger(__name__)

CHECK = "check"
ACTIONS = (CHECK, COMMIT, ROLL_BACK)
#: Transactions that one act checks, or decides; fewer of the latter, so that the user looks at each.
MOST_CHECKED = 1000
MOST_DECIDED = 100
POSSIBLE = "possible"
_DONE = frozenset((Fate.DONE, Fate.ASKED))
_MAX_OFFSET = (1 << 62) - 1
#: Fate -> code of its sentence.
_WHY = {
    Fate.GONE: "half_gone",
    Fate.ANOTHER: "half_another",
    Fate.NO_PRODUCER: "half_no_producer",
    Fate.BUSY: "half_busy",
    Fate.REFUSED: "half_refused",
    Fate.UNSURE: "half_unsure",
    Fate.NOT_SAVED: "half_not_saved",
}

#: One transaction; also as (half offset, unique id or None), for callers that import nothing of the engine.
HalfPlaceLike = HalfPlace | tuple[int, str | None]


class TransactionCommands:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        views: TransactionViews,
        acts: AdminActs,
        producers: Callable[[str], int],
        record: Callable[[str], tuple[Record, bytes]],
        store_host: bytes,
    ) -> None:
        """producers: returns how many of a group are connected. record: returns the record of a ref, as
        MessageViews.record."""
        # Constant after construction.
        self._views = views
        self._acts = acts
        self._producers = producers
        self._record = record
        self._store_host = store_host

    def act(
        self,
        action: str,
        places: Sequence[HalfPlaceLike] = (),
        *,
        reason: str = "",
        limit: int = 1000,
        dry_run: bool = False,
        by: str = "",
        **filters: Unpack[Filters],
    ) -> TransactionAct:
        """Have producers decide transactions now, or decide them for the producers.

        action: "check" (a producer of the group is asked at once; harmless, and not counted as a check), "commit" or
        "roll_back". The latter two may contradict the producer's own records: ask the user for a reason, which is kept
        with `by`. They are durable when this returns, even if the broker is killed meanwhile, and take 1 to 100 places.
        "check" takes up to 1000 places, or the first `limit` transactions that match the filter (all match without
        one). dry_run: the same checks, nothing changes.

        Each transaction has its result, and `counts` add up to `asked`: among several, one that its producer decided at
        the same moment is no error, and `decided` has its end. For a single place it is an error: NotFound (no such
        half message), Conflict (decided before, or another unique id), InvalidInput, Unavailable (no producer is
        connected, or accepts a check; the decision was refused, and the transaction is open; or the decision is
        recorded, and will be carried out at the next start at the latest).
        """
        begin = time.monotonic()
        wanted = Wanted(**filters)
        named = [one if isinstance(one, HalfPlace) else HalfPlace(*one) for one in places]
        require_one_of("action", action, ACTIONS)
        require_within("limit", limit, 1, MOST_CHECKED)
        if named and not wanted.anything:
            raise InvalidInput("places", say("half_places_or_filter"))
        for place in named:
            if not 0 <= place.half_offset <= _MAX_OFFSET:
                raise InvalidInput("places", say("half_bad_place"))
        more = False
        if action == CHECK:
            results, more = self._check(named, wanted, limit, dry_run)
        else:
            results = self._decide(action, named, _reason(reason), dry_run, by)
        outcomes = tuple(self._outcome(one, dry_run) for one in results)
        act = TransactionAct(
            action=action,
            dry_run=dry_run,
            asked=len(outcomes),
            done=0 if dry_run else sum(one.fate in _DONE for one in results),
            counts=dict(Counter(one.outcome for one in outcomes)),
            results=outcomes,
            more=more,
            took_ms=(time.monotonic() - begin) * 1000,
        )
        if action == CHECK and not dry_run:
            logger.info("admin: producers asked now asked=%d counts=%s by=%s", act.asked, act.counts, by)
        if len(named) == 1:
            _refuse(results[0], outcomes[0])
        return act

    def _check(
        self, places: Sequence[HalfPlace], wanted: Wanted, limit: int, dry_run: bool
    ) -> tuple[list[Decided], bool]:
        found: list[Decided] = []
        halves: list[Half] = []
        more = False
        if places:
            if len(places) > MOST_CHECKED:
                raise InvalidInput("places", say("half_places_needed", limit=MOST_CHECKED))
            found = [self._acts.look(Chosen(place.half_offset, place.unique_id)) for place in places]
            halves = [one.half for one in found if one.fate is Fate.DONE and one.half is not None]
        else:
            halves, more = self._views.find_open(wanted, limit)
            found = [Decided(Chosen(half.record.queue_offset), Fate.DONE, half) for half in halves]
        if dry_run:
            return [self._look(one) for one in found], more
        asked = iter(self._acts.ask_now(halves))
        return [next(asked) if one.fate is Fate.DONE else one for one in found], more

    def _look(self, one: Decided) -> Decided:
        if one.fate is Fate.DONE and one.half is not None and not self._producers(one.half.group):
            return one._replace(fate=Fate.NO_PRODUCER)
        return one

    def _decide(self, action: str, places: Sequence[HalfPlace], reason: str, dry_run: bool, by: str) -> list[Decided]:
        if not 1 <= len(places) <= MOST_DECIDED or len({place.half_offset for place in places}) < len(places):
            raise InvalidInput("places", say("half_places_needed", limit=MOST_DECIDED))
        chosen = [Chosen(place.half_offset, place.unique_id) for place in places]
        return [self._acts.look(one) for one in chosen] if dry_run else self._acts.decide(action, chosen, reason, by)

    def _outcome(self, one: Decided, dry_run: bool) -> TransactionOutcome:
        decided = None
        if one.fate is Fate.DECIDED and one.half is not None:
            decided = self._views.end_of(one.chosen.half_offset, one.half.record.physical_offset)
        return TransactionOutcome(
            half_offset=one.chosen.half_offset,
            unique_id=one.chosen.unique_key if one.half is None else one.half.unique_key,
            outcome=POSSIBLE if dry_run and one.fate is Fate.DONE else one.fate.value,
            why=_why_decided(decided) if one.fate is Fate.DECIDED else _why(one),
            decided=decided,
        )

    def resume(self, ref: str, *, reason: str, by: str = "") -> ResumedTransaction:
        """Resume a discarded transaction: store a half message like it, which is checked with its producers from the
        beginning. This does not commit anything. Each is resumed once.

        ref: of the message in TRANS_CHECK_MAX_TIME_TOPIC, as for `message`. NotFound, InvalidInput (it is not a
        discarded transaction), Conflict (it was resumed before), Unavailable (nothing can be stored now).
        """
        record = self._record(ref)[0]
        try:
            done = self._acts.resume(record.physical_offset, _reason(reason), by)
        except Conflict:
            raise Conflict(say("resumed_before")) from None
        except InvalidInput as error:
            raise (error if error.sentence else InvalidInput("ref", say("not_discarded"))) from None
        except Unavailable as error:
            raise Unavailable(say("not_resumed", reason=str(error).rstrip("."))) from None
        offset_id = encode_offset_id(self._store_host, done.physical_offset)
        return ResumedTransaction(done.half_offset, offset_id, done.unique_key)


def _reason(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        raise InvalidInput("reason", say("half_reason_missing"))
    if len(text) > MOST_REASON:
        raise InvalidInput("reason", say("half_reason_long", count=len(text), limit=MOST_REASON))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("reason", say("no_unicode")) from None
    return text


def _why(one: Decided) -> Sentence | None:
    code = _WHY.get(one.fate)
    return None if code is None else say(code, reason=one.reason)


def _why_decided(decided: ResolvedTransaction | None) -> Sentence:
    """Return the sentence of who had decided the transaction before, as far as that is kept."""
    if decided is None or decided.how == "lost":
        return say("half_decided")
    if decided.how == "discarded":
        return say("half_set_aside")
    if decided.by == "administrator":
        return say(f"half_{decided.how}_by_admin", admin=decided.admin or "?")
    return say(f"half_{decided.how}_by_producer")


def _refuse(one: Decided, outcome: TransactionOutcome) -> None:
    """Raise the error of an act on a single transaction that was not done."""
    why = outcome.why or ""
    error: AdminError
    if one.fate in _DONE:
        return
    if one.fate is Fate.GONE:
        error = NotFound("transaction", str(one.chosen.half_offset))
    elif one.fate in (Fate.DECIDED, Fate.ANOTHER):
        error = Conflict(why)
    else:
        error = Unavailable(why)
    raise error
