"""The images that a crash may leave of a recorded sequence of operations.

Synced operations are there. Each later operation may be there or not, whatever the others are: a write may be there
in some of its 512-byte sectors only, a name without its file's bytes, and the bytes without the name.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from tests.crash.recording_disk import ROOT, Image, Operation, RecordingDisk, apply

SECTOR_BYTES = 512

#: Share of the unsynced operations that exist. `all`: as a killed process leaves it. `none`: a disk that writes late.
MODES = ("all", "none", "some", "last", "all but one", "first", "torn")


class CrashedDisk:
    """Follows a record and keeps, of each node, what is durable and what is not yet."""

    def __init__(self, image: Image | None, kinds: dict[int, str]) -> None:
        """kinds: node -> "file" or "directory", of the disk that records."""
        first = RecordingDisk(image)
        self._kinds = kinds
        self._files: dict[int, tuple[bytearray, list[Operation]]] = {n: (d, []) for n, d in first.files.items()}
        self._directories: dict[int, tuple[dict[str, int], list[Operation]]] = {
            n: (dict(e), []) for n, e in first.directories.items()
        }
        self._pending: set[int] = set()
        #: Files whose sync failed -> all bytes that a process sees, which no later sync need make durable.
        self._seen: dict[int, bytearray] = {}

    def follow(self, operation: Operation) -> None:
        kind, node = operation[0], operation[1]
        if kind == "mark":
            return
        if kind == "forget":
            self._seen.pop(node, None)
            return
        if kind == "lost":
            data, pending = self._files[node]
            seen = self._seen.setdefault(node, bytearray(data))
            for later in pending:
                apply(seen, later)
            pending.clear()
            return
        if kind == "sync":
            self._sync(node, len(self._changes(node)))
            return
        self._pending.add(node)
        if kind in ("entry", "rename"):
            child = operation[-1]
            if child is not None and child not in self._files and child not in self._directories:
                if self._kinds[child] == "file":
                    self._files[child] = (bytearray(), [])
                else:
                    self._directories[child] = ({}, [])
            self._directories[node][1].append(operation)
        else:
            self._files[node][1].append(operation)

    def unsynced(self) -> list[tuple[int, Operation | None]]:
        """Return each node with changes that are not durable, and the last of them."""
        return [(node, self.last(node)) for node in sorted(self._pending)]

    def last(self, node: int) -> Operation | None:
        """Return the last change of a node that is not durable: a sync that begins now takes all up to it."""
        pending = self._changes(node)
        return pending[-1] if pending else None

    def sync(self, node: int, last: Operation | None) -> None:
        """End a sync that began when `last(node)` was this one. Another sync, or one that failed, may have taken it."""
        for count, operation in enumerate(self._changes(node), 1):
            if operation is last:
                self._sync(node, count)
                break

    def _changes(self, node: int) -> list[Operation]:
        found = self._files.get(node) or self._directories.get(node)
        return found[1] if found else []  # a file that is open no more, and has no name

    def _sync(self, node: int, count: int) -> None:
        """Make the first changes of a node durable."""
        pending = self._changes(node)
        for operation in pending[:count]:
            if node in self._directories:
                _apply_entry(self._directories[node][0], operation)
                continue
            apply(self._files[node][0], operation)
            if node in self._seen:
                apply(self._seen[node], operation)
        del pending[:count]
        if not pending:
            self._pending.discard(node)

    @property
    def pending(self) -> int:
        """Nodes with something not synced."""
        return len(self._pending)

    def image(self, mode: str, chance: random.Random) -> Image:
        """One state of the disk after a crash now."""
        found: Image = {}
        victim = chance.choice(sorted(self._pending)) if self._pending and mode == "all but one" else -1

        def walk(directory: int, prefix: str) -> None:
            entries, pending = self._directories[directory]
            entries = dict(entries)
            for operation in _chosen(pending, mode, chance, directory == victim):
                _apply_entry(entries, operation)
            for name, child in entries.items():
                path = f"{prefix}/{name}"
                if child in self._directories:
                    found[path] = None
                    walk(child, path)
                else:
                    data, later = self._files[child]
                    data = bytearray(self._seen.get(child, data) if mode == "all" else data)
                    for operation in _chosen(later, mode, chance, child == victim):
                        _apply(data, operation, chance if mode in ("some", "torn") else None)
                    found[path] = bytes(data)

        walk(ROOT, "")
        return found

    def settle(self, mode: str, chance: random.Random) -> set[int]:
        """A crash happens now: what it leaves is durable, and nothing waits. Returns the nodes that it changed."""
        changed = self._pending | set(self._seen)
        victim = chance.choice(sorted(self._pending)) if self._pending and mode == "all but one" else -1
        for node in sorted(changed):
            if node in self._directories:
                entries, pending = self._directories[node]
                for operation in _chosen(pending, mode, chance, node == victim):
                    _apply_entry(entries, operation)
            else:
                data, pending = self._files[node]
                for operation in _chosen(pending, mode, chance, node == victim):
                    _apply(data, operation, chance if mode in ("some", "torn") else None)
            pending.clear()
        self._pending.clear()
        self._seen.clear()
        return changed

    def entries(self, directory: int) -> dict[str, int]:
        """The durable names of a directory."""
        return self._directories[directory][0]

    def data(self, file: int) -> bytearray:
        """The durable bytes of a file."""
        return self._files[file][0]

    def is_lost(self, file: int) -> bool:
        """True if a process sees bytes of this file that no sync will make durable."""
        return file in self._seen and not self._files[file][1]

    def named(self) -> set[int]:
        """Nodes that some name leads to after one crash or another."""
        found = {ROOT}
        for entries, pending in self._directories.values():
            found.update(entries.values())
            found.update(operation[-1] for operation in pending if operation[-1] is not None)
        return found

    def drop(self, nodes: set[int]) -> None:
        """Forget nodes without a name."""
        for node in nodes:
            self._files.pop(node, None)
            self._directories.pop(node, None)
            self._seen.pop(node, None)
            self._pending.discard(node)


def _chosen(pending: list[Operation], mode: str, chance: random.Random, victim: bool) -> Iterator[Operation]:
    if not pending or mode == "none":
        return
    if mode == "last":
        yield pending[-1]
    elif mode == "first":
        yield pending[0]
    elif mode == "some":
        for operation in pending:
            if chance.random() < 0.5:
                yield operation
    elif victim:
        missing = chance.randrange(len(pending))
        yield from pending[:missing] + pending[missing + 1 :]
    else:
        yield from pending


def _apply(data: bytearray, operation: Operation, chance: random.Random | None) -> None:
    """Do an operation, or with `chance` some sectors of a write."""
    if operation[0] == "size" or chance is None or chance.random() < 0.4:
        apply(data, operation)
        return
    kind, node, position, new = operation
    end = position + len(new)
    at = position
    while at < end:
        following = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < 0.5:
            apply(data, (kind, node, at, new[at - position : following - position]))
        at = following


def _apply_entry(entries: dict[str, int], operation: Operation) -> None:
    if operation[0] == "rename":
        _, _, old, name, node = operation
        if entries.get(old) == node:
            del entries[old]
        entries[name] = node
    elif operation[3] is None:
        entries.pop(operation[2], None)
    else:
        entries[operation[2]] = operation[3]


def fingerprint(image: Image) -> bytes:
    """Equal for equal images."""
    digest = hashlib.blake2b(digest_size=16)
    for path, data in sorted(image.items()):
        digest.update(path.encode() + b"\0")
        digest.update(b"/" if data is None else len(data).to_bytes(8, "big") + data)
    return digest.digest()
