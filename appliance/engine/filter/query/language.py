"""Parses queries of people: SQL92 by its own parser, and in addition

    tag, key, body                the message's tag, any of its keys, its body as text
    property('order-id')          a property whose name is no word, or is one of these three
    body('$.customer.id')         a value of a body that is JSON; ['a name'] and [0] go on in it
    x LIKE 'A-%'   x REGEXP 'e+'  with NOT before them as well

The whole text has to be an expression: SQL92 of consumers ends silently where it cannot go on, which is no help to a
person. Texts may also be compared by < and >, as dates in JSON are, and NOT binds as in SQL: NOT a = b is NOT (a = b).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..sql92.errors import SqlError
from ..sql92.lexer import END, STRING, WORD, Lexer, Token, string_value
from ..sql92.nodes import Literal, Node, Property, Relation, is_boolean
from ..sql92.parser import Parser
from .patterns import Pattern, PatternError

#: Most characters of an expression.
MAX_LENGTH = 4096
#: Most steps of a path into JSON.
MAX_PATH = 32

PROPERTY, TAG, KEY, BODY, JSON = range(5)
_PLAIN = {"tag": TAG, "key": KEY, "body": BODY}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Source(Property):
    """The part of a message that a text comes from. kind: one of the above. path: for JSON. name: of a property."""

    kind: int
    path: tuple[str | int, ...] = ()


class _Lexer(Lexer):
    """LIKE and REGEXP are keywords here; as a property's name they are written property('LIKE')."""

    def next(self) -> Token:
        token = super().next()
        if token.kind == WORD and token.text.upper() in ("LIKE", "REGEXP"):
            return token._replace(kind=token.text.upper())
        return token


class _Parser(Parser):
    after_not = Parser.after_not | {"LIKE", "REGEXP"}
    tight_not = False

    def __init__(self, text: str) -> None:
        super().__init__(text, _Lexer(text))

    def parse(self) -> Node:
        node = super().parse()
        if self._token.kind != END:
            raise self._unexpected("AND, OR or the end")
        return node

    def _named(self, token: Token) -> Node:
        follows = self._lexer.text[token.start + len(token.text) :].lstrip()[:1]
        if token.text in ("body", "property") and follows == "(":
            self._advance()
            self._advance()
            argument = self._token
            if argument.kind != STRING:
                raise self._unexpected("a text in single quotes")
            self._advance()
            if self._token.kind != ")":
                raise self._unexpected(")")
            text = string_value(argument.text)
            if token.text == "property":
                return Source(1, text, PROPERTY)
            return Source(1, text, JSON, self._path(text, argument))
        return Source(1, token.text, _PLAIN.get(token.text, PROPERTY))

    def _path(self, text: str, token: Token) -> tuple[str | int, ...]:
        """Return the steps of `$.a['b c'][0]`."""

        def wrong() -> SqlError:
            return self._error("A path into JSON is written like $.customer.id, $['a name'] or $.items[0]", token)

        if not text.startswith("$"):
            raise wrong()
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            if text.startswith("['", at):
                end = text.find("']", at)
                if end < 0:
                    raise wrong()
                steps.append(text[at + 2 : end])
                at = end + 2
            elif text[at] == "[":
                end = text.find("]", at)
                digits = text[at + 1 : max(end, 0)]
                if not (digits.isascii() and digits.isdigit() and len(digits) < 7):
                    raise wrong()
                steps.append(int(digits))
                at = end + 1
            elif text[at] == ".":
                ends = (text.find(".", at + 1), text.find("[", at + 1), len(text))
                end = min([place for place in ends if place > 0])
                if end == at + 1:
                    raise wrong()
                steps.append(text[at + 1 : end])
                at = end
            else:
                raise wrong()
        if len(steps) > MAX_PATH:
            raise wrong()
        return tuple(steps)

    def _comparison(self, negated: bool) -> bool:
        kind = self._token.kind
        found = super()._comparison(negated)
        if kind in ("LIKE", "REGEXP"):
            node = self._operands[-1]
            try:
                (Pattern.like if kind == "LIKE" else Pattern)(node.search)  # type: ignore[attr-defined]
            except PatternError as error:
                token = self._pattern_token
                # The quote stands before the pattern; a doubled one in it moves what is behind by one.
                at = Token(STRING, "", token.start + 1 + error.position)
                raise self._error(f"The pattern is refused: {error}", at) from None
        return found

    def _expect(self, kind: str, expected: str) -> Token:
        token = super()._expect(kind, expected)
        if kind == STRING:
            self._pattern_token = token
        return token

    def _relation(self, sign: str, left: Node, right: Node, token: Token) -> Node:
        for operand in (left, right):
            if is_boolean(operand):
                raise self._error(f"A condition cannot be compared by {token.text}", token)
        if any(isinstance(one, Literal) and isinstance(one.value, str) for one in (left, right)):
            return Relation(max(left.depth, right.depth) + 1, sign, left, right)
        return super()._relation(sign, left, right, token)


def parse(text: str) -> Node:
    """Return the condition of an expression. Raises SqlError."""
    if len(text) > MAX_LENGTH:
        raise SqlError(f"It has {len(text):,} characters, {MAX_LENGTH:,} are allowed", 1, MAX_LENGTH)
    return _Parser(text).parse()
