"""The nodes of a parsed expression. All frozen.

`Boolean` nodes give TRUE, FALSE or null; the others are values to compare. As in RocketMQ the literals TRUE, FALSE and
NULL are both. A chain of a thousand ANDs is a thousand nested nodes, so no function here is recursive.
"""

from __future__ import annotations

from dataclasses import dataclass

from .java_values import Number


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """depth: levels of nested nodes, with this one; a chain of one kind counts as one."""

    depth: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Property(Node):
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Node):
    """value: None is NULL."""

    value: str | bool | Number | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Negate(Node):
    """`-x`. Of anything but a number it is null."""

    of: Node


class Boolean(Node):
    """A node that gives TRUE, FALSE or null."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Boolean):
    """A property where a Boolean is wanted: null if it is missing, else FALSE, for a property is never a Boolean."""

    of: Property


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Boolean):
    of: Node


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chain(Boolean):
    """Conditions joined by AND, or by OR. Nested chains of the same kind count as one level of depth."""

    left: Node
    right: Node

    def operands(self) -> list[Node]:
        """Return the operands in order, with those of nested chains of the same kind: nesting makes no difference."""
        found: list[Node] = []
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if type(node) is type(self):
                waiting += (node.right, node.left)
            else:
                found.append(node)
        return found


class And(Chain):
    __slots__ = ()


class Or(Chain):
    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Equal(Boolean):
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsNull(Boolean):
    of: Node


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Relation(Boolean):
    """sign: one of > >= < <=."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class In(Boolean):
    of: Property
    values: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TextTest(Boolean):
    """test: CONTAINS, STARTSWITH or ENDSWITH."""

    test: str
    of: Node
    search: str
    negated: bool


def is_boolean(node: Node) -> bool:
    """True if a node may stand where RocketMQ wants a BooleanExpression."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, Boolean)


def property_names(node: Node) -> frozenset[str]:
    """Return the names of the properties that a node reads."""
    names = set()
    waiting = [node]
    while waiting:
        match waiting.pop():
            case Property(name=name):
                names.add(name)
            case Chain(left=left, right=right) | Equal(left=left, right=right) | Relation(left=left, right=right):
                waiting += (left, right)
            case Negate(of=of) | Cast(of=of) | Not(of=of) | IsNull(of=of) | In(of=of) | TextTest(of=of):
                waiting.append(of)
    return frozenset(names)
