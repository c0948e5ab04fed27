"""Turns nodes into Python functions that judge a message.

A function takes the values of the properties that the expression reads, in the order of their names; None is a missing
one. Its source has only names and numbers that are made here: texts of users are objects it refers to. Each expression
has two:

    verdict   True, False or None for null; raises what an operand raises (ValueError, TypeError)
    matches   True if the verdict is TRUE. Operands that can no longer change that are left out

AND and OR are not simply Python's, because of null, and because an exception anywhere means "no match": RocketMQ goes
on behind an operand that is null, and what follows may raise. Where nothing that follows can, Python's `and` is enough.

An expression becomes several functions, so that no one compilation takes long (it holds the GIL meanwhile) or nests
deep. Source of the rules: `ComparisonExpression`, `UnaryExpression`, `LogicExpression` (RocketMQ 5.3.3, filter module).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import java_values
from .java_values import (
    DOUBLE,
    Number,
    boolean,
    compare_doubles,
    double,
    has_surrogate,
    integer,
    long,
    units,
)
from .nodes import (
    And,
    Cast,
    Chain,
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
)
from .parser import compare_numbers

Values = Sequence[str | None]
Judge = Callable[[Values], bool | None]

#: Most parts of one function, as `_Code` counts them: some 30 comparisons, which Python compiles in half a millisecond.
_LARGEST = 200


class _Code:
    """A Python expression, in brackets if it needs any. size: number of parts. raises, nullable: it may raise, be
    None."""

    __slots__ = ("nullable", "raises", "size", "text")

    def __init__(self, text: str, size: int, raises: bool = False, nullable: bool = True) -> None:
        self.text = text
        self.size = size
        self.raises = raises
        self.nullable = nullable


def compile_verdict(node: Node, names: Sequence[str]) -> Judge:
    """Return the function that gives True, False or None, or raises. names: the properties whose values it will get."""
    writer = _Writer(names)
    return writer.finish(writer.value(node))


def compile_matches(node: Node, names: Sequence[str]) -> Judge:
    """Return the function whose result is true exactly where `compile_verdict`'s is True; it may raise."""
    writer = _Writer(names)
    return writer.finish(writer.is_true(node, True))


class _Writer:
    """Collects the functions of one expression, in the namespace that they share.

    p: the properties' values; f1, f2: functions; k1, k2: texts and other constants; v1, v2: local values.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._names: dict[str, Any] = {
            "__builtins__": {},
            "integer": integer,
            "long": long,
            "double": double,
            "boolean": boolean,
            "compare_doubles": compare_doubles,
            "equal": equal,
            "units": units,
            "refuse": _refuse,
        }
        self._texts: dict[str, str] = {}
        self._count = 0

    def finish(self, code: _Code) -> Judge:
        judge: Judge = self._names[self._function(code)]
        return judge

    # Conditions, in three forms. `final`: from here on only TRUE (FALSE) matters, so what raises may be left out.

    def value(self, node: Node) -> _Code:
        """Return code that gives True, False or None."""
        match node:
            case Literal(value=value):
                return _known(value if isinstance(value, bool) else None)
            case Cast(of=of):
                return self._unless_null(of, "False", 1)
            case Not(of=of):
                return self._not(self.value(of))
            case Chain():
                return self._chain(node)
            case IsNull(of=of):
                return self._is_null(of)
            case Equal(left=left, right=right):
                return self._split(self._equal(left, right))
            case Relation(sign=sign, left=left, right=right):
                return self._relation(sign, left, right)
            case In(of=of, values=values, negated=negated):
                return self._in(of, values, negated)
            case TextTest():
                return self._text_test(node)
        raise AssertionError(node)

    def is_true(self, node: Node, final: bool) -> _Code:
        """Return code that is true exactly where the value is True."""
        match node:
            case Not(of=of):
                return self.is_false(of, final)
            case Or():
                return self._any(node, self.is_true, final)
            case And():
                return self._all(node, self.is_true, False, final)
            case Equal(left=Property() as left, right=Literal(value=str() as text)):
                return self._is_text(left, text)
        return self.value(node)

    def is_false(self, node: Node, final: bool) -> _Code:
        """Return code that is true exactly where the value is False."""
        match node:
            case Not(of=of):
                return self.is_true(of, final)
            case And():
                return self._any(node, self.is_false, final)
            case Or():
                return self._all(node, self.is_false, True, final)
        return _is_value(self.value(node), False)

    def _any(self, node: Chain, form: Callable[[Node, bool], _Code], final: bool) -> _Code:
        """Return code for an OR that is TRUE, or an AND that is FALSE: the first such operand settles it, even beside
        null."""
        operands = node.operands()
        last = len(operands) - 1
        return self._join("or", [form(operand, final and i == last) for i, operand in enumerate(operands)])

    def _all(self, node: Chain, form: Callable[[Node, bool], _Code], end: bool, final: bool) -> _Code:
        """Return code for an AND that is TRUE, or an OR that is FALSE. `end`: the value with which RocketMQ stops;
        behind a null it goes on."""
        operands = node.operands()
        if final:
            return self._join("and", [form(operand, True) for operand in operands])
        run: list[_Code] = []  # the operands behind, as far as Python's own `and` is enough
        raises = False  # True if anything behind may raise
        for operand in reversed(operands):
            if not raises:
                code = form(operand, False)
                raises = code.raises
                run.insert(0, code)
                continue
            code = self.value(operand)
            if not code.nullable:
                run.insert(0, _is_value(code, not end))
                continue
            rest = self._join("and", run)
            name = self._local()
            text = f"(False if ({name} := {code.text}) is {end} else {rest.text} and {name} is {not end})"
            run = [self._split(_Code(text, code.size + rest.size + 3, True, False))]
        return self._join("and", run)

    def _chain(self, node: Chain) -> _Code:
        """Return code for AND or OR: the value of the first operand that settles it, else null if one was null."""
        settles = isinstance(node, Or)
        joint = "or" if settles else "and"
        codes = [self.value(operand) for operand in node.operands()]
        if not any(code.nullable for code in codes):
            return self._join(joint, codes)
        result = codes.pop()
        while codes:
            code = codes.pop()
            size, raises = code.size + result.size, code.raises or result.raises
            if not code.nullable:
                made = _Code(f"({code.text} {joint} {result.text})", size + 1, raises, result.nullable)
            else:
                # The first settles it; else the rest does, unless the first is null and the rest does not settle it.
                first, rest = self._local(), self._local()
                text = (
                    f"({settles} if ({first} := {code.text}) is {settles} else "
                    f"{rest} if ({rest} := {result.text}) is {settles} or {first} is {not settles} else None)"
                )
                made = _Code(text, size + 5, raises)
            result = self._split(made)
        return result

    def _not(self, code: _Code) -> _Code:
        if not code.nullable:
            return _is_value(code, False)
        name = self._local()
        text = f"(None if ({name} := {code.text}) is None else not {name})"
        return self._split(_Code(text, code.size + 3, code.raises))

    def _join(self, joint: str, codes: list[_Code]) -> _Code:
        """Join conditions by Python's own `and` or `or`; parts that grow too large become functions."""
        while len(codes) > 1 and sum([code.size for code in codes]) > _LARGEST:
            grouped: list[_Code] = []
            group: list[_Code] = []
            size = 0
            for code in codes:
                if group and size + code.size > _LARGEST:
                    grouped.append(self._call(_joined(joint, group)))
                    group, size = [], 0
                group.append(code)
                size += code.size
            grouped.append(self._call(_joined(joint, group)))
            codes = grouped
        return _joined(joint, codes)

    # Tests.

    def _in(self, of: Property, values: tuple[str, ...], negated: bool) -> _Code:
        constant = self._constant(frozenset(values))
        return self._unless_null(of, lambda text: f"{text} {'not in' if negated else 'in'} {constant}", 2)

    def _text_test(self, node: TextTest) -> _Code:
        """Return code for a test: FALSE, never null, if the operand is no text. An empty search string finds nothing,
        negated or not."""
        if not node.search:
            return _known(False)
        value = _static(node.of)
        if isinstance(value, str):
            return _known(_TEXT_TESTS[node.test](units(value), units(node.search)) is not node.negated)
        if not isinstance(node.of, Property):
            return self._after(node.of, False)
        name = text = self._local()
        search = node.search
        if has_surrogate(search):
            text, search = f"units({name})", units(search)
        constant = self._text(search)
        if node.test == "CONTAINS":
            test = f"{constant} {'not in' if node.negated else 'in'} {text}"
        else:
            test = f"{'not ' if node.negated else ''}{text}.{node.test.lower()}({constant})"
        return _Code(f"(({name} := {self._get(node.of)}) is not None and {test})", 7, nullable=False)

    def _is_null(self, of: Node) -> _Code:
        if isinstance(of, Property):
            return _Code(f"({self._get(of)} is None)", 3, nullable=False)
        value = _static(of)
        if value is not _UNKNOWN:
            return _known(value is None)
        if isinstance(of, Negate):
            return self._after(of, True)
        code = self.value(of)
        return _Code(f"({code.text} is None)", code.size + 1, code.raises, False)

    def _relation(self, sign: str, left: Node, right: Node) -> _Code:
        """Return code for properties, numbers and nulls; null with either null. Source:
        `ComparisonExpression.evaluate`."""
        if isinstance(left, Property):
            if isinstance(right, Property):
                return self._two_properties(sign, left, right)
            number = _static(right)
            if isinstance(number, Number):
                return self._unless_null(left, lambda text: _compared(text, sign, number), 4, True)
            rest = self._after(right, None)
            return self._unless_null(left, rest.text, rest.size, True) if rest.raises else rest
        number = _static(left)
        if number is _UNKNOWN:
            return self._after(left, None)
        if not isinstance(number, Number):
            return _known(None)
        if isinstance(right, Property):
            return self._unless_null(right, lambda text: _compared(text, _MIRRORED[sign], number), 4, True)
        other = _static(right)
        if isinstance(other, Number):
            return _known(_SIGN_TESTS[sign](compare_numbers(number, other)))
        return self._after(right, None)

    def _two_properties(self, sign: str, left: Property, right: Property) -> _Code:
        """Return code that reads both as doubles, in Double's own order."""
        one, two = self._local(), self._local()
        missing = f"({one} := {self._get(left)}) is None or ({two} := {self._get(right)}) is None"
        test = f"compare_doubles(double({one}), double({two})) {sign} 0"
        return _Code(f"(None if {missing} else {test})", 12, True)

    def _equal(self, left: Node, right: Node) -> _Code:
        """Return code that is null only where the left one alone is; both null are equal. Source: `doCreateEqual`."""
        first, second = _static(left), _static(right)
        if isinstance(left, Property):
            if isinstance(right, Property):
                # Also equal where both are missing. Null only where the left one alone is.
                name = self._local()
                test = f"({name} := {self._get(left)}) == {self._get(right)}"
                return _Code(f"({test} or (None if {name} is None else False))", 8)
            if isinstance(second, Number):
                return self._unless_null(left, lambda text: _compared(text, "==", second), 4, True)
            if isinstance(second, str):
                return self._unless_null(left, lambda text: f"{text} == {self._text(second)}", 2)
            if isinstance(second, bool):
                return self._unless_null(left, lambda text: f"boolean({text}) is {second}", 3)
            if second is None:
                return self._is_null(left)
        elif isinstance(right, Property):
            if isinstance(first, Number):
                name = self._local()
                test = f"({name} := {self._get(right)}) is not None and {_compared(name, '==', first)}"
                return _Code(f"({test})", 7, True, False)
            if isinstance(first, str):
                return self._is_text(right, first)
        elif first is not _UNKNOWN and second is not _UNKNOWN:
            try:
                return _known(equal(first, second))
            except (ValueError, TypeError):
                return _Code("refuse()", 1, True)
        one, two = self._operand(left), self._operand(right)
        return _Code(f"equal({one.text}, {two.text})", one.size + two.size + 1, True)

    def _operand(self, node: Node) -> _Code:
        """Return code for the value of anything, for the general comparison."""
        if isinstance(node, Property):
            return _Code(self._get(node), 2)
        value = _static(node)
        if value is not _UNKNOWN:
            return _Code(self._constant(value), 1)
        return self._after(node, None) if isinstance(node, Negate) else self.value(node)

    def _after(self, node: Node, result: bool | None) -> _Code:
        """Return code for a known result that evaluates the operand first, which may raise."""
        while isinstance(node, Negate):
            node = node.of
        code = _known(result) if isinstance(node, Property | Literal) else self.value(node)
        if not code.raises:
            return _known(result)
        return self._split(_Code(f"({code.text}, {result})[1]", code.size + 2, True, result is None))

    # Pieces.

    def _get(self, node: Property) -> str:
        return f"p[{self._places[node.name]}]"

    def _is_text(self, of: Property, text: str) -> _Code:
        return _Code(f"({self._get(of)} == {self._text(text)})", 3, nullable=False)

    def _unless_null(self, of: Property, result: str | Callable[[str], str], size: int, raises: bool = False) -> _Code:
        """Return code: None without the property, else the result, which may be made of the value's name."""
        name = self._local()
        made = result if isinstance(result, str) else result(name)
        return _Code(f"(None if ({name} := {self._get(of)}) is None else {made})", size + 4, raises)

    def _local(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _text(self, text: str) -> str:
        name = self._texts.get(text)
        if name is None:
            name = self._texts[text] = self._constant(text)
        return name

    def _constant(self, value: Any) -> str:
        self._count += 1
        name = f"k{self._count}"
        self._names[name] = value
        return name

    def _split(self, code: _Code) -> _Code:
        return self._call(code) if code.size > _LARGEST else code

    def _call(self, code: _Code) -> _Code:
        """Make a function of the code, and return the call of it."""
        return _Code(f"{self._function(code)}(p)", 2, code.raises, code.nullable) if code.size > 3 else code

    def _function(self, code: _Code) -> str:
        self._count += 1
        name = f"f{self._count}"
        exec(compile(f"def {name}(p): return {code.text}", "<sql92>", "exec"), self._names)
        return name


def equal(left: Any, right: Any) -> bool | None:
    """Compare two values: texts, truths, numbers, None. Raises ValueError, TypeError. Source: `doCreateEqual`."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is type(right):
        if isinstance(left, Number):
            return compare_numbers(left, right) == 0
        return bool(left == right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise TypeError("a Boolean is no String")  # Java: ClassCastException
        return False
    if isinstance(left, Number):
        return _reads_as(right, left) if isinstance(right, str) else False
    if isinstance(right, bool):
        return boolean(left) is right
    return _reads_as(left, right)


def _reads_as(text: str, number: Number) -> bool:
    """True if a text, read as the type of the number, is that number."""
    return bool(getattr(java_values, number.type)(text) == number.value)


def _refuse() -> bool:
    raise ValueError("these literals cannot be compared")


_UNKNOWN = object()
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_SIGN_TESTS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, search: search in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _static(node: Node) -> Any:
    """Return the value of a node that is the same for all messages: a str, bool, Number or None; else `_UNKNOWN`."""
    negations = 0
    while isinstance(node, Negate):
        negations += 1
        node = node.of
    if isinstance(node, Literal):
        value = node.value
        if not negations:
            return value
        if isinstance(value, Number):
            return Number(value.type, -value.value) if negations % 2 else value
        return None
    # A property is a text, which negated is null. A condition negated is null as well, but may raise.
    return None if negations and isinstance(node, Property) else _UNKNOWN


def _known(value: bool | None) -> _Code:
    return _Code(repr(value), 1, nullable=value is None)


def _is_value(code: _Code, value: bool) -> _Code:
    """Return code that is true exactly where the code gives that value."""
    if code.nullable:
        return _Code(f"({code.text} is {value})", code.size + 1, code.raises, False)
    return code if value else _Code(f"(not {code.text})", code.size + 1, code.raises, False)


def _joined(joint: str, codes: list[_Code]) -> _Code:
    if len(codes) == 1:
        return codes[0]
    text = f" {joint} ".join([code.text for code in codes])
    raises, nullable = any(code.raises for code in codes), any(code.nullable for code in codes)
    return _Code(f"({text})", sum([code.size for code in codes]) + 1, raises, nullable)


def _compared(text: str, sign: str, number: Number) -> str:
    """Return code that compares a text, read as the number's type, with the number. A Double that is known is never NaN
    or zero; NaN is above all."""
    read, value = f"{number.type}({text})", repr(number.value)
    if number.type == DOUBLE and sign in (">", ">="):
        return f"not {read} {'<=' if sign == '>' else '<'} {value}"
    return f"{read} {sign} {value}"
