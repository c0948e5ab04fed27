"""Reads an expression into nodes, by precedence and with two stacks of its own: no nesting can exhaust Python's.

    or      := and ( OR and )*
    and     := equality ( AND equality )*
    equality:= compare ( = compare | <> compare | IS [NOT] NULL )*
    compare := unary ( > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                     | [NOT] IN ( 'text' , ... ) | [NOT] CONTAINS 'text' | [NOT] STARTSWITH ... | [NOT] ENDSWITH ... )*
    unary   := + unary | - unary | NOT unary | primary
    primary := literal | identifier | ( or )

Operands are checked where RocketMQ checks them, as soon as they are joined, and reading ends where its reading ends: at
the first token that cannot go on with a complete expression. Source: `SelectorParser.jj` and the `create...` methods of
`ComparisonExpression`, `LogicExpression`, `UnaryExpression`, `ConstantExpression` (filter module of RocketMQ 5.3.3).
"""

from __future__ import annotations

from .errors import SqlError, error_at
from .java_values import (
    DOUBLE,
    INTEGER,
    LONG,
    MAX_DOUBLE,
    MAX_INTEGER,
    MAX_LONG,
    MIN_DOUBLE,
    Number,
    compare_doubles,
    joined,
)
from .lexer import END, FLOAT, STRING, WHOLE, WORD, Lexer, Token, string_value
from .nodes import (
    And,
    Boolean,
    Cast,
    Equal,
    In,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Or,
    Property,
    Relation,
    TextTest,
    is_boolean,
)

#: Most characters of an expression. RocketMQ has no bound; this one limits how long an expression keeps a thread busy.
MAX_LENGTH = 32 * 1024
#: Most levels of nested nodes; three times as many brackets and signs may wait for their operand. RocketMQ ends in a
#: StackOverflowError.
MAX_DEPTH = 100

_RELATIONS = frozenset((">", ">=", "<", "<="))
_TEXT_TESTS = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_AFTER_NOT = _TEXT_TESTS | {"BETWEEN", "IN"}
_PREFIXES = frozenset(("+", "-", "NOT"))

# Kinds on the stack of operators, besides the signs: an open bracket, and BETWEEN at its first or second operand.
_OPEN = "("
_LOW = "low"
_HIGH = "high"

#: Strength with which an operator that waits for its right side binds. All others take it as soon as it is complete.
_PRECEDENCE = {"OR": 1, "AND": 2, "NOT": 3, "=": 4, "<>": 4}


def parse(text: str) -> Node:
    """Return the Boolean node of an expression. Raises SqlError."""
    if len(text) > MAX_LENGTH:
        raise error_at(text, MAX_LENGTH, f"It has {len(text):,} characters, {MAX_LENGTH:,} are allowed")
    return Parser(text).parse()


class Parser:
    """after_not: comparisons that may stand behind NOT. tight_not: True if NOT a = b is (NOT a) = b, as in RocketMQ. A
    language with additions is a subclass (`filter/query`)."""

    after_not = _AFTER_NOT
    tight_not = True

    def __init__(self, text: str, lexer: Lexer | None = None) -> None:
        self._text = text
        self._lexer = lexer or Lexer(text)
        self._token = self._lexer.next()
        self._operands: list[Node] = []
        # Each kind with its token, and True if a NOT stood before (BETWEEN).
        self._waiting: list[tuple[str, Token, bool]] = []

    def parse(self) -> Node:
        while True:
            self._operand()
            if not self._operators():
                break
        self._reduce(0)
        return self._as_boolean(self._operands[-1], self._token)

    # Tokens.

    def _advance(self) -> Token:
        token = self._token
        self._token = self._lexer.next()
        return token

    def _error(self, message: str, token: Token) -> SqlError:
        return error_at(self._text, token.start, message)

    def _unexpected(self, expected: str, token: Token | None = None) -> SqlError:
        token = token or self._token
        found = "the expression ends" if token.kind == END else f"found {_short(token.text)}"
        return self._error(f"Expected {expected}, {found}", token)

    def _expect(self, kind: str, expected: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(expected)
        return self._advance()

    # Operands.

    def _operand(self) -> None:
        """Read up to and with one literal or identifier, and open what stands before it."""
        while True:
            token = self._token
            kind = token.kind
            if kind == _OPEN or kind in _PREFIXES:
                if len(self._waiting) >= 3 * MAX_DEPTH:
                    raise self._too_deep(token)
                self._waiting.append((kind, token, False))
                self._advance()
                continue
            break
        if kind == WORD:
            node: Node = self._named(token)
        elif kind == STRING:
            node = Literal(1, joined(string_value(token.text)))
        elif kind == WHOLE:
            node = Literal(1, self._whole(token))
        elif kind == FLOAT:
            node = Literal(1, self._float(token))
        elif kind in ("TRUE", "FALSE"):
            node = Literal(1, kind == "TRUE")
        elif kind == "NULL":
            node = Literal(1, None)
        else:
            raise self._unexpected("a property, a literal, NOT or (")
        self._advance()
        self._operands.append(node)

    def _named(self, token: Token) -> Node:
        """Return the node of a word. Its token is the present one; on return the last token of the node is."""
        return Property(1, token.text)

    def _whole(self, token: Token) -> Number:
        digits = token.text.rstrip("lL")
        if len(digits) > 19 or (value := int(digits)) > MAX_LONG:
            raise self._error(f"{_short(token.text)} is more than 64 bits hold", token)
        return Number(INTEGER if value <= MAX_INTEGER else LONG, value)

    def _float(self, token: Token) -> Number:
        value = float(token.text)
        if value > MAX_DOUBLE or value < MIN_DOUBLE:
            raise self._error(
                f"{_short(token.text)} is not between {MIN_DOUBLE} and {MAX_DOUBLE} (0.0 is not allowed, 0 is)", token
            )
        return Number(DOUBLE, value)

    # Operators.

    def _operators(self) -> bool:
        """Read what may follow an operand. True if another operand must come, False if the expression is complete."""
        compares = True  # behind IS NULL only operators that bind less tight than a comparison follow
        while True:
            self._tight()
            token = self._token
            kind = token.kind
            if self._waiting and self._waiting[-1][0] == _LOW:
                _, between, negated = self._waiting.pop()
                self._expect("AND", "AND and the upper end of BETWEEN")
                self._waiting.append((_HIGH, between, negated))
                return True
            if kind in _RELATIONS and compares:
                self._wait(kind)
                return True
            if kind in ("AND", "OR", "=", "<>"):
                self._reduce(_PRECEDENCE[kind])
                self._wait(kind)
                return True
            if kind == "IS":
                self._reduce(_PRECEDENCE["="])
                self._is_null()
                compares = False
            elif kind == "NOT" and compares:
                self._advance()
                if self._token.kind not in self.after_not:
                    raise self._unexpected("IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH behind NOT", token)
                if self._comparison(True):
                    return True
            elif kind in self.after_not and compares:
                if self._comparison(False):
                    return True
            elif kind == ")" and self._close():
                compares = True
            elif any(waiting[0] == _OPEN for waiting in self._waiting):
                raise self._unexpected("an operator or )")
            else:
                return False

    def _wait(self, kind: str) -> None:
        self._waiting.append((kind, self._advance(), False))

    def _tight(self) -> None:
        """Join operators that take their operand as soon as it is complete: signs, relations, the end of BETWEEN."""
        while self._waiting:
            kind, token, negated = self._waiting[-1]
            if kind == "+":
                self._waiting.pop()
            elif kind == "-":
                self._waiting.pop()
                of = self._operands.pop()
                self._push(Negate(of.depth + 1, of), token)
            elif kind == "NOT" and self.tight_not:
                self._join_not()
            elif kind in _RELATIONS:
                self._waiting.pop()
                right, left = self._operands.pop(), self._operands.pop()
                self._push(self._relation(kind, left, right, token), token)
            elif kind == _HIGH:
                self._waiting.pop()
                high, low, value = self._operands.pop(), self._operands.pop(), self._operands.pop()
                self._push(self._between(value, low, high, negated, token), token)
            else:
                return

    def _join_not(self) -> None:
        _, token, _ = self._waiting.pop()
        of = self._as_boolean(self._operands.pop(), token)
        self._push(Not(of.depth + 1, of), token)

    def _reduce(self, precedence: int) -> None:
        """Join the waiting operators that bind at least as tight, up to an open bracket."""
        while self._waiting:
            kind, token, _ = self._waiting[-1]
            if _PRECEDENCE.get(kind, -1) < max(precedence, 1):
                return
            if kind == "NOT":
                self._join_not()
                continue
            self._waiting.pop()
            right, left = self._operands.pop(), self._operands.pop()
            if kind in ("=", "<>"):
                node: Node = self._equal(left, right, token)
                if kind == "<>":
                    node = Not(node.depth + 1, node)
            else:
                left, right = self._as_boolean(left, token), self._as_boolean(right, token)
                node = _chain(And if kind == "AND" else Or, left, right)
            self._push(node, token)

    def _close(self) -> bool:
        """Read a closing bracket; False if none is open."""
        self._reduce(0)
        if not self._waiting or self._waiting[-1][0] != _OPEN:
            return False
        self._waiting.pop()
        self._advance()
        return True

    def _is_null(self) -> None:
        token = self._advance()
        negated = self._token.kind == "NOT"
        if negated:
            self._advance()
        self._expect("NULL", "NULL behind IS NOT" if negated else "NULL or NOT NULL behind IS")
        of = self._operands.pop()
        node: Node = IsNull(of.depth + 1, of)
        self._push(Not(node.depth + 1, node) if negated else node, token)

    def _comparison(self, negated: bool) -> bool:
        """Read BETWEEN, IN or a test of the text. True if an operand must come."""
        token = self._advance()
        if token.kind == "BETWEEN":
            self._waiting.append((_LOW, token, negated))
            return True
        if token.kind == "IN":
            values = self._list()
            of = self._operands.pop()
            if not isinstance(of, Property):
                raise self._error("IN wants a property on its left (NOT binds tighter: write a NOT IN ...)", token)
            self._push(In(2, of, values, negated), token)
        else:
            search = self._expect(STRING, f"a string behind {token.kind}")
            of = self._operands.pop()
            value = joined(string_value(search.text))
            self._push(TextTest(of.depth + 1, token.kind, of, value, negated), token)
        return False

    def _list(self) -> tuple[str, ...]:
        self._expect("(", "( behind IN")
        values = [self._expect(STRING, "a string in the list of IN").text]
        while self._token.kind == ",":
            self._advance()
            values.append(self._expect(STRING, "a string in the list of IN").text)
        self._expect(")", ", or ) in the list of IN")
        return tuple([joined(string_value(value)) for value in values])

    # Checks of what is joined.

    def _push(self, node: Node, token: Token) -> None:
        if node.depth > MAX_DEPTH:
            raise self._too_deep(token)
        self._operands.append(node)

    def _too_deep(self, token: Token) -> SqlError:
        return self._error(f"More than {MAX_DEPTH} levels one in another", token)

    def _as_boolean(self, node: Node, token: Token) -> Node:
        if is_boolean(node):
            return node
        if isinstance(node, Property):
            return Cast(2, node)
        raise self._error("A value stands where a condition is wanted", token)

    def _between(self, value: Node, low: Node, high: Node, negated: bool, token: Token) -> Node:
        if not negated and isinstance(low, Literal) and isinstance(high, Literal):
            left, right = low.value, high.value
            if isinstance(left, Number) and isinstance(right, Number) and compare_numbers(right, left) < 0:
                raise self._error("The lower end of BETWEEN is above the upper end", token)
        first = self._relation("<" if negated else ">=", value, low, token)
        second = self._relation(">" if negated else "<=", value, high, token)
        if _is_negated_condition(value):
            # It is null, whatever is in it: the second half adds nothing, and would double the work at each level.
            return first
        return _chain(Or if negated else And, first, second)

    def _relation(self, sign: str, left: Node, right: Node, token: Token) -> Node:
        for operand in (left, right):
            number = isinstance(operand, Literal) and isinstance(operand.value, Number)
            if not number and (isinstance(operand, Literal) or is_boolean(operand)):
                message = (
                    f"{_shown(operand)} cannot be compared by {token.text.upper()}, only properties and numbers can"
                )
                raise self._error(message, token)
        return Relation(max(left.depth, right.depth) + 1, sign, left, right)

    def _equal(self, left: Node, right: Node, token: Token) -> Node:
        for operand in (left, right):
            if isinstance(operand, Literal) and operand.value is None:
                raise self._error(f"NULL cannot be compared by {token.text}: write IS NULL", token)
        if (
            isinstance(left, Literal)
            and isinstance(left.value, bool)
            and isinstance(right, Literal)
            and not isinstance(right.value, bool)
        ):
            raise self._error(f"{_shown(left)} cannot be compared with {_shown(right)}", token)
        return Equal(max(left.depth, right.depth) + 1, left, right)


def compare_numbers(left: Number, right: Number) -> int:
    """Return a number below, at or above 0, as Java compares two numbers after widening the narrower one."""
    if DOUBLE in (left.type, right.type):
        return compare_doubles(float(left.value), float(right.value))
    return (left.value > right.value) - (left.value < right.value)


def _chain(joint: type[And] | type[Or], left: Node, right: Node) -> Node:
    return joint(max([node.depth + (type(node) is not joint) for node in (left, right)]), left, right)


def _is_negated_condition(node: Node) -> bool:
    if not isinstance(node, Negate):
        return False
    while isinstance(node, Negate):
        node = node.of
    return isinstance(node, Boolean)


def _shown(node: Node) -> str:
    if not isinstance(node, Literal):
        return "A condition"
    if isinstance(node.value, str):
        return f"The string {_short(repr(node.value))}"
    return "NULL" if node.value is None else str(node.value).upper()


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
