"""ConsumerFilters: the expressions that groups filter by, `store/config/consumerFilter.json`.

A heartbeat registers the expression that counts for its group in a topic (`ConsumerGroupInfo.subscribe`). When the
last member of a group has left, or a heartbeat no longer names the topic, the entry is dead, and it is removed after
filterDataCleanTimeSpan. The table's own thread saves changes every 10 s and at stop; after a crash the next heartbeats
bring the rest.
Source: RocketMQ 5.3.3 `ConsumerFilterManager`, `ConsumerFilterData`. Differs: a group that goes over to tags is dead
here, too; other positions in the file are no reason to throw it away; the table is bounded; expressions that do not
compile are not kept.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...clock import Clock
from ...config import BrokerConfig
from ...disk import Disk
from ...errors import CorruptFile, RefusedRequest
from ...fastjson import encode_pretty, encode_text, pretty_document
from ...filter.expressions import TAG_TYPES, make_filter, quick_filter
from ...filter.message_filter import MessageFilter
from ...json_file import load_json_with_backup, save_json_atomically
from ...protocol.codes import ResponseCode
from ...shares import Shares
from ..heartbeat import SubscriptionData
from ..table_saver import SavedTable, TableSaver
from .bloom import bloom_of
from .retries import FilterOfRetries

logger = logging.getLogger(__name__)

FILE_NAME = "consumerFilter.json"
#: Most entries, and most characters of their expressions: any client can make groups and subscribe to topics.
MOST_ENTRIES = 10_000
MOST_CHARS = 4 * 1024 * 1024
#: Both limits together, with an entry counted as this many characters, are shared by connection and address (`Shares`);
#: each may have a few.
_ENTRY_CHARS, FEW_CHARS = 400, 16 * 1024
_SAVE_S = 10.0
#: A group that was alive when Apache's broker stopped counts as dead for this long when its file is read.
_DEAD_BEFORE_START_MS = 30_000
_TELL_EVERY_S = 10.0

#: Expression -> its filter, or the refusal if it does not compile.
Compiled = Mapping[str, MessageFilter | RefusedRequest]


class FilterData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A group's expression for one topic. client_version: `subVersion` of the subscription, client ms. born_time,
    dead_time: wall ms; dead when it died after it was born."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str
    born_time: int
    client_version: int
    dead_time: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


class _Group(msgspec.Struct, rename="camel"):
    """The part of the file for one topic."""

    group_filter_data: dict[str, FilterData] = {}


class _Document(msgspec.Struct, rename="camel"):
    """The file, as far as it is read."""

    filter_data_by_topic: dict[str, _Group] = {}


class ConsumerFilters(SavedTable):
    """Owned by remoting-io; any thread may call `get` and `all`."""

    def __init__(self, path: Path, config: BrokerConfig, clock: Clock | None = None, disk: Disk | None = None) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._clock = clock or Clock()
        self._bloom = bloom_of(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._saver = TableSaver("filters", self.persist, _SAVE_S)
        #: Called with (topic, group) when a group's expression for a topic has changed.
        self.on_change: Callable[[str, str], None] = lambda topic, group: None
        # Replaced whole by take_options().
        self._config = config
        # Owned by remoting-io: entries by (topic, group), the topics of each group, and the filters of entries that
        # are alive.
        self._table: dict[tuple[str, str], FilterData] = {}
        self._topics: dict[str, set[str]] = {}
        self._made: dict[tuple[str, str], tuple[str, MessageFilter]] = {}
        # The dead, in the order in which they died.
        self._dead: dict[tuple[str, str], None] = {}
        self._chars = 0
        # The peer whose heartbeat brought an entry that is alive, and the size that counts for it.
        self._shares = Shares(FEW_CHARS)
        self._owners: dict[tuple[str, str], tuple[bytes, int]] = {}
        self._changes = 0
        self._told_at = -math.inf
        # Owned by the saving thread.
        self._saved_changes = 0
        self._load()

    def take_options(self, config: BrokerConfig) -> None:
        """Apply changed options from now on. Any thread."""
        self._config = config

    # --- questions

    def get(self, topic: str, group: str) -> FilterData | None:
        """Return a group's entry for a topic, dead or alive."""
        return self._table.get((topic, group))

    def all(self) -> list[FilterData]:
        """Return a copy of the entries, made in one call."""
        return list(self._table.values())

    def filter_of(self, data: FilterData) -> MessageFilter:
        """Return the entry's filter. Raises as `quick_filter`."""
        key = data.topic, data.consumer_group
        made = self._made.get(key)
        if made is None or made[0] != data.expression:
            peer, _ = self._owners.get(key, (None, 0))
            made = data.expression, quick_filter(data.expression_type, data.expression, peer)
            if not data.is_dead:
                self._made[key] = made
        return made[1]

    def of_retries(self, group: str, wanted: MessageFilter) -> MessageFilter:
        """Return `wanted`, combined with the group's expression for the topic that a retried message was first sent
        to."""
        return FilterOfRetries(wanted, lambda topic: self.get(topic, group))

    # --- what heartbeats say

    def register(
        self,
        group: str,
        wanted: Iterable[SubscriptionData],
        compiled: Compiled | None = None,
        peer: bytes | None = None,
    ) -> bool:
        """Replace what is known of a group's topics by the subscriptions that count now; False when there was no room
        for some.

        Versions are not compared here, as they are clients' clocks: `ConsumerGroupInfo.subscribe` has compared those of
        the members. After False the same heartbeat may bring more the next time. compiled: expressions that were
        compiled before. peer: the sender of the heartbeat.
        """
        known = self._topics.get(group)
        filtered = {data.topic: data for data in wanted if data.expression_type not in TAG_TYPES}
        if not filtered and not known:
            return True
        refused = []
        taken = 0
        had_room = True
        for data in filtered.values():
            if data.sub_string:
                try:
                    taken += self._register(group, data, compiled or {}, peer)
                except RefusedRequest as refusal:
                    had_room &= refusal.code != ResponseCode.SYSTEM_BUSY
                    refused.append((data.topic, str(refusal)))
        if taken:
            some = itertools.islice(filtered.values(), 3)
            logger.info("filters: taken group=%s count=%d %s", group, taken, [str(data)[:300] for data in some])
        if refused:  # pulls get "no filter data", and 46 gets the reason
            logger.warning("filters: not taken group=%s count=%d %s", group, len(refused), refused[:3])
        for topic in [topic for topic in known or () if topic not in filtered]:
            if self._die(topic, group):
                self.on_change(topic, group)
        return had_room

    def _register(self, group: str, data: SubscriptionData, compiled: Compiled, peer: bytes | None) -> bool:
        """Register an expression; True if it is new. Refuses an illegal one, and drops the group's former one; refuses
        with 2 one that there is no room for, and keeps the former one."""
        key = data.topic, group
        old = self._table.get(key)
        if old is not None and (old.expression, old.expression_type) == (data.sub_string, data.expression_type):
            if data.sub_version != old.client_version or old.is_dead:
                self._put(key, msgspec.structs.replace(old, client_version=data.sub_version, dead_time=0))
            return False
        made = compiled.get(data.sub_string)
        try:
            if isinstance(made, RefusedRequest):
                raise RefusedRequest(made.code, made.remark)
            if made is None:
                made = make_filter(data.expression_type, data.sub_string, peer)
        except RefusedRequest as refusal:
            if refusal.code != ResponseCode.SYSTEM_BUSY:
                self._remove(key)
            raise
        if not self._take_share(key, len(data.sub_string), peer):
            self._tell_of_refusal(key)
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many expressions are known")
        self._made[key] = data.sub_string, made
        self._put(
            key,
            FilterData(
                topic=data.topic,
                consumer_group=group,
                expression=data.sub_string,
                expression_type=data.expression_type,
                born_time=self._clock.wall_ms(),
                client_version=data.sub_version,
            ),
        )
        self.on_change(data.topic, group)
        return True

    def unregister(self, group: str) -> None:
        """Mark a group's entries as dead, because its last member has left."""
        for topic in list(self._topics.get(group, ())):
            self._die(topic, group)

    def clean(self) -> None:
        """Remove the entries that have been dead for filterDataCleanTimeSpan."""
        before = self._clock.wall_ms() - self._config.filter_data_clean_time_span
        for key, data in list(self._table.items()):
            if data.is_dead and data.dead_time <= before:
                logger.info("filters: forgotten group=%s topic=%s", data.consumer_group, data.topic)
                self._remove(key)

    def _take_share(self, key: tuple[str, str], chars: int, peer: bytes | None) -> bool:
        """Reserve room for an entry, in place of the former one's. False when there is none, or the peer has its share;
        the former one keeps its own then."""
        former = self._owners.get(key)
        self._give_share(key)
        size = _ENTRY_CHARS + chars
        is_one_of_few = peer is not None and self._shares.of(peer) + size <= FEW_CHARS
        has_room = self._make_room(key, chars) or is_one_of_few
        if has_room and peer is None:
            return True
        if has_room and peer and self._shares.take(peer, MOST_CHARS + _ENTRY_CHARS * MOST_ENTRIES, size):
            self._owners[key] = peer, size
            return True
        if former is not None:
            self._shares.add(*former)
            self._owners[key] = former
        return False

    def _give_share(self, key: tuple[str, str]) -> None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            self._shares.give(*owner)

    def _die(self, topic: str, group: str) -> bool:
        """Mark an entry as dead; False if it is dead already."""
        key = topic, group
        data = self._table[key]
        if data.is_dead:
            return False
        self._put(key, msgspec.structs.replace(data, dead_time=self._clock.wall_ms()))
        self._made.pop(key, None)
        self._give_share(key)
        return True

    def _put(self, key: tuple[str, str], data: FilterData) -> None:
        old = self._table.get(key)
        self._chars += len(data.expression) - (0 if old is None else len(old.expression))
        self._table[key] = data
        self._dead.pop(key, None)
        if data.is_dead:
            self._dead[key] = None
        self._topics.setdefault(data.consumer_group, set()).add(data.topic)
        self._changes += 1

    def _remove(self, key: tuple[str, str]) -> None:
        data = self._table.pop(key, None)
        if data is None:
            return
        self._chars -= len(data.expression)
        self._give_share(key)
        self._made.pop(key, None)
        self._dead.pop(key, None)
        topics = self._topics[data.consumer_group]
        topics.discard(data.topic)
        if not topics:
            del self._topics[data.consumer_group]
        self._changes += 1

    def _make_room(self, key: tuple[str, str], chars: int) -> bool:
        """Make room for an entry of `chars` characters by removing dead ones, longest dead first; False if that is too
        little."""
        old = self._table.get(key)
        more = 0
        if old is None:
            more = 1
        else:
            chars -= len(old.expression)
        while self._chars + chars > MOST_CHARS or len(self._table) + more > MOST_ENTRIES:
            dead = next((one for one in self._dead if one != key), None)
            if dead is None:
                return False
            self._remove(dead)
        return True

    def _tell_of_refusal(self, key: tuple[str, str]) -> None:
        """Log from time to time that an entry is not kept."""
        now = self._clock.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            logger.error("filters: %d entries are there, that of %s is not kept", len(self._table), key)

    # --- the file

    def persist(self) -> None:
        """Rewrite the file if something changed since the last time; durable when this returns. Raises OSError."""
        changes = self._changes
        if changes == self._saved_changes:
            return
        save_json_atomically(self._path, self._document(), self._disk)
        self._saved_changes = changes

    def document(self) -> bytes:
        """Return the content that the file would have now."""
        return b"".join(self._document())

    def _document(self) -> Iterator[bytes]:
        topics: dict[str, list[FilterData]] = {}
        for data in self.all():
            topics.setdefault(data.topic, []).append(data)
        return pretty_document((("filterDataByTopic", map(self._encoded, topics.values())),))

    def _encoded(self, entries: list[FilterData]) -> bytes:
        """Return a topic's part of the file."""
        topic = entries[0].topic
        value = {"groupFilterData": {data.consumer_group: self._as_dict(data) for data in entries}, "topic": topic}
        return f"{encode_text(topic)}:{encode_pretty(value, 2)}".encode()

    def _as_dict(self, data: FilterData) -> dict[str, Any]:
        return {
            "bloomFilterData": {
                "bitNum": self._bloom.bits,
                "bitPos": self._bloom.positions_of(data.consumer_group, data.topic),
            },
            "bornTime": data.born_time,
            "clientVersion": data.client_version,
            "consumerGroup": data.consumer_group,
            "dead": data.is_dead,
            "deadTime": data.dead_time,
            "expression": data.expression,
            "expressionType": data.expression_type,
            "topic": data.topic,
        }

    def _load(self) -> None:
        """Read the file. A damaged one is left out, because heartbeats bring its entries again."""
        try:
            document = load_json_with_backup(self._path, self._disk, "filterDataByTopic")
            groups = msgspec.convert(document or {}, _Document, strict=False).filter_data_by_topic
        except (CorruptFile, ValueError, OSError) as error:
            logger.error("filters: %s is not read: %s", self._path, error)
            return
        now = self._clock.wall_ms()
        found = []
        for entries in groups.values():
            for data in entries.group_filter_data.values():
                if not data.is_dead:
                    dead_time = max(now - _DEAD_BEFORE_START_MS, data.born_time)
                    data = msgspec.structs.replace(data, dead_time=dead_time)
                found.append(data)
        found.sort(key=lambda data: data.dead_time)
        for data in found:
            key = data.topic, data.consumer_group
            if self._make_room(key, len(data.expression)):
                self._put(key, data)
        self._saved_changes = self._changes
        if len(self._table) < len(found):
            logger.warning("filters: of %d entries of %s %d are kept", len(found), self._path, len(self._table))
