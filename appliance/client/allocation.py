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
from typing import TypeAlias

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


def fixed(own_queues: Iterable[MessageQueue]) -> Allocation:
    """Exactly these queues, as far as they are there, whoever else is a member. Java's `CONFIG`, but that a group's
    retries, which no list names, are shared as by `average`: no member would get them there."""
    wanted = frozenset(own_queues)

    def share(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
        if queues and queues[0].topic.startswith(RETRY_PREFIX):
            return average(queues, members, own)
        return [queue for queue in queues if queue in wanted]

    return share


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


def near(
    room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str], within: Allocation = average
) -> Allocation:
    """Queues go to members in the room of their broker; those of a room without members, to all. Java's
    `MACHINE_ROOM_NEARBY`. The functions name the room of a broker's name and of a client id; `within` shares the
    queues of one room."""

    def share(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> Sequence[MessageQueue]:
        queues_in: dict[str, list[MessageQueue]] = {}
        members_in: dict[str, list[str]] = {}
        for queue in queues:
            queues_in.setdefault(room_of_broker(queue.broker_name), []).append(queue)
        for member in members:
            members_in.setdefault(room_of_member(member), []).append(member)
        own_room = room_of_member(own)
        found: list[MessageQueue] = []
        if own_room in queues_in:
            found += within(queues_in[own_room], members_in[own_room], own)
        for room in sorted(queues_in, key=java_order):
            if room not in members_in:
                found += within(queues_in[room], members, own)
        return found

    return share


def java_order(text: str) -> bytes:
    """Return what texts are sorted by as Java sorts them: by UTF-16."""
    return text.encode("utf-16-be", "surrogatepass")
