"""Counts of what producers send: by address, by size, copies of a message, frequent keys. Plain Python.

One pass, in memory that has a bound however many producers, ids and keys there are. Parts of the log may be counted
apart, and merged: the result is the same in whatever order that is done.

- Producers: with more than MOST_PRODUCERS pairs of topic and address, addresses become networks, ever larger ones.
- Ids and keys are sampled by a hash, one of 2**level: ids by their own, so that all copies of a sampled id are counted;
  keys by the place of their message, so that a frequent key is frequent among the sampled ones. The level grows while
  there are too many (Wegman's adaptive sampling). Level 0 is all of them, and the counts are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from heapq import nsmallest
from ipaddress import ip_address, ip_network
from typing import Generic, TypeVar

from appliance.engine.protocol.properties import (
    KEYS,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    SHARDING_KEY,
    UNIQUE_KEY,
    decode_properties,
)
from appliance.engine.protocol.record import Record

from ..source.rows import MAX_MS, MIN_MS
from ..source.topics import is_system
from .tables import FREQUENT, LARGEST, PRODUCERS, REPEATS, SIZES, Row

#: Pairs of topic and address; sampled ids; keys of sampled messages, which have up to 17 each.
MOST_PRODUCERS, MOST_IDS, MOST_KEYED = 1 << 14, 1 << 17, 1 << 16
#: Rows of the table PRODUCERS with a topic, and without one; of FREQUENT, for ids, keys and sharding keys each.
MOST_NAMED, MOST_FREQUENT = 1000, 20
#: Longer texts are cut, and told apart by a hash; of one message so many keys count.
LONGEST, MOST_WORDS = 64, 16
#: Time from a message's birth to its store that counts at most in the sums, either way: clocks may be years off.
MOST_MS = 86_400_000
#: Bits of the networks that addresses become, of IPv4 and of IPv6, by step.
_NETWORKS = ((32, 128), (24, 64), (16, 48), (8, 32), (0, 0))
#: First letter of a word -> its kind.
WHATS = {"k": "key", "s": "shard"}
_SPREAD = 0x9E37_79B9_7F4A_7C15
_64_BITS = (1 << 64) - 1
_HASH = blake2b(digest_size=8)  # a copy of it is made in half the time of a new one

#: A count on its way from one process to another: (kind, topic, text, numbers).
Part = tuple[str, str, str, list[int]]
K = TypeVar("K")
V = TypeVar("V")


class _Topic:
    """Counts of a topic. producers: by address; their numbers are those of the table. sizes: by bucket. largest: the
    body's size, the physical offset below zero, and what the table has."""

    __slots__ = ("largest", "producers", "sizes")

    def __init__(self) -> None:
        self.producers: dict[str, list[int]] = {}
        self.sizes: dict[int, list[int]] = {}
        self.largest: tuple[int, int, int, int, int, int, str] = (-1, 0, 0, 0, 0, 0, "")


def bucket_of(size: int) -> int:
    """Return the bucket of a body's size: sizes below 16 have their own, and above each power of two has eight."""
    shift = max(0, size.bit_length() - 4)
    return (shift << 3) + (size >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the least and the largest size of a bucket."""
    shift = max(0, (bucket >> 3) - 1)
    least = (bucket - (shift << 3)) << shift
    return least, least + (1 << shift) - 1


def _mark(number: int) -> int:
    """Return a number of 64 bits whose low bits are like those of a random one, always the same for one number."""
    number = number * _SPREAD & _64_BITS
    return number ^ number >> 32


def _mark_of_text(text: str) -> int:
    """Return a number of 64 bits like `_mark`. Producers choose ids, so it must not be one that they can choose, too:
    a sample of ids whose marks are all 0 would not become smaller at any level."""
    found = _HASH.copy()
    found.update(text.encode())
    return int.from_bytes(found.digest(), "little")


class _Sample(Generic[K, V]):
    """Values of the keys of which the mark is a multiple of 2**level; their weight, of 1 each or as given, is `most` at
    most. Both are numbers and texts: the garbage collector would visit tuples again and again."""

    def __init__(self, most: int, mark_of: Callable[[K], int], weigh: Callable[[V], int] = lambda _: 1) -> None:
        self.found: dict[K, V] = {}
        self.level = 0
        self._weight = 0
        self._most = most
        self._mark_of = mark_of
        self._weigh = weigh

    def has(self, key: K) -> bool:
        """True if the key belongs to the sample now."""
        return not self.level or not self._mark_of(key) & (1 << self.level) - 1

    def put(self, key: K, value: V, weight: int) -> None:
        """Take in the value of a new key that belongs to the sample."""
        self.found[key] = value
        self._weight += weight
        if self._weight > self._most:
            self.rise()

    def rise(self, level: int = 0) -> None:
        """Raise the level to this one at least, and as long as the values have too much weight."""
        while self.level < level or self._weight > self._most:
            self.level += 1
            self.found = {key: value for key, value in self.found.items() if self.has(key)}
            self._weight = sum(map(self._weigh, self.found.values()))


class Contents:
    """The counts. Topics without sends are left out."""

    def __init__(
        self, most_producers: int = MOST_PRODUCERS, most_ids: int = MOST_IDS, most_keyed: int = MOST_KEYED
    ) -> None:
        self._most_producers = most_producers
        #: Pairs of topic and address, and the step of _NETWORKS.
        self._producers = self._step = 0
        #: None for topics that are not counted.
        self._topics: dict[str, _Topic | None] = {}
        #: Topic, NUL and id -> messages; physical offset -> topic and keys, with 0x02 between them.
        self._ids: _Sample[str, int] = _Sample(most_ids, _mark_of_text)
        self._keyed: _Sample[int, str] = _Sample(most_keyed, _mark, lambda text: text.count("\x02"))

    def take_record(self, record: Record) -> None:
        """Count a record of the log."""
        text, born_ms, physical = record.properties, record.born_time_ms, record.physical_offset
        is_sampled = not self._keyed.level or self._keyed.has(physical)
        self.take(
            record.topic, record.born_host[0], born_ms if MIN_MS <= born_ms <= MAX_MS else None, record.store_time_ms,
            record.size, len(record.body), record.queue_id, record.queue_offset, physical, _property(text, UNIQUE_KEY),
            _property(text, KEYS) if is_sampled else None, _property(text, SHARDING_KEY) if is_sampled else None,
        )  # fmt: skip

    def take(
        self,
        topic: str,
        host: str,
        born_ms: int | None,
        store_ms: int,
        size: int,
        body_size: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        unique: str | None,
        keys: str | None,
        shard: str | None,
    ) -> None:
        """Count a message. born_ms: None if the producer's clock was out of all range."""
        try:
            found = self._topics[topic]
        except KeyError:
            found = self._of(topic)
        if found is None:
            return
        if born_ms is None:
            self._add_producer(found, host, [1, size, 0, 0, 0, 0])
        else:
            after = store_ms - born_ms
            bounded = after if -MOST_MS < after < MOST_MS else MOST_MS if after > 0 else -MOST_MS
            self._add_producer(found, host, [1, size, 1, bounded, after, after])
        shift = max(0, body_size.bit_length() - 4)
        bucket = (shift << 3) + (body_size >> shift)  # `bucket_of`, of each message
        known = found.sizes.get(bucket)
        if known is None:
            found.sizes[bucket] = [1, body_size]
        else:
            known[0] += 1
            known[1] += body_size
        if unique and len(unique) > LONGEST:
            unique = _short(unique)
        largest = found.largest
        if body_size > largest[0] or (body_size == largest[0] and -physical_offset >= largest[1]):
            one = body_size, -physical_offset, size, queue_id, queue_offset, store_ms, unique or ""
            found.largest = max(largest, one)
        if unique:
            self._add_id(f"{topic}\0{unique}", 1)
        if keys or shard:
            keyed = self._keyed
            if (not keyed.level or keyed.has(physical_offset)) and (words := _words(keys, shard)):
                self._add_keyed(physical_offset, topic + words)

    def parts(self) -> Iterator[Part]:
        """Yield the counts, to be merged in another process."""
        yield "levels", "", "", [self._step, self._ids.level, self._keyed.level]
        for topic, found in self._topics.items():
            if found is not None:
                *numbers, unique = found.largest
                yield "largest", topic, str(unique), [*map(int, numbers)]
                yield from (("producer", topic, host, of) for host, of in found.producers.items())
                yield from (("size", topic, "", [bucket, *of]) for bucket, of in found.sizes.items())
        yield from (("id", "", text, [messages]) for text, messages in self._ids.found.items())
        yield from (("keyed", "", text, [physical]) for physical, text in self._keyed.found.items())

    def merge(self, part: Part) -> None:
        """Add what `parts` yielded of other messages."""
        kind, topic, text, numbers = part
        if kind == "levels":
            self._widen(numbers[0])
            self._ids.rise(numbers[1])
            self._keyed.rise(numbers[2])
        elif kind == "id":
            self._add_id(text, numbers[0])
        elif kind == "keyed":
            self._add_keyed(numbers[0], text)
        elif (found := self._topics.get(topic) or self._of(topic)) is not None:
            if kind == "producer":
                self._add_producer(found, text, [*numbers])
            elif kind == "size":
                known = found.sizes.setdefault(numbers[0], [0, 0])
                known[:] = known[0] + numbers[1], known[1] + numbers[2]
            else:
                body, place, size, queue_id, offset, at_ms = numbers
                found.largest = max(found.largest, (body, place, size, queue_id, offset, at_ms, text))

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of the tables."""
        topics = [(topic, found) for topic, found in sorted(self._topics.items()) if found is not None]
        largest: list[Row] = []
        for topic, found in topics:
            body, _, size, queue_id, offset, at_ms, text = found.largest
            largest.append((topic, body, size, queue_id, offset, at_ms, text))
        return {
            PRODUCERS.name: self._producer_rows(),
            SIZES.name: [(topic, *size) for topic, found in topics for size in _flat(found.sizes)],
            LARGEST.name: largest,
            REPEATS.name: self._repeat_rows(),
            FREQUENT.name: sorted([*self._frequent_ids(), *self._frequent_keys()]),
        }

    # --- counting

    def _of(self, topic: str) -> _Topic | None:
        found = self._topics[topic] = None if is_system(topic) else _Topic()
        return found

    def _add_producer(self, topic: _Topic, host: str, numbers: list[int]) -> None:
        """numbers: those of the table, which the topic keeps if the host is new to it."""
        if self._step:
            host = self._network(host)
        known = topic.producers.get(host)
        if known is None:
            topic.producers[host] = numbers
            self._producers += 1
            if self._producers > self._most_producers:
                self._widen(self._step + 1)
        else:
            _sum_up(known, *numbers)

    def _widen(self, step: int) -> None:
        """Count by networks of this step, or larger ones if there are still too many."""
        while self._step < min(step, len(_NETWORKS) - 1):
            self._step += 1
            self._producers = 0
            for topic in self._topics.values():
                if topic is not None:
                    narrow, topic.producers = topic.producers, {}
                    for host, numbers in narrow.items():
                        network = self._network(host)
                        if network in topic.producers:
                            _sum_up(topic.producers[network], *numbers)
                        else:
                            topic.producers[network] = numbers
                    self._producers += len(topic.producers)
            if self._producers > self._most_producers:
                step = max(step, self._step + 1)

    def _network(self, host: str) -> str:
        """Return the network of an address, or of a smaller network."""
        if not host:
            return host
        address, _, bits = host.partition("/")
        found = ip_address(address)
        wanted = _NETWORKS[self._step][found.version == 6]
        return f"{ip_network((address, min(wanted, int(bits or 128))), strict=False)}" if wanted else ""

    def _add_id(self, text: str, messages: int) -> None:
        ids = self._ids
        known = ids.found.get(text)
        if known is not None:
            ids.found[text] = known + messages
        elif not ids.level or ids.has(text):
            ids.put(text, messages, 1)

    def _add_keyed(self, physical: int, text: str) -> None:
        if self._keyed.has(physical) and physical not in self._keyed.found:
            self._keyed.put(physical, text, text.count("\x02"))

    # --- rows

    def _producer_rows(self) -> list[Row]:
        """Return the pairs with the most messages; then, without a topic, the hosts with the most messages of all other
        pairs; and one row without names for the rest."""
        pairs = [
            ((topic, host), numbers)
            for topic, found in self._topics.items() if found is not None
            for host, numbers in found.producers.items()
        ]  # fmt: skip
        named, others = _named(pairs)
        hosts, rest = _named(_summed((("", host), numbers) for (_, host), numbers in others))
        both = [*named, *hosts, *_summed((("", ""), numbers) for _, numbers in rest)]
        return sorted((topic, host, *numbers) for (topic, host), numbers in both)

    def _repeat_rows(self) -> list[Row]:
        found: dict[str, list[int]] = {}
        for text, messages in self._ids.found.items():
            known = found.setdefault(text.partition("\0")[0], [0, 0, 0])
            known[0] += 1
            known[1] += messages > 1
            known[2] += messages - 1
        return sorted((topic, *numbers, 1 << self._ids.level) for topic, numbers in found.items())

    def _frequent_ids(self) -> Iterator[Row]:
        repeated = [(-messages, text) for text, messages in self._ids.found.items() if messages > 1]
        for messages, text in nsmallest(MOST_FREQUENT, repeated):
            topic, _, unique = text.partition("\0")
            yield "id", topic, unique, -messages, 1

    def _frequent_keys(self) -> Iterator[Row]:
        counts: dict[str, Counter[tuple[str, str]]] = {"k": Counter(), "s": Counter()}
        for text in self._keyed.found.values():
            topic, *words = text.split("\x02")
            for word in words:
                counts[word[0]][topic, word[1:]] += 1
        for what, found in counts.items():
            for messages, (topic, text) in nsmallest(MOST_FREQUENT, ((-count, key) for key, count in found.items())):
                yield WHATS[what], topic, text, -messages, 1 << self._keyed.level


_Pair = tuple[tuple[str, str], list[int]]


def _named(pairs: list[_Pair]) -> tuple[list[_Pair], list[_Pair]]:
    """Return the pairs with the most messages, MOST_NAMED at most, and the others."""
    pairs.sort(key=lambda pair: (-pair[1][0], pair[0]))
    return pairs[:MOST_NAMED], pairs[MOST_NAMED:]


def _summed(pairs: Iterable[_Pair]) -> list[_Pair]:
    """Return the sums of pairs that have the same names."""
    found: dict[tuple[str, str], list[int]] = {}
    for names, numbers in pairs:
        _sum_up(found.setdefault(names, [0] * 6), *numbers)
    return list(found.items())


def _flat(sizes: dict[int, list[int]]) -> list[tuple[int, ...]]:
    return [(bucket, *numbers) for bucket, numbers in sorted(sizes.items())]


def _sum_up(known: list[int], messages: int, size: int, timed: int, after: int, least: int, most: int) -> None:
    """Add numbers of a producer to others."""
    if timed:
        if not known[2]:
            known[4], known[5] = least, most
        elif least < known[4]:
            known[4] = least
        if most > known[5]:
            known[5] = most
    known[0] += messages
    known[1] += size
    known[2] += timed
    known[3] += after


def _property(text: str, name: str) -> str | None:
    """Return a property as `decode_properties` finds it."""
    mark = name + NAME_SEPARATOR
    at = text.rfind(mark)
    if at < 0:
        return None
    if not at or text[at - 1] == PAIR_SEPARATOR:
        at += len(mark)
        end = text.find(PAIR_SEPARATOR, at)
        if found := text[at:] if end < 0 else text[at:end]:
            return found
    return decode_properties(text).get(name)


def _short(text: str) -> str:
    """Return a text that is not too long, and another one for each text."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 18]}… {blake2b(text.encode(), digest_size=8).hexdigest()}"


def _words(keys: str | None, shard: str | None) -> str:
    """Return the keys of a message, 0x02 and "k" before each, and its sharding key behind 0x02 and "s"."""
    words = keys.split() if keys else []
    if len(words) > 1:
        words = sorted(set(words))[:MOST_WORDS]
    elif words and not shard:
        return f"\x02k{_short(words[0])}"
    return "".join([f"\x02k{_short(word)}" for word in words]) + (f"\x02s{_short(shard)}" if shard else "")
