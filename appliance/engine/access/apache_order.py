"""What RocketMQ 5.3.0 to 5.3.3 decides by the same entries, and where that is not what RocketBox decides. PURE.

That sorts the entries that match by a comparison that is not symmetric, so its answer depends on the order in which
they were made: here on their order in the account, which is the same. It also compares an address without a mask as
text, and networks of both families as plain numbers.
Source: RocketMQ 5.3.3 `AclAuthorizationHandler`, `IPAddressUtils`; OpenJDK `TimSort`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..named_tuple import NamedTuple
from .policies import (
    ACTIONS,
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    GROUP,
    NOTHING_MATCHED,
    TOPIC,
    Address,
    Entry,
    How,
    Policies,
    Resource,
    Verdict,
    parse_resource,
    parse_source,
)

#: Java sorts fewer by insertion; more than these of one user match one name only in odd accounts.
_MOST_SORTED = 31
#: Most questions that one comparison asks, and most differences that it returns.
MOST_QUESTIONS, MOST_DIFFERENCES = 20_000, 200
#: Behind a prefix, for a name that it holds; and the address of a client that no source names (RFC 5737).
_REST = "example"
ELSEWHERE = "203.0.113.250"


class ApachePolicies:
    """All entries of one user, in the order in which they were made. Frozen."""

    def __init__(self, custom: tuple[Entry, ...], default: tuple[Entry, ...]) -> None:
        self._policies = [
            [(parse_resource(entry.resource), entry, _sources(entry)) for entry in one] for one in (custom, default)
        ]

    def decide(self, kind: str, name: str, actions: frozenset[str], address: Address) -> Verdict | None:
        """Decide as `Policies.decide` does; None if more entries match than this sorts as Java does."""
        text, number = _java_text(address), int(address)
        for entries in self._policies:
            found = [
                (resource, entry)
                for resource, entry, sources in entries
                if resource.holds(kind, name)
                and (ALL in entry.actions or not actions.isdisjoint(entry.actions))
                and (
                    not sources or text in sources.texts or any(low <= number <= high for low, high in sources.networks)
                )
            ]
            if len(found) > _MOST_SORTED:
                return None
            if found:
                entry = _first(found)
                return Verdict(entry.decision == ALLOW, entry)
        return NOTHING_MATCHED


class _Sources(NamedTuple):
    """texts: addresses without a mask. networks: the first and the last number of each."""

    texts: frozenset[str]
    networks: list[tuple[int, int]]


_Found = tuple[Resource, Entry]


def _compare(one: _Found, other: _Found) -> int:
    (a, a_entry), (b, b_entry) = one, other
    if a.kind != b.kind:
        if ANY in (a.kind, b.kind):
            return -1 if b.kind == ANY else 1
    elif a.how == b.how:
        if a.how == How.PREFIX and len(a.name) != len(b.name):
            return -1 if len(a.name) < len(b.name) else 1
    elif a.how in (How.LITERAL, How.PREFIX):
        return -1  # whatever the other one is
    if a_entry.decision == DENY:
        return 1
    return -1 if b_entry.decision == DENY else 0


def _first(found: list[_Found]) -> Entry:
    """Return the entry that comes first after Java's sort of fewer than 32 elements: a run, then insertions by halves.
    The comparison contradicts itself, so the way of sorting counts."""
    end = 1
    if len(found) > 1:
        falls = _compare(found[1], found[0]) < 0
        end = 2
        while end < len(found) and (_compare(found[end], found[end - 1]) < 0) == falls:
            end += 1
        if falls:
            found[:end] = reversed(found[:end])
    for at in range(end, len(found)):
        pivot = found.pop(at)
        left, right = 0, at
        while left < right:
            middle = (left + right) // 2
            if _compare(pivot, found[middle]) < 0:
                right = middle
            else:
                left = middle + 1
        found.insert(left, pivot)
    return found[0][1]


def _sources(entry: Entry) -> _Sources | None:
    """Return the addresses of an entry as they are compared there; None: any."""
    if not entry.source_ips:
        return None
    networks = [parse_source(source) for source in entry.source_ips if "/" in source]
    return _Sources(
        frozenset(source for source in entry.source_ips if "/" not in source),
        [(int(network.network_address), int(network.broadcast_address)) for network in networks],
    )


def _java_text(address: Address) -> str:
    """Return an address as Java prints it: IPv6 in eight numbers without leading zeros."""
    if address.version == 4:
        return str(address)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


class Differing(NamedTuple):
    """A question that 5.3.3 decides otherwise. resource: as "Topic:orders". actions: those of which it is so."""

    resource: str
    actions: tuple[str, ...]
    address: str
    here: Verdict
    there: Verdict | None


def differences(custom: tuple[Entry, ...], default: tuple[Entry, ...]) -> tuple[list[Differing], bool]:
    """Return where 5.3.3 decides otherwise by these entries, and True if these are all: each name and prefix in the
    entries is asked for, from each of the addresses that they name and from elsewhere."""
    here, there = Policies(custom, default), ApachePolicies(custom, default)
    found: dict[tuple[str, str, Verdict, Verdict | None], list[str]] = {}
    asked = 0
    for kind, name, address in _questions((*custom, *default)):
        for action in ACTIONS:
            if action == ALL:
                continue
            asked += 1
            if asked > MOST_QUESTIONS or len(found) > MOST_DIFFERENCES:
                return _as_rows(found)[:MOST_DIFFERENCES], False
            actions = frozenset((action,))
            ours, theirs = here.decide(kind, name, actions, address), there.decide(kind, name, actions, address)
            if theirs is None or ours.is_allowed != theirs.is_allowed:
                found.setdefault((f"{kind}:{name}", str(address), ours, theirs), []).append(action)
    return _as_rows(found), True


def _as_rows(found: dict[tuple[str, str, Verdict, Verdict | None], list[str]]) -> list[Differing]:
    return [
        Differing(resource, tuple(actions), address, here, there)
        for (resource, address, here, there), actions in found.items()
    ]


def _questions(entries: tuple[Entry, ...]) -> Iterator[tuple[str, str, Address]]:
    resources = [parse_resource(entry.resource) for entry in entries]
    named: dict[tuple[str, str], None] = {}
    for resource in resources:
        kinds = (TOPIC, GROUP, CLUSTER) if resource.kind == ANY else (resource.kind,)
        for kind in kinds:
            named[kind, resource.name if resource.how == How.LITERAL else resource.name + _REST] = None
    for kind, name in named:
        held = [entry for entry, resource in zip(entries, resources, strict=True) if resource.holds(kind, name)]
        sources = dict.fromkeys(parse_source(source)[0] for entry in held for source in entry.source_ips)
        if len(held) > 1 or sources:
            for address in (*sources, *parse_source(ELSEWHERE)):
                yield kind, name, address
