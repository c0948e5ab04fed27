"""Super users whose signed requests came in clear from another machine. Whoever reads one on the network can send it
again, and other requests that sign alike: making users is one of them. Since the start, in memory."""

from __future__ import annotations

import logging

from ..clock import Clock
from .book import MOST_USERS, Book
from .policies import Address

logger = logging.getLogger(__name__)

#: Time for which such a request counts.
_KEPT_S = 86_400.0


class SupersInClear:
    """Owned by remoting-io, but for `names`."""

    def __init__(self, book: Book, clock: Clock) -> None:
        # Constant after construction.
        self._book = book
        self._clock = clock
        # Name -> time of the newest such request; the newest is the last.
        self._seen: dict[str, float] = {}

    def note(self, name: str, address: Address) -> None:
        """Note a request; the first one of a user is logged."""
        if self._seen.pop(name, None) is None:
            logger.warning(
                "access: the Super user %s signs in clear from=%s: whoever reads that can send it again; use TLS "
                "(rocketbox wire-user require-tls)",
                name,
                address,
            )
        self._seen[name] = self._clock.monotonic()
        if len(self._seen) > MOST_USERS:
            del self._seen[next(iter(self._seen))]

    def names(self) -> list[str]:
        """Return those of the last day who may still do so, sorted. Any thread."""
        since = self._clock.monotonic() - _KEPT_S
        return sorted(name for name, at in list(self._seen.items()) if at >= since and self._may_still(name))

    def _may_still(self, name: str) -> bool:
        user = self._book.get(name)
        if user is None:
            return False
        account = user.account
        return account.is_super and account.is_enabled and not account.requires_tls
