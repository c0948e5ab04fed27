"""The part of the window for transactions: open, discarded and ended ones, and administrators' commands on them."""

from __future__ import annotations

from collections.abc import Sequence

from .transactions import snapshots as t
from .transactions.views import Wanted
from .waiting_window import WaitingWindow

#: One transaction; also as (half offset, unique id or None), for callers that import nothing of the engine.
HalfPlaceLike = t.HalfPlace | tuple[int, str | None]


class TransactionsWindow(WaitingWindow):
    """Any thread; reads in the caller's, and ends a request after 250 ms."""

    def transaction_counts(self) -> t.TransactionCounts:
        """Return the number of open transactions, and counts since the start."""
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
        """Return a page of undecided transactions, the oldest first.

        topic: that they are for. group: their producer group. key: their unique id, or one of their keys. The list is
        live: transactions that end meanwhile are left out. `next_cursor` goes with the same filter. limit: 1 to 500.
        InvalidInput.
        """
        return self._running().transactions.open(Wanted(topic, group, key), cursor, limit)

    def open_transactions_at(self, half_offsets: Sequence[int]) -> tuple[t.OpenTransaction | None, ...]:
        """Return the open transactions of these half messages (1000 at most); None for each that is not open."""
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
        """Return a page of transactions that were set aside because they were not decided, the newest first. As
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
        """Return a page of transactions that have ended, the newest first; the last million is kept.

        how: "committed", "rolled_back", "discarded" or "lost". by: "producer", "check", "administrator" or "broker".
        from_ms: only those that ended since this wall time. Otherwise as `open_transactions`. Unavailable.
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
        wanted = Wanted(topic, group, key)
        named = [one if isinstance(one, t.HalfPlace) else t.HalfPlace(*one) for one in places]
        return self._changing().transaction_commands.act(action, named, wanted, reason, limit, dry_run, by)

    def resume_transaction(self, ref: str, *, reason: str, by: str = "") -> t.ResumedTransaction:
        """Resume a discarded transaction: store a half message like it, which is checked with its producers from the
        beginning. This does not commit anything. Each is resumed once.

        ref: of the message in TRANS_CHECK_MAX_TIME_TOPIC, as for `message`. NotFound, InvalidInput (it is not a
        discarded transaction), Conflict (it was resumed before), Unavailable (nothing can be stored now).
        """
        return self._changing().transaction_commands.resume(ref, reason, by)
