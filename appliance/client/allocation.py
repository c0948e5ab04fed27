"""How the members of a group share a topic's queues. PURE.

    client.push_consumer("billing", allocation=allocation.in_turns)

Each member computes the shares of all for itself, so every member has to use the same rule, in whatever language, or
queues are read twice or not at all. Java's names are in the docstrings; source: RocketMQ 5.3.3
`client.consumer.rebalance`. A rule is a function of its own, too: it is given the topic's queues, sorted, the ids of
the group's members, sorted as Java sorts them, and the own id, which is among them, and returns the own queues. It is
called with the client's lock held, so it neither waits nor calls the client.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from .core.names import with_namespace
from .message import MessageQueue
from .wire import RETRY_PREFIX

Allocation: TypeAlias = Callable[[Sequence[MessageQueue], Sequence[str], str], Sequence[MessageQueue]]

__all__ = ["Allocation", "average", "consistent_hash", "fixed", "in_turns", "near", "rooms"]

#: Places of a member in the ring of `consistent_hash`.
_PLACES = 10


def average(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
    """Contiguous shares; the first members have one queue more. The default, and Java's: `AVG`."""
    at = members.index(own)
    size, more = divmod(len(queues), len(members))
    begin = at * size + min(at, more)
    return queues[begin : begin + size + (at < more)]


def in_turns(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
    """One queue each in turns, so that brokers are shared evenly. Java's `AVG_BY_CIRCLE`."""
    return queues[members.index(own) :: len(members)]


def consistent_hash(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
    """Shares of which few change when members come and go; they are less even. Java's `CONSISTENT_HASH`, with its ten
    places a member."""
    ring = sorted((_hash(f"{member}-{number}"), member) for member in members for number in range(_PLACES))
    places = [place for place, _ in ring]
    found = []
    for queue in queues:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        if ring[bisect_left(places, _hash(text)) % len(ring)][1] == own:
            found.append(queue)
    return found


def _hash(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


class _Fixed:
    """A rule that names queues. Members of a client with a namespace name them as their user does, without it."""

    def __init__(self, own_queues: Iterable[MessageQueue], namespace: str = "") -> None:
        self._own_queues = tuple(own_queues)
        self._wanted = frozenset(
            replace(queue, topic=with_namespace(namespace, queue.topic)) for queue in self._own_queues
        )

    def within(self, namespace: str) -> Allocation:
        return _Fixed(self._own_queues, namespace)

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
        if queues and queues[0].topic.startswith(RETRY_PREFIX):
            return average(queues, members, own)
        return [queue for queue in queues if queue in self._wanted]


def fixed(own_queues: Iterable[MessageQueue]) -> Allocation:
    """Exactly these queues, as far as they are there, whoever else is a member. Java's `CONFIG`, but that a group's
    retries, which no list names, are shared as by `average`: no member would get them there."""
    return _Fixed(own_queues)


def rooms(names: Collection[str]) -> Allocation:
    """Queues of brokers in these machine rooms, which are named ROOM@BROKER. Java's `MACHINE_ROOM`."""
    wanted = frozenset(names)

    def share(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
        inside = []
        for queue in queues:
            room, sign, rest = queue.broker_name.partition("@")
            if sign and rest and "@" not in rest and room in wanted:
                inside.append(queue)
        at = members.index(own)
        size, more = divmod(len(inside), len(members))
        found = inside[size * at : size * (at + 1)]
        if at < more:
            found.append(inside[size * len(members) + at])
        return found

    return share


class _Near:
    """The rule of `near`."""

    def __init__(
        self, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str], rule: Allocation
    ) -> None:
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member
        self._rule = rule

    def within(self, namespace: str) -> Allocation:
        return _Near(self._room_of_broker, self._room_of_member, in_namespace(self._rule, namespace))

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
        queues_in: dict[str, list[MessageQueue]] = {}
        members_in: dict[str, list[str]] = {}
        for queue in queues:
            queues_in.setdefault(self._room_of_broker(queue.broker_name), []).append(queue)
        for member in members:
            members_in.setdefault(self._room_of_member(member), []).append(member)
        own_room = self._room_of_member(own)
        found: list[MessageQueue] = []
        if own_room in queues_in:
            found += self._rule(queues_in[own_room], members_in[own_room], own)
        for room in sorted(queues_in, key=java_order):
            if room not in members_in:
                found += self._rule(queues_in[room], members, own)
        return found


def near(
    room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str], within: Allocation = average
) -> Allocation:
    """Queues go to members in the room of their broker; those of a room without members, to all. Java's
    `MACHINE_ROOM_NEARBY`. The functions name the room of a broker's name and of a client id; `within` shares the
    queues of one room."""
    return _Near(room_of_broker, room_of_member, within)


def in_namespace(rule: Allocation, namespace: str) -> Allocation:
    """Return a rule for the members of a client with a namespace. All rules are given queues as brokers name them, with
    it: `consistent_hash` shares by these names, as Java's does."""
    return rule.within(namespace) if namespace and isinstance(rule, _Fixed | _Near) else rule


def java_order(text: str) -> bytes:
    """Return what texts are sorted by as Java sorts them: by UTF-16."""
    return text.encode("utf-16-be", "surrogatepass")
