"""Expressions and properties for hypothesis: mostly such that some rule of SQL92 has something to say about them."""

from __future__ import annotations

from hypothesis import strategies as st

from appliance.engine.filter.sql92 import Sql92Expression, SqlError

NAMES = ("a", "b", "n", "_x", "$y9", "A", "true_", "inn", "ISx")
# Numbers, truths and texts at their edges. Each is a property's value and a literal's text.
NUMBERS = (
    *("0", "1", "5", "-5", "+5", "05", "007", "2147483647", "2147483648", "-2147483648", "-2147483649", "3000000000"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9007199254740993", "9007199254740992"),
    *("5.0", "5.", ".5", "-.5", "5e0", "5E+1", "5e-400", "1e400", "4.9e-324", "2e-324", "1.7976931348623157E308"),
    *("5d", "5.0f", "5F", "1e1D", "5L", "5l", "0x1p3", "0X1.8P1", "0x.8p1d", "0x1", "0x1p99999", "-0x1p-99999", "0xp1"),
    *("NaN", "-NaN", "+NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "Infinityd", "0.0", "-0.0", "-0"),
    *(
        " 5",
        "5 ",
        " 5.0 ",
        "\t5.0\n",
        "\x00 5.0\x1f",
        "\u00a05.0",
        "5\u2003",
        "1_0",
        "5 0",
        "--5",
        "+",
        "-",
        ".",
        "e5",
        "5e",
    ),
    *("٥", "५५", "５", "𝟓", "5٥", "²", "Ⅷ", "0" * 60 + "5", "9" * 60, "1" + "0" * 400, "0." + "0" * 50 + "1"),
)
WORDS = (
    *(
        "",
        "x",
        "xy",
        "true",
        "TRUE",
        "TrUe",
        "false",
        "tru",
        "true ",
        "null",
        "'",
        "''",
        "it's",
        "X",
        "-- x",
        "/* x */",
    ),
    *(
        "é",
        "É",
        "北京",
        "😀",
        "x😀y",
        "\ud83d",
        "\ude00",
        "x\ude00",
        "\ufffd",
        "\x00",
        "\n",
        "a\x00b",
        "ß",
        "ı",
        "\uffff",
    ),
)

_names = st.sampled_from(NAMES)
_values = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=4))
properties = st.dictionaries(_names, _values, max_size=5)

_strings = st.one_of(st.sampled_from(WORDS), st.sampled_from(NUMBERS), st.text(max_size=4)).map(
    lambda text: "'" + text.replace("'", "''") + "'"
)
_numbers = st.one_of(
    st.sampled_from(
        (
            "0",
            "1",
            "4",
            "5",
            "6",
            "5l",
            "0L",
            "2147483647",
            "2147483648",
            "3000000000L",
            "9223372036854775807",
            "9223372036854775808",
            "5.0",
            "5.",
            ".5",
            "5e0",
            "0.0",
            "1e400",
            "4.9e-324",
            "1e-400",
            "05",
            "00",
            "1.5E+3",
            "9007199254740993",
            "9007199254740992.0",
            "1.7976931348623157e308",
            "5d",
            "5.0f",
            "05.5",
            "5e",
        )
    ),
    st.integers(0, 10).map(str),
)
_spaces = st.sampled_from((" ", " ", " ", " ", "  ", "\n", "\t", "\r\n", "\f", " /* c */ ", " -- c\n"))
_case = st.sampled_from((str, str, str.lower, str.title))


@st.composite
def _keyword(draw: st.DrawFn, word: str) -> str:
    return " ".join([draw(_case)(part) for part in word.split()])


def _joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    """The parts with blanks between them; a part in capitals is a keyword."""
    pieces: list[st.SearchStrategy[str]] = []
    for part in parts:
        if pieces:
            pieces.append(_spaces)
        if isinstance(part, str):
            pieces.append(_keyword(part) if part.isupper() or " " in part else st.just(part))
        else:
            pieces.append(part)
    return st.tuples(*pieces).map("".join)


_relations = st.sampled_from((">", ">=", "<", "<="))
_equalities = st.sampled_from(("=", "<>"))
_negated = st.sampled_from(("", "NOT "))
_text_tests = st.sampled_from(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_list = st.lists(_strings, min_size=1, max_size=7).map(lambda texts: "(" + ", ".join(texts) + ")")
_numeric = st.one_of(
    _names, _names, _numbers, _numbers.map("-{}".format), _names.map("+{}".format), _names.map("-{}".format)
)
_anything = st.one_of(
    _names, _names, _numeric, _strings, st.sampled_from(("TRUE", "FALSE", "NULL", "-TRUE", "- 'x'", "-NULL"))
)

# Each is accepted, but for what the edges of numbers bring.
_tests = st.one_of(
    _joined(_names, _relations, _numbers),
    _joined(_numbers, _relations, _names),
    _joined(_numeric, _relations, _numeric),
    _joined(_names, _equalities, _anything),
    _joined(_anything, _equalities, _anything),
    _joined(_names, _equalities, _strings),
    _joined(_names, _negated.map(lambda word: f"{word}IN"), _list),
    _joined(_numeric, _negated.map(lambda word: f"{word}BETWEEN"), _numeric, "AND", _numeric),
    _joined(_anything, _negated, _text_tests, _strings),
    _joined(_anything, "IS", _negated, "NULL"),
    st.sampled_from(("TRUE", "FALSE", "NULL", "a", "n")),
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bracketed = inner.map("({})".format)
    return st.one_of(
        _joined(inner, "AND", inner),
        _joined(inner, "OR", inner),
        _joined(bracketed, st.sampled_from(("AND", "OR")), bracketed),
        _joined(inner, st.sampled_from(("AND", "OR")), inner, st.sampled_from(("AND", "OR")), inner),
        _joined("NOT", bracketed),
        _joined("NOT", inner),
        bracketed,
        _joined(bracketed, "IS", _negated, "NULL"),
        _joined(bracketed, _equalities, st.one_of(bracketed, _anything)),
        _joined(_anything, _equalities, bracketed),
        _joined(bracketed, _negated, _text_tests, _strings),
        _joined(bracketed.map("-{}".format), st.one_of(_relations, _equalities), _anything),
        _joined(_names, st.one_of(_relations, _equalities), bracketed.map("-{}".format)),
        _joined(bracketed.map("-{}".format), "BETWEEN", _numbers, "AND", _numbers),
        _joined("+", bracketed),
    )


expressions = st.recursive(_tests, _combined, max_leaves=6)

_tokens = st.one_of(
    st.sampled_from(
        (
            "AND",
            "OR",
            "NOT",
            "IN",
            "IS",
            "NULL",
            "BETWEEN",
            "TRUE",
            "CONTAINS",
            "startswith",
            "(",
            ")",
            ",",
            "+",
            "-",
            "=",
            "<>",
            "<",
            ">=",
            "a",
            "n",
            "5",
            "'x'",
            "1.",
            "--",
            "/*",
            "*/",
            "'",
            ";",
            "!",
            ".",
            "\n",
            "é",
            "''",
            "==",
        )
    ),
    _tests,
)
#: Token sequences that are seldom accepted.
soup = st.lists(_tokens, max_size=9).map(" ".join) | st.lists(_tokens, max_size=6).map("".join)

#: An expression and three maps of properties.
questions = st.tuples(st.one_of(expressions, expressions, expressions, soup), st.tuples(*[properties] * 3))


def verdict(text: str, values: dict[str, str]) -> str:
    """Ours, in the words of `ApacheFilter`; the class of an exception is left out, the place of a refusal too.

    All forms of judging are asked, and agree.
    """
    try:
        expression = Sql92Expression(text)
    except SqlError:
        return "REFUSED"
    try:
        value = expression.verdict(values)
    except (ValueError, TypeError):
        value = "THROWS"
    assert expression.matches(values) is (value is True), f"{text!r} {values!r}: {value}"
    return {True: "TRUE", False: "FALSE", None: "NULL", "THROWS": "THROWS"}[value]
