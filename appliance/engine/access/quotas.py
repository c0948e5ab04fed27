"""Quotas of a user of the wire: bytes sent and pulled and requests in a second, and connections. PURE.

A `Bucket` is one number, the time at which everything taken so far is paid for, so it is filled by the passing of time
alone. A user who was idle may take one second's worth at once. A user without a debt may take any amount, so the
largest message passes under the smallest quota; the next one waits until that is paid for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ..config import MOST_QUOTA_BYTES, MOST_QUOTA_CONNECTIONS, MOST_QUOTA_REQUESTS

#: Largest burst after a pause, in seconds of the quota.
BURST_S = 1.0


class Quotas(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Quotas of one user, or the defaults. Bytes and requests are of a second. None: the default counts. 0: no
    limit. unknown: see `unknown_fields.py`."""

    send_bytes: int | None = None
    pull_bytes: int | None = None
    requests: int | None = None
    connections: int | None = None
    unknown: str = ""

    def over(self, defaults: Quotas) -> Quotas:
        """Return these, with the defaults where there is none."""
        missing = {name: getattr(defaults, name) for name, own in self.items() if own is None}
        return msgspec.structs.replace(self, **missing)

    def items(self) -> Iterator[tuple[str, int | None]]:
        """Yield each quota's name and number."""
        return ((name, getattr(self, name)) for name in NAMES)

    @property
    def limit_flow(self) -> bool:
        """True if anything of a second is limited."""
        return bool(self.send_bytes or self.pull_bytes or self.requests)


#: Name of each quota -> the largest that is taken.
NAMES: Mapping[str, int] = {
    "send_bytes": MOST_QUOTA_BYTES,
    "pull_bytes": MOST_QUOTA_BYTES,
    "requests": MOST_QUOTA_REQUESTS,
    "connections": MOST_QUOTA_CONNECTIONS,
}


def wrong_quota(name: str, number: object) -> bool:
    """True if a quota cannot be this one. number: anything that a journal or a caller may give."""
    if number is None:
        return False
    return not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= NAMES[name]


class Bucket:
    """One quota of one user, in units a second. Times are seconds of one monotonic clock."""

    __slots__ = ("_paid_at", "rate")

    def __init__(self, rate: int, now: float) -> None:
        """rate: 0 for no limit."""
        self.rate = rate
        self._paid_at = now - BURST_S

    def wait_s(self, now: float) -> float:
        """Return the seconds until more may be taken; 0 or less: now."""
        return self._paid_at - now if self.rate else 0.0

    def take(self, amount: int, now: float) -> None:
        """Take some, now."""
        if self.rate:
            self._paid_at = max(self._paid_at, now - BURST_S) + amount / self.rate

    def change(self, rate: int, now: float) -> None:
        """Use another rate. The debt under the old one is forgiven, and no burst is given."""
        if rate != self.rate:
            self.rate = rate
            self._paid_at = now
