"""A log that diverged from its set: finds where the two part, cuts off the bytes behind that point and keeps them.

    begin    copy the bytes to cut off to quarantine/ --- the intent, in DATA/rocketbox/ha/truncation
    finish   the log --- queues, index, progress --- the leader's list of epochs --- the intent is removed

Works on a store that is not open. Before the intent is durable nothing is changed. After that, everything is done again
from its beginning after a crash, before the store is opened, so bytes that were cut off never come back. A store that
has nothing in common with its set is set aside in the same way: its directory is renamed, and an empty one begins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..broker.timers.schedule import DIRECTORY as TIMERS
from ..crc_lines import line_of, text_of
from ..disk import Disk
from ..errors import RocketBoxError, StartError
from ..store.checkpoint import RecoveryPosition
from ..store.clock_steps import NAME as CLOCK_STEPS
from ..store.closed_store import ClosedStore
from ..store.index.index_recovery import NAME as INDEX_POSITION
from ..store.paths import StorePaths
from ..store.queues.queue_ledger import PREFIX as LEDGER_PREFIX
from ..store.retention.deleted_topics import NAME as DELETED_TOPICS
from ..store.settings import StoreSettings
from ..store.tail_cut import cut_tail
from .member_files import MemberFiles
from .progress_cut import ProgressCut
from .quarantine import Cut, Tail, keep
from .set_state import EpochStart

logger = logging.getLogger(__name__)

INTENT = "truncation"
#: Bytes of the disk that stay free after the copy to quarantine.
RESERVE_BYTES = 64 * 1024 * 1024
#: RocketBox's own files and directories about the store's bytes, which are made again when they are missing.
_DERIVED = ("recovery-position", INDEX_POSITION, DELETED_TOPICS, "settled-delays", CLOCK_STEPS)
_DERIVED_DIRECTORIES = ("blocks", TIMERS, "transactions/resolved")


class CannotCut(RocketBoxError):
    """Nothing was cut and nothing changed; it may be tried again. The text is a sentence."""


class LeaderLog(NamedTuple):
    """A leader's log, as it describes it in the handshake. end: physical offset. uuid: of its store. If its list is not
    known (empty), the own one is cut with the log, and replaced after the next handshake."""

    uuid: str
    epoch: int
    epochs: tuple[EpochStart, ...]
    end: int


def consistent_point(
    own: Sequence[EpochStart], own_end: int, leaders: Sequence[EpochStart], leaders_end: int
) -> int | None:
    """Return the physical offset below which two logs are the same: own bytes from there on have to go. None if they
    never were.

    It is the end, in whichever of the two it comes first, of the newest epoch that began at the same place in both. An
    epoch ends where the next one begins; one that begins where the log ends has written nothing, and is ignored.
    """
    if own_end <= 0:
        return 0
    starts = {one.epoch: (one.start, end) for one, end in _with_ends(leaders, leaders_end)}
    for one, end in reversed([(one, end) for one, end in _with_ends(own, own_end) if one.start < own_end]):
        if one.epoch in starts and starts[one.epoch][0] == one.start:
            return min(end, starts[one.epoch][1])
    return None


def _with_ends(epochs: Sequence[EpochStart], log_end: int) -> list[tuple[EpochStart, int]]:
    ends = [min(one.start, log_end) for one in epochs[1:]] + [log_end]
    return list(zip(epochs, ends, strict=False))


class StoreCut:
    """Cuts one member's store. Owned by the code that changes roles; the store is closed meanwhile."""

    def __init__(
        self, paths: StorePaths, disk: Disk, settings: StoreSettings, files: MemberFiles, now_ms: Callable[[], int]
    ) -> None:
        """now_ms: wall clock, for people."""
        self._paths = paths
        self._disk = disk
        self._settings = settings
        self._files = files
        self._now_ms = now_ms
        #: True if an intent was noted by this process, and not tried yet.
        self._fresh = False

    @property
    def _intent_path(self) -> Path:
        return self._files.directory / INTENT

    # --- asking for it

    def begin(self, point: int, leader: LeaderLog, reason: str) -> None:
        """Keep the bytes from `point` on, and note that they have to go; `finish` does it.

        If `point` is at the beginning of the first file, or before, nothing would be left to go on from: then the store
        will be set aside. An intent of an earlier call is finished first. Raises CannotCut, StartError, OSError.
        """
        self.finish()
        with self._store() as store:
            point = store.record_boundary(point)
            begin = store.log.min_offset
            if point > begin or begin == point == 0:
                self._keep(store, point, store.data_end(point), leader, reason)
                return
        self._note_aside(f"its log begins at {begin}, and has nothing in common with the leader's: {reason}")

    def _keep(self, store: ClosedStore, point: int, end: int, leader: LeaderLog, reason: str) -> None:
        own = self._files.epochs
        copy = ""
        try:
            if end > point:
                self._disk.make_directory(self._paths.quarantine)
                free = self._disk.free_bytes(self._paths.quarantine)
                if free < end - point + RESERVE_BYTES:
                    raise CannotCut(
                        f"The disk has no room to keep the {end - point} bytes of the log that have to be cut off: "
                        f"{free} bytes are free, and {RESERVE_BYTES} have to stay so."
                    )
                facts = {
                    "own_epochs": own,
                    "leaders_epochs": leader.epochs,
                    "leader": leader.uuid,
                    "leaders_end": leader.end,
                    "uuid": self._files.uuid,
                    "reason": reason,
                    "cut_ms": self._now_ms(),
                }
                epoch = max((one.epoch for one in own if one.start < end), default=0)
                cut = Cut(epoch, point, end, self._settings.segment_bytes)
                copy = keep(store.raw, self._disk, self._paths.quarantine, cut, facts).name
            position = store.trusted_position()
            self._note(
                {
                    "do": "cut",
                    "from": point,
                    "to": end,
                    "copy": copy,
                    "epochs": leader.epochs or [one for one in own if one.start <= point],
                    "position": position,
                    "why": reason,
                }
            )
        except OSError as error:
            raise CannotCut(
                f"What has to be cut off the log cannot be kept in {self._paths.quarantine}: {error.strerror or error}."
            ) from error

    def undo_deletions(self, topics: Mapping[str, Mapping[int, int]]) -> None:
        """Have the queues of these topics made again from the log. topics: with the notes on purged queues that stay.
        Raises StartError, OSError."""
        self.finish()
        with self._store() as store:
            saved = store.files.recovery_position
            if saved.durable >= 0:
                saved.withdraw(saved.durable)
            store.files.deleted_topics.undo(list(topics))
            if store.files.has_purged():
                store.files.purged_queues.undo(topics)

    def set_aside(self, why: str) -> Path:
        """Rename the store's directory, begin an empty one as a new member; return the new name. Raises CannotCut,
        OSError (then the next start does it again)."""
        self.finish()
        path = self._note_aside(why)
        self.finish()
        return path

    def _note_aside(self, why: str) -> Path:
        name = f"{self._paths.root.name}.aside-{self._now_ms()}"
        try:
            self._note({"do": "set aside", "name": name, "why": why})
        except OSError as error:
            raise CannotCut(f"{self._intent_path} cannot be written: {error.strerror or error}.") from error
        return self._paths.root.with_name(name)

    def _note(self, intent: dict[str, Any]) -> None:
        self._disk.replace(self._intent_path, line_of(json.dumps(intent).encode()))
        self._fresh = True

    # --- doing it

    def finish(self) -> bool:
        """Do what was noted; False if nothing is. Has to be called before every opening of the store.

        Raises StartError when the store is in use, and OSError; then it has to be called again before the store is
        opened.
        """
        intent = self._intent()
        if intent is None:
            return False
        if intent["do"] == "cut":
            self._cut(intent)
        else:
            self._move_aside(intent)
        self._disk.unlink(self._intent_path)
        self._disk.sync_directory(self._files.directory)
        return True

    def _intent(self) -> dict[str, Any] | None:
        """Load the intent, None without one. A damaged one is moved away: the epochs have not changed yet, so that the
        next handshake finds again where to cut."""
        data = self._disk.read_if_any(self._intent_path)
        if data is None:
            return None
        text = text_of(data.removesuffix(b"\n"))
        if text is not None:
            found: dict[str, Any] = json.loads(text)
            return found
        damaged = self._intent_path.with_suffix(".damaged")
        logger.error("fail-over: %s is damaged, and was moved to %s", self._intent_path, damaged.name)
        self._disk.rename(self._intent_path, damaged)
        self._disk.sync_directory(self._files.directory)
        self._files.damage += f"{' ' if self._files.damage else ''}{self._intent_path} was damaged."
        return None

    def _cut(self, intent: dict[str, Any]) -> None:
        point = int(intent["from"])
        position = intent["position"]
        logger.warning(
            "fail-over: cutting the log from=%d to=%d kept=%s: %s", point, intent["to"], intent["copy"], intent["why"]
        )
        again, self._fresh = not self._fresh, False
        with self._store() as store:
            cut_tail(store, point, None if position is None else RecoveryPosition(*position), again)
            path = self._paths.quarantine / intent["copy"]
            if intent["copy"] and self._disk.exists(path):
                tail = Tail(path, point, int(intent["to"]), self._settings.segment_bytes)
                ProgressCut(store, point, self._paths.own / TIMERS).run(tail)
        self._files.adopt_epochs(EpochStart(*one) for one in intent["epochs"])

    def _move_aside(self, intent: dict[str, Any]) -> None:
        root = self._paths.root
        aside = root.with_name(intent["name"])
        if not self._disk.exists(aside):
            logger.warning("fail-over: the store is set aside as=%s: %s", aside, intent["why"])
            try:
                lock = self._disk.lock(self._paths.lock)
            except BlockingIOError:
                raise StartError(f"The store directory {root} is in use by another process.") from None
            self._disk.rename(root, aside)
            self._disk.close(lock)
        self._disk.sync_directory(root.parent)
        self._disk.make_directory(root)
        own = self._paths.own
        for name in self._disk.names(own):
            if name in _DERIVED or name.startswith(LEDGER_PREFIX):
                self._disk.unlink(own / name)
        for directory in _DERIVED_DIRECTORIES:
            if self._disk.is_directory(own / directory):
                for name in self._disk.names(own / directory):
                    self._disk.unlink(own / directory / name)
                self._disk.sync_directory(own / directory)
        self._disk.sync_directory(own)
        self._files.renew()

    def _store(self) -> ClosedStore:
        return ClosedStore(self._paths, self._disk, self._settings, self._now_ms)
