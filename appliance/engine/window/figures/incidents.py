"""Counts what went wrong with the broker, for the history. It stays while brokers of other roles come and go."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...broker.role import Role
    from ...store.message_store import MessageStore


class Incidents:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._store: MessageStore | None = None
        #: Incidents of the brokers that have ended, and changes of role.
        self._counted: Counter[str] = Counter()
        #: The sums as of the last `take`; None before the first one.
        self._taken: dict[str, int] | None = None
        self._role: tuple[object, ...] = ()

    def broker_there(self, store: MessageStore, role: Role) -> None:
        """Count this store's incidents from now on, and that the broker's role has changed if it has.

        A member is fenced while it looks for a leader: that by itself is no change. A leader that leads again in
        another epoch is one, since others could have led in between.
        """
        is_serving = role.is_told
        now = (role.kind, role.epoch if role.appends else 0)
        with self._lock:
            self._store = store
            if is_serving:
                self._counted["role_changes"] += bool(self._role) and now != self._role
                self._role = now

    def broker_gone(self) -> None:
        """Keep the counts of the broker that ends, and count none until another one comes."""
        with self._lock:
            self._counted.update(_counts(self._store))
            self._store = None

    def take(self) -> dict[str, float]:
        """Return what happened since the last call, or since the start at the first one; that is the one in which
        `starts` is 1."""
        with self._lock:
            present = _counts(self._store)
            now = {name: self._counted[name] + present.get(name, 0) for name in (*present, "role_changes")}
            before, self._taken = self._taken, now
        known = before or {}
        grown = {name: float(max(0, count - known.get(name, 0))) for name, count in now.items()}
        return {**grown, "starts": float(before is None)}


def _counts(store: MessageStore | None) -> dict[str, int]:
    if store is None:
        return {"refused_sends": 0, "forced_deletions": 0}
    return {"refused_sends": store.failed_puts, "forced_deletions": store.cleaner.status.log_files_forced}
