"""The permissions of a user: entries, and which of them decides. PURE.

An entry names a resource, actions and the addresses of clients, and allows or denies. Of the entries that match, one
decides, alone:

    the user's own (Custom) before its Default ones
    a typed resource before `*`
    a literal name before a prefix, a prefix before the whole type; of two prefixes the longer
    of two alike the one that denies

The topics in which messages of all topics wait are read (Sub) by users only whose entries name them in full: `Topic:*`
would otherwise give the messages of a topic that is denied.

If none matches, access is denied. The order in which entries were made means nothing. It does in 5.3.0 to 5.3.3, whose
comparison is not symmetric; this is the order that Apache's documentation gives and its later versions have.
Source: RocketMQ 5.3.3 `Resource`, `AuthorizationHandler`.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Collection, Iterable, Iterator

import msgspec

from ..named_tuple import NamedTuple
from ..protocol.names import RETRY_PREFIX, TOPICS_OF_ALL

TOPIC, GROUP, CLUSTER = "Topic", "Group", "Cluster"
_TYPES = {kind.lower(): kind for kind in (TOPIC, GROUP, CLUSTER)}
ANY = "*"
PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST, ALL = "Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All"
ACTIONS = (PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST, ALL)
_ACTIONS = {action.lower(): action for action in ACTIONS}
ALLOW, DENY = "Allow", "Deny"
_DECISIONS = {decision.lower(): decision for decision in (ALLOW, DENY)}
CUSTOM, DEFAULT = "Custom", "Default"
POLICY_TYPES = {kind.lower(): kind for kind in (CUSTOM, DEFAULT)}

#: RocketBox's limits: most sources of one entry, and most entries of one user.
MOST_SOURCES, MOST_ENTRIES = 100, 1000
MOST_RESOURCE_CHARS = 300

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class How(enum.IntEnum):
    """The form in which an entry names its resource; the smaller value decides."""

    LITERAL = 0
    PREFIX = 1
    WHOLE_TYPE = 2
    EVERYTHING = 3


class Resource(NamedTuple):
    """kind: TOPIC, GROUP or CLUSTER; ANY with EVERYTHING. name: literal, or the prefix."""

    kind: str
    how: How
    name: str

    def holds(self, kind: str, name: str) -> bool:
        """True if the entry's resource is this one, or contains it."""
        if self.how == How.EVERYTHING:
            return True
        if self.kind != kind:
            return False
        if self.how == How.LITERAL:
            return self.name == name
        return name.startswith(self.name)


def parse_resource(text: str) -> Resource:
    """Parse `*`, `Topic:*`, `Topic:orders*` or `Topic:orders`; the type without regard to case.

    Raises ValueError whose text follows "the resource": "is too long". A `*` in the middle of a name, which Apache
    takes for the end of a prefix, is refused, and so is `Group:%RETRY%g`, which no request needs.
    """
    if len(text) > MOST_RESOURCE_CHARS:
        raise ValueError(f"is longer than {MOST_RESOURCE_CHARS} characters")
    if text == ANY:
        return Resource(ANY, How.EVERYTHING, "")
    kind_text, colon, name = text.partition(":")
    kind = _TYPES.get(kind_text.strip().lower())
    if not colon or kind is None:
        raise ValueError(f"must be * or begin with Topic:, Group: or Cluster:, not {text!r}")
    if not name or not name.isprintable() or name != name.strip():
        raise ValueError(f"names nothing behind {kind}: {text!r}")
    if kind == GROUP and name.startswith(RETRY_PREFIX):
        raise ValueError(f"must name the group, and not its retry topic: {text!r}")
    if name == ANY:
        return Resource(kind, How.WHOLE_TYPE, "")
    prefix = name.removesuffix(ANY)
    if ANY in prefix:
        raise ValueError(f"may have a * at its end only: {text!r}")
    return Resource(kind, How.LITERAL if prefix == name else How.PREFIX, prefix)


def parse_source(text: str) -> Network:
    """Parse an address or a network; its bits behind the mask are ignored. Raises ValueError."""
    return ipaddress.ip_network(text.strip(), strict=False)


def _is_source(text: str) -> bool:
    """True if clients may come from there. An IPv6 zone may hold any text, and an IPv4 address in IPv6 is no client's:
    such clients are judged by the IPv4 address."""
    try:
        network = parse_source(text)
    except ValueError:
        return False
    return "%" not in text and getattr(network.network_address, "ipv4_mapped", None) is None


class Entry(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One line of a policy. unknown: see `unknown_fields.py`."""

    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...] = ()
    decision: str = ALLOW
    unknown: str = ""


class EntryError(ValueError):
    """A part of an entry is wrong. field: "resource", "actions", "sources" or "decision". The text has no full stop."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def checked_entry(resource: str, actions: Iterable[str], sources: Iterable[str], decision: str) -> Entry:
    """Return an entry whose words are spelled as in this file. Raises EntryError.

    An action that does not exist is refused: Apache drops it, and allows or denies less than was written.
    """
    spelled = spelled_resource(resource)
    if spelled.startswith(f"{TOPIC}:{RETRY_PREFIX}"):
        raise EntryError("resource", f"the resource must name the group, and not its retry topic: {resource!r}")
    known = []
    for action in actions:
        found = _ACTIONS.get(action.strip().lower())
        if found is None:
            raise EntryError("actions", f"the actions are {', '.join(_ACTIONS.values())}, not {action[:50]!r}")
        if found not in known:
            known.append(found)
    if not known:
        raise EntryError("actions", "the actions are empty")
    networks = []
    for source in sources:
        if not _is_source(source):
            raise EntryError("sources", f"the source {source[:80]!r} is no address and no network of clients")
        networks.append(source.strip())
    if len(networks) > MOST_SOURCES:
        raise EntryError("sources", f"an entry has at most {MOST_SOURCES} sources")
    decided = _DECISIONS.get(decision.strip().lower())
    if decided is None:
        raise EntryError("decision", f"the decision is Allow or Deny, not {decision[:50]!r}")
    return Entry(spelled, tuple(known), tuple(networks), decided)


def spelled_resource(text: str) -> str:
    """Return a resource as entries have it. Raises EntryError."""
    try:
        kind = parse_resource(text).kind
    except ValueError as error:
        raise EntryError("resource", f"the resource {error}") from None
    _, colon, name = text.partition(":")
    return f"{kind}:{name}" if colon else text


def with_entry(entries: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """Return entries in which this one takes the place of the one of the same resource; else it is the last."""
    kept = list(entries)
    place = next((at for at, known in enumerate(kept) if known.resource == entry.resource), len(kept))
    kept[place : place + 1] = [entry]
    return tuple(kept)


class _Line(NamedTuple):
    """An entry, parsed. order: the smallest decides."""

    order: tuple[bool, int, int, bool]
    resource: Resource
    actions: frozenset[str]
    networks: tuple[Network, ...]
    entry: Entry


class Verdict(NamedTuple):
    """entry: the one that decided; None when none matched."""

    is_allowed: bool
    entry: Entry | None


NOTHING_MATCHED = Verdict(False, None)

#: What became of an entry that holds a resource: it decides; it fits, and another one decides; it does not fit because
#: of its actions, or of the client's address.
DECIDES, OUTRANKED, OTHER_ACTIONS, OTHER_ADDRESS = "decides", "outranked", "other_actions", "other_address"


class Judged(NamedTuple):
    """An entry that holds a resource. policy: CUSTOM or DEFAULT. why: one of the four above."""

    entry: Entry
    policy: str
    why: str


class Policies:
    """All entries of one user. Frozen."""

    def __init__(self, custom: tuple[Entry, ...] = (), default: tuple[Entry, ...] = ()) -> None:
        """Entries that `checked_entry` made."""
        self.custom = custom
        self.default = default
        self._lines = (_in_order(custom), _in_order(default))
        self._indexes = tuple(map(_Index, self._lines))

    def decide(self, kind: str, name: str, actions: frozenset[str], address: Address) -> Verdict:
        """Decide if any one of the actions may be done on the resource, from the address."""
        for index in self._indexes:
            for line in _counting(index.holding(kind, name), kind, name, actions):
                if (ALL in line.actions or line.actions & actions) and (
                    not line.networks or any(address in network for network in line.networks)
                ):
                    return Verdict(line.entry.decision == ALLOW, line.entry)
        return NOTHING_MATCHED

    def from_anywhere(self, kind: str, name: str, action: str) -> bool | None:
        """Decide if an action may be done on the resource, from all addresses; None if it depends on the address."""
        verdicts = set()
        for line in _counting((line for lines in self._lines for line in lines), kind, name, (action,)):
            if (ALL in line.actions or action in line.actions) and line.resource.holds(kind, name):
                verdicts.add(line.entry.decision == ALLOW)
                if not line.networks:
                    break
        else:
            verdicts.add(False)
        return None if len(verdicts) > 1 else verdicts.pop()

    def explain(self, kind: str, name: str, actions: frozenset[str], address: Address) -> list[Judged]:
        """Return all entries that hold the resource, in the order in which they are asked; `decide` takes the one that
        DECIDES."""
        judged = []
        decided = False
        for policy, lines in zip((CUSTOM, DEFAULT), self._lines, strict=True):
            for line in _counting(lines, kind, name, actions):
                if not line.resource.holds(kind, name):
                    continue
                if ALL not in line.actions and not line.actions & actions:
                    why = OTHER_ACTIONS
                elif line.networks and not any(address in network for network in line.networks):
                    why = OTHER_ADDRESS
                else:
                    why = OUTRANKED if decided else DECIDES
                    decided = True
                judged.append(Judged(line.entry, policy, why))
        return judged


def _counting(lines: Iterable[_Line], kind: str, name: str, actions: Collection[str]) -> Iterable[_Line]:
    """Return the lines that may decide: of a topic in which messages of all wait, only those that name it in full."""
    if kind == TOPIC and SUB in actions and name in TOPICS_OF_ALL:
        return [line for line in lines if line.resource.how == How.LITERAL]
    return lines


class _Index:
    """The entries of one policy, found by name: a heartbeat may ask for a thousand of each of a thousand names."""

    def __init__(self, lines: list[_Line]) -> None:
        """lines: in order."""
        # By what they hold, in order. Prefixes by their length, the longest first.
        self._literal: dict[tuple[str, str], list[_Line]] = {}
        self._prefixes: dict[int, dict[tuple[str, str], list[_Line]]] = {}
        self._types: dict[str, list[_Line]] = {}
        for line in lines:
            kind, how, name = line.resource
            if how == How.LITERAL:
                self._literal.setdefault((kind, name), []).append(line)
            elif how == How.PREFIX:
                self._prefixes.setdefault(len(name), {}).setdefault((kind, name), []).append(line)
            else:
                self._types.setdefault(kind, []).append(line)

    def holding(self, kind: str, name: str) -> Iterator[_Line]:
        """Yield the entries that hold a resource, in order."""
        yield from self._literal.get((kind, name), ())
        for length, prefixes in self._prefixes.items():
            yield from prefixes.get((kind, name[:length]), ())
        yield from self._types.get(kind, ())
        yield from self._types.get(ANY, ())


def _in_order(entries: tuple[Entry, ...]) -> list[_Line]:
    lines = []
    for entry in entries:
        resource = parse_resource(entry.resource)
        order = (resource.how == How.EVERYTHING, int(resource.how), -len(resource.name), entry.decision == ALLOW)
        networks = tuple(map(parse_source, entry.source_ips))
        lines.append(_Line(order, resource, frozenset(entry.actions), networks, entry))
    return sorted(lines, key=lambda line: line.order)
