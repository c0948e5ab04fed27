"""The store for leadership: three calls that decide, two that inform. Back ends: `stores/`.

Called by the thread `failover` alone; every call is bounded by the store's time-out and tries each endpoint.
"""

from __future__ import annotations

from typing import NewType, Protocol

from ..errors import RocketBoxError

#: Revision of one key, opaque: compared for equality only.
Revision = NewType("Revision", str)


class StoreUnavailable(RocketBoxError):
    """No answer, or none that can be believed. After a swap: it may have been done or not."""


class StoreReplaced(StoreUnavailable):
    """Another cluster answers, or an older state of the same one, such as a restored backup. A LeaderStore that was
    opened before does not believe it: the operator has to look, and have it opened anew."""


class SwapConflict(RocketBoxError):
    """The key is not at the expected revision. value: None if there is no key."""

    def __init__(self, value: bytes | None, revision: Revision) -> None:
        super().__init__("another writer changed the key")
        self.value = value
        self.revision = revision


class LeaderStore(Protocol):
    def read(self, key: str) -> tuple[bytes | None, Revision]:
        """Return the key's value, None if there is no key, and its revision. Linearizable. Raises StoreUnavailable."""

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Write if the key is at `expected` (None: if there is no key); return the new revision.

        Raises SwapConflict (definitely not done), StoreUnavailable (unknown).
        """

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        """Return when the key is no longer at `seen`, or after the time-out; earlier is allowed. Raises nothing."""

    def put(self, key: str, value: bytes) -> None:
        """Write, no matter what the key holds. Raises StoreUnavailable."""

    def list(self, prefix: str) -> dict[str, bytes]:
        """Return key -> value below `prefix`, which ends with "/". Raises StoreUnavailable."""

    def identity(self) -> str:
        """Return the id of the cluster that answers. Raises StoreUnavailable."""

    def close(self) -> None: ...
