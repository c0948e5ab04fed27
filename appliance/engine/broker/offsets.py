"""ConsumerOffsetManager: how far each group has consumed each queue, `store/config/consumerOffset.json`.

remoting-io commits. A thread of the table saves the changes since the last time, every flushConsumerOffsetInterval and
at stop. A crash takes back at most these: messages come again, none is lost.
Source: RocketMQ 5.3.3 `ConsumerOffsetManager`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..clock import Clock
from ..disk import Disk
from ..errors import RefusedRequest
from ..fastjson import encode_pretty, encode_text, pretty_document
from ..few_lines import OncePerReason
from ..json_file import load_at_start, save_json_atomically
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from ..protocol.names import CHECK_GROUP
from ..shares import LastingShares
from .offset_resets.pending import GroupMove, PendingResets
from .pull_offsets import PullOffsets
from .table_saver import SavedTable, TableSaver

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Commits between two versions of the table, as in 5.x (consumerOffsetUpdateVersionStep).
VERSION_STEP = 500
#: Entries that commits may make, one for each group and topic, of a kilobyte each; those of a file are all taken.
#: RocketBox's limit: any client can make groups and topics, and all pairs of them. 2,500 topics with 100 groups each.
MOST_ENTRIES = 250_000
#: Offsets in all that clients may make, some 100 bytes each: a topic may have very many queues.
MOST_OFFSETS = 2_000_000
#: Time for which slaves get a move by an administrator, and the name for that; they ask every 3 s. Apache's do
#: not read it.
LATELY_S = 300.0
LATELY_MOVED = "rocketboxMoved"
_TELL_EVERY_S = 10.0
_QUEUE_ID_MAX = (1 << 31) - 1
_OFFSET_MAX = (1 << 63) - 1


def is_brokers_own(group: str) -> bool:
    """True if the broker itself consumes by this group. Then nothing else may move its offsets."""
    return group == CHECK_GROUP


def check_movable(group: str) -> None:
    """Refuse with 16 a group whose offsets are the broker's own. Apache accepts clients' commits for it, and forgets
    half messages by that."""
    if is_brokers_own(group):
        raise RefusedRequest(ResponseCode.NO_PERMISSION, f"the offsets of group[{group}] are the broker's own")


class QueueOffsets:
    """The queues of one (topic, group): queue id -> offset of the next message to consume."""

    __slots__ = ("changes", "encoded", "encoded_changes", "group", "queues", "topic")

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.queues: dict[int, int] = {}
        self.changes = 0  # remoting-io counts it up after a commit
        # Owned by the saving thread: the entry in the file, and which `changes` it shows.
        self.encoded = b""
        self.encoded_changes = -1


class ConsumerOffsetManager(SavedTable):
    """`get` and `commit` belong to remoting-io, `remove_*` and `persist` to any other thread."""

    def __init__(
        self,
        path: Path,
        flush_interval_ms: int | Callable[[], int],
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Read the file. Raises StartError."""
        interval_ms = flush_interval_ms if callable(flush_interval_ms) else lambda: flush_interval_ms
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._clock = clock or Clock()
        self._saver = TableSaver("offsets", self.persist, lambda: interval_ms() / 1000)
        # Each step on the dict is one C call; no lock is needed.
        self._table: dict[str, QueueOffsets] = {}
        self.data_version = DataVersion(self._clock.wall_ms())
        #: Offsets that administrators moved and members have not taken over yet; `resets` is its table.
        self.pending = PendingResets(self._clock)
        self.resets = self.pending.table
        #: Called by the saving thread when the file is saved, with the resets that were over before, and with the
        #: removals before: ("topic" or "group", name). May raise OSError, and is then called with them again.
        self.after_save: Callable[[list[tuple[int, str, int]], list[tuple[str, str]]], None] = lambda over, gone: None
        #: Called by the saving thread at each of its turns, to save what is kept beside the file. No offset depends on
        #: it.
        self.beside: Callable[[], None] = lambda: None
        self._beside_told = OncePerReason(logger.warning)
        #: Returns the end of a queue, behind which no group can have read. Set by the broker, which has the queues.
        self.end_of: Callable[[str, int], int] = lambda topic, queue_id: _OFFSET_MAX
        #: True on a slave, which may lack messages that its master delivered: an offset behind the end is kept as the
        #: end. Elsewhere it is not kept.
        self.cuts = False
        #: Recent moves by administrators, (entry, queue ids), which do not count as consumption. Each is added before
        #: the offsets change and again after: a thread that copies offsets first and then looks here misses none.
        self.moved_by_hand: deque[tuple[QueueOffsets, Collection[int]]] = deque(maxlen=4096)
        #: The last of these moves, for slaves: (monotonic s, topic, group, queue id -> offset). Written by remoting-io.
        self._last_moves: deque[tuple[float, str, str, dict[int, int]]] = deque(maxlen=4096)
        #: The offsets up to which groups have pulled; not in the file.
        self.pulled = PullOffsets()
        # Entries, and offsets, that each client had made since the start; owned by remoting-io.
        self._shares = LastingShares(self._clock)
        self._offset_shares = LastingShares(self._clock, few=256, a_minute=1024)
        # Guarded by _counting: number of offsets that clients have made, without removed ones.
        self._counting = threading.Lock()
        self._offsets = 0
        #: Grows with each entry that is made, and with each reset.
        self.made = 0
        # Counted by remoting-io.
        self._commits = 0
        self._told_at = -math.inf
        # Guarded by _save_lock.
        self._save_lock = threading.Lock()
        self._saved_commits = 0
        self._removed = False
        # Any thread; each step is one C call.
        self._gone: deque[tuple[str, str]] = deque()
        load_at_start(self._path, "offsetTable", self._take, self._disk)

    def _take(self, document: dict[str, Any]) -> None:
        """Take the offsets of a document. Its groupTopicMap contains nothing new and is not read."""
        for key, queues in document["offsetTable"].items():
            topic, at, group = key.partition("@")
            if not at or not isinstance(queues, dict):
                logger.warning("offsets: entry left out key=%r", key[:300])
                continue
            entry = QueueOffsets(topic, group)
            for queue_id, offset in queues.items():
                if type(offset) is not int or not queue_id.isdecimal():
                    raise ValueError(f"{key} holds {queue_id!r}:{offset!r}")
                entry.queues[int(queue_id)] = offset
            self._table[key] = entry
        if document.get("dataVersion") is not None:
            self.data_version = DataVersion.decode(document["dataVersion"])

    # --- remoting-io

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset; -1 if there is none."""
        entry = self._table.get(f"{topic}@{group}")
        return -1 if entry is None else entry.queues.get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, peer: bytes | None = None) -> bool:
        """Store an offset, also one that is lower than before (a reset). An offset that its queue cannot have is
        dropped, and so is one of a group whose offsets are the broker's own. peer: the client that commits.

        False if it is not kept because the table is full, or the peer has had its share of it made.
        """
        if not 0 <= queue_id <= _QUEUE_ID_MAX or is_brokers_own(group):
            return True
        fitting = self.fitting(topic, queue_id, offset)
        return fitting < 0 or self._keep(group, topic, queue_id, fitting, peer)

    def fitting(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the offset that is kept for a group; -1 for one that its queue cannot have. Apache keeps any number:
        one behind the end would mean that messages were read which are yet to come."""
        if offset < 0:
            return -1
        end = self.end_of(topic, queue_id)
        return offset if offset <= end else end if self.cuts else -1

    def take_copies(
        self, found: list[tuple[str, str, int, int]], by_hand: Mapping[tuple[str, str], Collection[int]] | None = None
    ) -> None:
        """Take over offsets of this broker's master, (group, topic, queue id, offset), also those of the broker's own
        group. by_hand: (group, topic) -> queue ids of those that an administrator moved there."""
        moved = [
            (entry, queue_ids)
            for (group, topic), queue_ids in (by_hand or {}).items()
            if (entry := self._table.get(f"{topic}@{group}")) is not None
        ]
        self.moved_by_hand.extend(moved)
        for group, topic, queue_id, offset in found:
            if 0 <= queue_id <= _QUEUE_ID_MAX and 0 <= offset <= _OFFSET_MAX:
                self._keep(group, topic, queue_id, offset)
        self.moved_by_hand.extend(moved)

    def forget_copies(self, gone: list[tuple[str, str, int]]) -> None:
        """Forget offsets that this broker's master does not have, (group, topic, queue id)."""
        for group, topic, queue_id in gone:
            self.forget(group, topic, queue_id)
            entry = self._table.get(f"{topic}@{group}")
            if entry is not None and not entry.queues:
                self.remove_entry(entry)

    def commit_own(self, topic: str, offset: int) -> None:
        """Store the broker's own progress with half messages, or with op messages; the next start relies on it."""
        self._keep(CHECK_GROUP, topic, 0, offset)

    def _keep(self, group: str, topic: str, queue_id: int, offset: int, peer: bytes | None = None) -> bool:
        key = f"{topic}@{group}"
        entry = self._table.get(key)
        if entry is None:
            if not self._shares.take(peer, MOST_ENTRIES - len(self._table)):
                self._tell_of_refusal(key)
                return False
            entry = self._made(topic, group)
        before = entry.queues.get(queue_id, -1)
        if before < 0 and peer is not None:
            with self._counting:
                is_kept = self._offset_shares.take(peer, MOST_OFFSETS - self._offsets)
                self._offsets += is_kept
            if not is_kept:
                self._tell_of_refusal(key)
                return False
        if offset < before:
            logger.debug("offsets: going back %s queue=%d from=%d to=%d", key, queue_id, before, offset)
        entry.queues[queue_id] = offset
        entry.changes += 1
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.data_version = self.data_version.following(self._clock.wall_ms())
        return True

    def _made(self, topic: str, group: str) -> QueueOffsets:
        """Return the entry, made if it is not there."""
        entry = self._table.setdefault(f"{topic}@{group}", QueueOffsets(topic, group))
        self.made += 1
        return entry

    def _tell_of_refusal(self, key: str) -> None:
        """Log, at most once in _TELL_EVERY_S, that an offset is not kept."""
        now = self._clock.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            logger.error(
                "offsets: %d entries are there, and the table or its share for one address is full: %s is not kept",
                len(self._table),
                key,
            )

    def reset(self, group: str, topic: str, queue_id: int, offset: int, reset_id: int = 0) -> None:
        """Set an offset, whatever members commit meanwhile: it holds until one of them has taken it over.

        It is kept however full the table is, because only administrators reset. reset_id: the act in the journal.
        """
        entry = self._made(topic, group)
        self.moved_by_hand.append((entry, (queue_id,)))
        self.commit(group, topic, queue_id, offset)
        self.moved_by_hand.append((entry, (queue_id,)))
        self._last_moves.append((self._clock.monotonic(), topic, group, {queue_id: offset}))
        self.pending.arm((group, topic, queue_id), offset, reset_id)

    def reset_all(self, move: GroupMove) -> None:
        """Do the same for many queues at once, in a fraction of a microsecond each."""
        assert not is_brokers_own(move.group), "whoever moves offsets asks check_movable first"
        group = move.group
        for topic, queues in move.targets.items():
            entry = self._made(topic, group)
            self.moved_by_hand.append((entry, queues))
            entry.queues.update(queues)
            self.moved_by_hand.append((entry, queues))
            self._last_moves.append((self._clock.monotonic(), topic, group, queues))
            entry.changes += 1
            self._commits += 1
        self.pending.table.update(move.pending)
        for topic, queue_id in move.forgotten:
            self.forget(group, topic, queue_id)

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Remove the group's offset of the queue, as before its first commit."""
        self.pending.end((group, topic, queue_id))
        entry = self._table.get(f"{topic}@{group}")
        if entry is not None and entry.queues.pop(queue_id, None) is not None:
            self._forgot(1)
            entry.changes += 1
            self._commits += 1

    def clamp(self, entry: QueueOffsets, queue_id: int, offset: int) -> None:
        """Correct an offset that no longer fits its queue, and a pending reset to it. Before the broker serves, which
        it may only once this is saved: else a kill would bring the offset back, and what came meanwhile would count as
        read."""
        key = (entry.group, entry.topic, queue_id)
        told = self.pending.table.get(key)
        if told is not None and told.target == entry.queues[queue_id]:
            self.pending.correct(key, offset)
        entry.queues[queue_id] = offset
        entry.changes += 1
        self._commits += 1

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of a group's offsets of a topic."""
        entry = self._table.get(f"{topic}@{group}")
        return {} if entry is None else entry.queues.copy()

    # --- any thread

    def all(self) -> list[QueueOffsets]:
        """Return a copy of the table's entries, made in one call."""
        return list(self._table.values())

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets of a topic."""
        return [entry.group for entry in self.all() if entry.topic == topic]

    def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets of a topic."""
        self._remove([entry for entry in self.all() if entry.topic == topic])
        self._gone.append(("topic", topic))
        self.pulled.remove_topic(topic)

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets, but for those that are the broker's own."""
        if is_brokers_own(group):
            return
        self._remove([entry for entry in self.all() if entry.group == group])
        self._gone.append(("group", group))

    def remove_entry(self, entry: QueueOffsets) -> None:
        """Forget a group's offsets of a topic, when the group or the topic is gone."""
        self._remove([entry])

    def _remove(self, entries: list[QueueOffsets]) -> None:
        for entry in entries:
            key = f"{entry.topic}@{entry.group}"
            if self._table.pop(key, None) is not None:
                self._forgot(len(entry.queues))
            for reset in [reset for reset in list(self.resets) if reset[:2] == (entry.group, entry.topic)]:
                self.pending.end(reset)
            logger.info("offsets: removed %s", key)
        if entries:
            self._removed = True

    def _forgot(self, count: int) -> None:
        """Count offsets that were removed. Some may be of the file or the broker's own, which were not counted."""
        with self._counting:
            self._offsets = max(0, self._offsets - count)

    # --- the file

    def save_soon(self) -> None:
        """Save soon, and from then on at the interval that is in force now."""
        self._saver.wakeup()

    def persist(self) -> None:
        """Rewrite the file if an offset changed since the last time; durable when this returns. Raises OSError."""
        with self._save_lock:
            over, gone = _drained(self.pending.over), _drained(self._gone)
            try:
                self._save()
                self.after_save(over, gone)
            except BaseException:
                self.pending.over.extendleft(reversed(over))
                self._gone.extendleft(reversed(gone))
                raise
            try:
                self.beside()
                self._beside_told.went_well()
            except (OSError, ImportError) as error:  # ImportError: a package was replaced while the process runs
                self._beside_told.failed("offsets: what is kept beside them was not saved: %s", error)

    def _save(self) -> None:
        commits = self._commits
        if commits == self._saved_commits and not self._removed:
            return
        removed, self._removed = self._removed, False
        try:
            save_json_atomically(self._path, self._document(), self._disk)
        except BaseException:
            self._removed = removed
            raise
        self._saved_commits = commits

    def lately_moved(self) -> dict[str, dict[int, int]]:
        """Return "topic@group" -> queue id -> offset of what administrators moved in the last LATELY_S."""
        found: dict[str, dict[int, int]] = {}
        since = self._clock.monotonic() - LATELY_S
        for at, topic, group, queues in list(self._last_moves):
            if at >= since:
                found.setdefault(f"{topic}@{group}", {}).update(queues)
        return found

    def document(self) -> bytes:
        """Return the text that the file would hold now."""
        return b"".join(self._document())

    def _document(self) -> Iterator[bytes]:
        table = self.all()
        groups: dict[str, list[str]] = {}
        for entry in table:
            groups.setdefault(entry.group, []).append(entry.topic)
        return pretty_document(
            (
                ("dataVersion", encode_pretty(self.data_version.as_dict(), 1).encode()),
                ("groupTopicMap", (f"{encode_text(g)}:{encode_pretty(t)}".encode() for g, t in groups.items())),
                ("offsetTable", map(_encoded, table)),
            )
        )


def _drained(waiting: deque[T]) -> list[T]:
    """Take out and return all elements that are there now."""
    return [waiting.popleft() for _ in range(len(waiting))]


def _encoded(entry: QueueOffsets) -> bytes:
    """Return the entry as the file holds it; encoded once a change. A commit meanwhile shows in the next save."""
    changes = entry.changes
    if entry.encoded_changes != changes:
        queues = entry.queues.copy()
        text = f"{encode_text(f'{entry.topic}@{entry.group}')}:{encode_pretty(dict(sorted(queues.items())), 2)}"
        entry.encoded = text.encode()
        entry.encoded_changes = changes
    return entry.encoded
