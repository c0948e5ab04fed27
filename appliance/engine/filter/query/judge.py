"""An expression as Python functions, and the message that they read.

A condition is TRUE, FALSE or null (None), as in SQL: a comparison with a value that the message does not have is null,
and only TRUE is a match. Values compare as numbers wherever one side is a number: `amount = 10` finds "10", "10.0" and
10 in JSON. Unlike SQL92 of consumers, a text that is no number is null in such a comparison and does not end the whole
expression.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

import msgspec

from ...protocol.properties import KEYS, TAGS, decode_properties, find_property
from ..sql92.java_values import Number
from ..sql92.nodes import And, Cast, Chain, Equal, In, IsNull, Literal, Negate, Node, Not, Or, Relation, TextTest
from .language import BODY, JSON, KEY, TAG, Source, parse
from .patterns import Pattern, TooMuchWork

#: Longest body that is read as JSON, and bytes of a body in which a text is searched: one C call for each holds the
#: GIL.
JSON_BYTES = 128 << 10
TEXT_BYTES = 1 << 20
#: Longest text that a pattern is tried on.
PATTERN_CHARS = 256 << 10
#: Properties that are looked up one by one; then all are decoded.
_SINGLY = 3
#: Most characters of a number in a text.
_DIGITS = 40

Judge = Callable[["Candidate"], "bool | None"]
Value = Callable[["Candidate"], "str | float | bool | None"]
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
#: Not the candidate itself: a cycle would keep its body, since old objects are never collected.
_NOT_READ = object()


class Undecided(Exception):
    """The message cannot be judged: its body is too long for that, or the pattern too costly on it."""


class Candidate:
    """A message to be judged. open_body: returns the beginning of its body without compression, and True if that is all
    of it; called once, and only when it matters. decode: returns a whole body as JSON by the topic's schema, None if it
    does not fit; raises Undecided."""

    __slots__ = ("_asked", "_body", "_decode", "_json", "_open", "_properties", "_text", "properties_text")

    def __init__(
        self,
        properties_text: str,
        open_body: Callable[[], tuple[bytes, bool]],
        decode: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        self.properties_text = properties_text
        self._open = open_body
        self._decode = decode
        self._properties: dict[str, str] | None = None
        self._asked = 0
        self._body: tuple[bytes, bool] | None = None
        self._text: str | None = None
        self._json: Any = _NOT_READ

    def named(self, name: str) -> str | None:
        """Return a property. The whole map is not made for a few of them."""
        if self._properties is None:
            self._asked += 1
            if self._asked <= _SINGLY:
                return find_property(self.properties_text, name)
            self._properties = decode_properties(self.properties_text)
        return self._properties.get(name)

    def body(self) -> tuple[bytes, bool]:
        if self._body is None:
            self._body = self._open()
        return self._body

    def text(self) -> str:
        """Return the body as text; bytes that are no UTF-8 are replaced."""
        if self._text is None:
            self._text = self.body()[0][:TEXT_BYTES].decode("utf-8", "replace")
        return self._text

    @property
    def is_cut(self) -> bool:
        """True if `text` is not all of the body."""
        data, whole = self.body()
        return not whole or len(data) > TEXT_BYTES

    def value_at(self, path: tuple[str | int, ...]) -> str | None:
        """Return a value of the body as text, objects and lists as JSON; None if there is none. Raises Undecided."""
        if self._json is _NOT_READ:
            data, whole = self.body()
            if self._decode is not None:
                if not whole or len(data) > JSON_BYTES:
                    raise Undecided
                data = self._decode(data) or data
            begin = data[:64].lstrip()[:1]
            if begin not in (b"{", b"[") and len(data) > 64:
                self._json = None
            elif not whole or len(data) > JSON_BYTES:
                raise Undecided
            else:
                try:
                    self._json = msgspec.json.decode(data)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    self._json = None
        here = self._json
        for step in path:
            if isinstance(step, str):
                here = here.get(step) if isinstance(here, dict) else None
            else:
                here = here[step] if isinstance(here, list) and step < len(here) else None
            if here is None:
                return None
        if isinstance(here, str):
            return here
        if isinstance(here, bool):
            return "true" if here else "false"
        return None if here is None else msgspec.json.encode(here).decode()


class Query:
    """An expression that judges messages. Belongs to one thread. reads_bodies: True if it reads bodies."""

    def __init__(self, text: str) -> None:
        """Raises SqlError."""
        self.text = text
        node = parse(text)
        self._judge = _judge_of(node)
        self.reads_bodies = _reads_bodies(node)

    def matches(self, message: Candidate) -> bool:
        """True if the message matches. Raises Undecided."""
        try:
            return self._judge(message) is True
        except TooMuchWork:
            raise Undecided from None


def compile_query(text: str) -> Query:
    """Return the query of a text. Raises SqlError."""
    return Query(text)


def _reads_bodies(root: Node) -> bool:
    waiting = [root]
    while waiting:
        match waiting.pop():
            case Source(kind=kind) if kind in (BODY, JSON):
                return True
            case Chain(left=left, right=right) | Equal(left=left, right=right) | Relation(left=left, right=right):
                waiting += (left, right)
            case Negate(of=of) | Cast(of=of) | Not(of=of) | IsNull(of=of) | In(of=of) | TextTest(of=of):
                waiting.append(of)
    return False


# --- values


def _number(value: object) -> int | float | None:
    """Return a number, or the number in a text; None if there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    assert isinstance(value, str)
    if len(value) > _DIGITS or "_" in value:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        found = float(value)
    except ValueError:
        return None
    return found if found - found == 0 else None  # neither infinite nor NaN


def _value_of(node: Node) -> Value:
    match node:
        case Source(kind=kind, name=name, path=path):
            if kind == TAG:
                return lambda message: message.named(TAGS)
            if kind == KEY:
                return lambda message: message.named(KEYS)
            if kind == BODY:
                return lambda message: message.text()
            if kind == JSON:
                return lambda message: message.value_at(path)
            return lambda message: message.named(name)
        case Literal(value=value):
            plain: Any = value.value if isinstance(value, Number) else value
            return lambda message: plain
        case Negate(of=of):
            positive = _value_of(of)

            def negative(message: Candidate) -> float | None:
                found = _number(positive(message))
                return None if found is None else -found

            return negative
    judge = _judge_of(node)
    return lambda message: judge(message)


# --- conditions


def _judge_of(node: Node) -> Judge:
    match node:
        case And() | Or():
            return _chain([_judge_of(one) for one in node.operands()], isinstance(node, Or))
        case Not(of=of):
            positive = _judge_of(of)

            def negated(message: Candidate) -> bool | None:
                found = positive(message)
                return None if found is None else not found

            return negated
        case IsNull(of=of):
            value = _value_of(of)
            return lambda message: value(message) is None
        case Cast(of=of):
            value = _value_of(of)
            return lambda message: None if (found := value(message)) is None else found == "true"
        case Equal(left=left, right=right):
            return _equal(left, right)
        case Relation(sign=sign, left=left, right=right):
            return _relation(sign, left, right)
        case In(of=of, values=values, negated=negated_in):
            return _chain_of_texts(of, values, negated_in)
        case TextTest():
            return _text_test(node)
        case Literal(value=value_):
            fixed = value_ if isinstance(value_, bool) else None
            return lambda message: fixed
    raise AssertionError(node)


def _chain(judges: list[Judge], any_of: bool) -> Judge:
    def judge(message: Candidate) -> bool | None:
        found: bool | None = not any_of
        for one in judges:
            verdict = one(message)
            if verdict is any_of:
                return any_of
            if verdict is None:
                found = None
        return found

    return judge


def _equal(left: Node, right: Node) -> Judge:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Source) and one.kind == KEY and isinstance(other, Literal):
            wanted = other.value
            text = str(wanted.value) if isinstance(wanted, Number) else str(wanted)
            return _any_key(text.__eq__)
    first, second = _value_of(left), _value_of(right)

    def judge(message: Candidate) -> bool | None:
        one, two = first(message), second(message)
        if one is None or two is None:
            return None
        if isinstance(one, bool) or isinstance(two, bool):
            return _word_of(one) == _word_of(two)
        if isinstance(one, str) and isinstance(two, str):
            return one == two
        a, b = _number(one), _number(two)
        return None if a is None or b is None else a == b

    return judge


def _word_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _relation(sign: str, left: Node, right: Node) -> Judge:
    first, second = _value_of(left), _value_of(right)
    compare = _SIGNS[sign]

    def judge(message: Candidate) -> bool | None:
        one, two = first(message), second(message)
        if one is None or two is None:
            return None
        a, b = _number(one), _number(two)
        if a is not None and b is not None:
            return compare(a, b)
        if isinstance(one, str) and isinstance(two, str):
            return compare(one, two)
        return None

    return judge


def _any_key(fits: Callable[[str], bool]) -> Judge:
    """Return a judge: TRUE if one of the message's keys fits; null without keys."""

    def judge(message: Candidate) -> bool | None:
        keys = message.named(KEYS)
        return None if keys is None else any(fits(key) for key in keys.split())

    return judge


def _chain_of_texts(of: Node, values: tuple[str, ...], negated: bool) -> Judge:
    wanted = frozenset(values)
    if isinstance(of, Source) and of.kind == KEY:
        judge = _any_key(wanted.__contains__)
    else:
        value = _value_of(of)

        def judge(message: Candidate) -> bool | None:
            found = value(message)
            return None if found is None else found in wanted

    return _perhaps_negated(judge, negated)


def _perhaps_negated(judge: Judge, negated: bool) -> Judge:
    if not negated:
        return judge

    def negative(message: Candidate) -> bool | None:
        found = judge(message)
        return None if found is None else not found

    return negative


def _text_test(node: TextTest) -> Judge:
    fits = _fits(node.test, node.search)
    of = node.of
    if isinstance(of, Source) and of.kind == KEY:
        judge = _any_key(fits)
    elif isinstance(of, Source) and of.kind == BODY:
        # Only the beginning of a long body is searched: a text that is found there counts, one that is not may be
        # behind it.
        only_beginning = node.test == "STARTSWITH"

        def judge(message: Candidate) -> bool | None:
            found = fits(message.text())
            if message.is_cut and not only_beginning and (not found or node.test == "ENDSWITH"):
                raise Undecided
            return found

    else:
        value = _value_of(of)

        def judge(message: Candidate) -> bool | None:
            found = value(message)
            return None if not isinstance(found, str) else fits(found)

    return _perhaps_negated(judge, node.negated)


def _fits(test: str, search: str) -> Callable[[str], bool]:
    match test:
        case "CONTAINS":
            return lambda text: search in text
        case "STARTSWITH":
            return lambda text: text.startswith(search)
        case "ENDSWITH":
            return lambda text: text.endswith(search)
    pattern = Pattern.like(search) if test == "LIKE" else Pattern(search)

    def fits(text: str) -> bool:
        if len(text) > PATTERN_CHARS:
            raise Undecided
        return pattern.found_in(text)

    return fits
