"""The part of the window about transactions: open, discarded and ended ones, and what administrators do about them."""

from __future__ import annotations

from collections.abc import Sequence

from . import transactions_snapshots as t
from .transactions import Wanted
from .waiting_window import WaitingWindow

#: One transaction; also as (half offset, unique id or None), for callers that import nothing of the engine.
HalfPlaceLike = t.HalfPlace | tuple[int, str | None]


class TransactionsWindow(WaitingWindow):
    """Any thread; reads in the caller's, and ends a question after 250 ms."""

    def transaction_counts(self) -> t.TransactionCounts:
        """How many are open, and what happened since the start."""
        return self._running().transactions.counts()

    def open_transactions(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> t.OpenTransactionPage:
        """A page of transactions that nobody has decided, the oldest first.

        topic: where they are to go. group: their producers'. key: their unique id, or one of their keys. The list is
        live: what ends meanwhile is left out. `next_cursor` goes with the same filter. limit: 1 to 500. InvalidInput.
        """
        return self._running().transactions.open(Wanted(topic, group, key), cursor, limit)

    def open_transactions_at(self, half_offsets: Sequence[int]) -> tuple[t.OpenTransaction | None, ...]:
        """Those of these half messages (1000 at most); None for each that is not open."""
        views = self._running().transactions
        return tuple(views.one_open(offset) for offset in half_offsets[:1000])

    def discarded_transactions(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> t.DiscardedTransactionPage:
        """A page of transactions that were set aside, as nobody had decided them; the newest first. As
        `open_transactions`."""
        return self._running().transactions.discarded(Wanted(topic, group, key), cursor, limit)

    def resolved_transactions(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        key: str | None = None,
        how: str | None = None,
        by: str | None = None,
        from_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> t.ResolvedTransactionPage:
        """A page of transactions that have ended, the newest first; the last million is kept.

        how: "committed", "rolled_back", "discarded" or "lost". by: "producer", "check", "administrator" or "broker".
        from_ms: those that ended since, by the wall clock. Otherwise as `open_transactions`. Unavailable.
        """
        return self._running().transactions.ended(Wanted(topic, group, key), how, by, from_ms, cursor, limit)

    def act_on_transactions(
        self,
        action: str,
        places: Sequence[HalfPlaceLike] = (),
        *,
        topic: str | None = None,
        group: str | None = None,
        key: str | None = None,
        reason: str = "",
        limit: int = 1000,
        dry_run: bool = False,
        by: str = "",
    ) -> t.TransactionAct:
        """Have producers asked now, or decide transactions for them.

        action: "check" (a producer of its group is asked at once; that is none of its checks, and of no harm), "commit"
        or "roll_back". What the latter two decide may contradict what the producer's own records say: ask for a
        reason, which is kept with `by`. They are durable when this returns, also in a broker that is killed on the way,
        and take 1 to 100 places; "check" takes up to 1000, or the first `limit` ones that fit the filter, all without
        one. dry_run: the same checks, nothing changes.

        Each has its result, and `counts` add up to `asked`: one that its producer decided in the same moment is no
        error among others, and `decided` says how. Of a single place it is: NotFound (no such half message), Conflict
        (decided before, or another unique id), InvalidInput, Unavailable (no producer is connected, or takes questions;
        it was refused, and is open; or it is written down, and will be done at the next start at the latest).
        """
        wanted = Wanted(topic, group, key)
        named = [one if isinstance(one, t.HalfPlace) else t.HalfPlace(*one) for one in places]
        return self._changing().transaction_commands.act(action, named, wanted, reason, limit, dry_run, by)

    def resume_transaction(self, ref: str, *, reason: str, by: str = "") -> t.ResumedTransaction:
        """Have the producers of a discarded transaction asked again, from the beginning: a half message like it is
        stored. It does not commit anything. Each is resumed once.

        ref: of the message in TRANS_CHECK_MAX_TIME_TOPIC, as for `message`. NotFound, InvalidInput (it is none),
        Conflict (it was resumed before), Unavailable (nothing can be stored now).
        """
        return self._changing().transaction_commands.resume(ref, reason, by)
