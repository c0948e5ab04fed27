"""Records what Apache's filter module says of a table of expressions, a line or more for every rule of the language.

    .venv/bin/python -m tests.support.sql92.record        # writes tests/golden/sql92/verdicts.json

Without Java `tests/engine/filter/sql92/test_recorded_verdicts.py` holds us to the file.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.sql92.apache_filter import ApacheFilter
from tests.support.sql92.expressions import NUMBERS, WORDS

RECORDED = Path(__file__).parents[2] / "golden" / "sql92" / "verdicts.json"
VERSION = "5.3.3"
#: Verdict -> its letter in the file: one letter for each map of properties.
LETTERS = {"TRUE": "T", "FALSE": "F", "NULL": "N", "THROWS": "X"}

Values = dict[str, str]

_NONE: Values = {}
_X: Values = {"a": "x"}
_XY: Values = {"a": "x", "b": "y"}
_ONE: Values = {"a": "1"}
_FIVE: Values = {"n": "5", "a": "x"}
_TEXTS: list[Values] = [{"a": word} for word in WORDS]
_READ: list[Values] = [{"a": number} for number in NUMBERS]
_BASIC = [_NONE, _X, _XY, _ONE, _FIVE]
_MANY = {f"p{i}": str(i) for i in range(20)}

_ENDS: list[Values] = [
    {"a": "5", "n": "5", "b": "6"},
    {"a": "5", "n": "x"},
    {"n": "5", "b": "6"},
    {"a": "5", "n": "5"},
    {"a": "4", "b": "x"},
]
_PAIRS: list[Values] = [
    {"a": one, "b": two}
    for one in ("5", "5.0", "NaN", "0.0", "-0.0", "x", " 5 ", "Infinity")
    for two in ("5", "NaN", "-0.0", "0", "y")
]

#: Rule -> maps of properties, and the expressions that each of them is judged by.
TABLE: dict[str, list[tuple[list[Values], list[str]]]] = {
    "Tokens: keywords in any case, names in theirs": [
        (_BASIC, [
            "a = 'x' And b = 'y'", "NOT (a = 'x')", "not(a = 'x')", "a iS nUlL", "A = 'x'", "a In ('x')",
        ]),
        (_BASIC, [
            "a between 1 and 5", "a BeTwEeN 1 aNd 5", "a contains 'x'", "a StartsWith 'x'", "a ENDSWITH 'x'",
        ]),
        ([_NONE], [
            "and = 'x'", "is = 'x'", "null = 'x'", "contains = 'x'", "or", "between", "in = 5",
        ]),
        ([_NONE, {"inn": "x"}], [
            "andy = 'x'", "$a = 'x'", "_a = 'x'", "a$1_ = 'x'", "notnull = 'x'", "inn = 'x'",
        ]),
        ([_NONE], [
            "a.b = 'x'", "a-b = 'x'", "1a = 'x'", "é = 'x'", "a:b = 'x'", "\"a\" = 'x'", "`a` = 'x'",
        ]),
    ],
    "Tokens: strings": [
        (_TEXTS[:12], [
            "a = 'it''s'", "a = ''", "a = ''''", "a = 'x''y'", "a = 'x", "a = '", "a = 'x'''", "a = 'x''",
        ]),
        (_TEXTS, [
            "a = '-- x'", "a = '/* x */'", "a = '\n'", "a = '😀'", "a = '\ud83d'", "a = '\x00'", "a = 'é'",
        ]),
        (_BASIC, [
            "a = \"x\"", "a = x", "a = 'x''y''z'", "'x' = a", "'x' <> a", "'x' = 'x'", "'x' = 'y'", "'x' <> 'y'",
        ]),
    ],
    "Tokens: numbers": [
        (_READ[:12], [
            "a = 0", "a = 5", "a = 05", "a = 00", "a = 5l", "a = 5L", "a = 0l", "a = 5d", "a = 5f", "a = 0x5",
            "a = 5_0",
        ]),
        (_READ, [
            "a = 5.", "a = .5", "a = 5.0", "a = 5e0", "a = 5E+1", "a = 5.e-1", "a = 05.0", "a = 05e0", "a = 5e",
            "a = 5.0.0",
        ]),
        (_READ, [
            "a > 2147483647", "a > 2147483648", "a > 9223372036854775807", "a > 9223372036854775808",
        ]),
        (_READ, [
            "a > 0.0", "a > 1e400", "a > 1e-400", "a > 4.9e-324", "a > 2e-324", "a > 1.8e308", "a > 1.7e308",
            "a > .0",
        ]),
        (_READ, [
            "a > -5", "a > - 5", "a > --5", "a > - -5", "a > +5", "a > -2147483648", "a > -9223372036854775808",
        ]),
    ],
    "Tokens: blanks and comments": [
        (_BASIC, [
            "a='x'", " a\t=\n'x'\r\n", "a\x0c= 'x'", "a\x0b= 'x'", "a\u00a0= 'x'", "a = 'x'\x00", "\ufeffa = 'x'",
        ]),
        (_BASIC, [
            "a = /* c */ 'x'", "/**/a = 'x'", "/*/a = 'x'", "/* a * / */a = 'x'", "/***/a = 'x'", "a = 'x' /* c",
        ]),
        (_BASIC, [
            "-- c\na = 'x'", "-- c\r\na = 'x'", "-- c\ra = 'x'", "a = 'x' -- c", "a -- c\n= 'x'", "-- a = 'x'", "--",
        ]),
        ([_NONE], [
            "a /= 'x'", "a / b", "a = 'x' /", "a = 'x' / b",
        ]),
    ],
    "Text behind a complete expression": [
        (_BASIC, [
            "a = 'x' foo", "a = 'x' 5 ;", "a = 'x' )", "a = 'x' ) ;", "a = 'x' , b", "a = 'x' (", "a b", "a 'x' ;",
        ]),
        (_BASIC, [
            "a = 'x' ;", "a = 'x' !", "a = 'x'@", "a = 'x';b", "a ;", "(a = 'x' foo)", "n >= 05", "a + 1 = 2",
            "a - 1",
        ]),
        (_BASIC, [
            "a IS NULL < 5", "a IS NULL IN ('x')", "a IS NULL NOT IN ('x')", "a IS NULL IS NULL", "a IS NULL = TRUE",
        ]),
        (_BASIC, [
            "a LIKE 'x'", "a % 2 = 0", "a * 2 = 4", "a == 'x'", "a != 'x'", "a =! 'x'", "length(a) = 1",
        ]),
    ],
    "What is refused": [
        ([_NONE], [
            "", " ", "\n", ";", "()", "(", ")", "a =", "= a", "a = 'x' AND", "a = 'x' OR OR b", "AND", "NOT",
            "(a = 'x'",
        ]),
        ([_NONE], [
            "'x'", "5", "5.0", "-5", "-a", "+5", "(5)", "('x')", "5 AND a = 'x'", "a = 'x' OR 'x'", "NOT 5",
            "NOT 'x'",
        ]),
        ([_NONE], [
            "a > 'x'", "a >= TRUE", "a < NULL", "a <= (b = 1)", "'x' > a", "TRUE < a", "(a = 1) > 5", "NOT a > 5",
        ]),
        ([_NONE], [
            "a = NULL", "NULL = a", "a <> NULL", "TRUE = 1", "TRUE = 'x'", "TRUE <> 5.0", "NULL = NULL",
            "FALSE = 'x'",
        ]),
        ([_NONE], [
            "a IN ()", "a IN (1)", "a IN ('x', 1)", "a IN ('x',)", "a IN 'x'", "a IN ('x'", "5 IN ('x')",
            "'x' IN ('x')",
        ]),
        ([_NONE], [
            "a IN (b)", "(a = 1) IN ('x')", "-a IN ('x')", "NOT a IN ('x')", "TRUE IN ('x')", "a NOT ('x')",
            "a NOT b",
        ]),
        ([_NONE], [
            "a CONTAINS x", "a CONTAINS 5", "a STARTSWITH ('x')", "a ENDSWITH", "a NOT CONTAINS b", "a NOT = 'x'",
        ]),
        ([_NONE], [
            "a BETWEEN 5 AND 1", "a BETWEEN 5.0 AND 1", "a BETWEEN 'x' AND 'y'", "a BETWEEN NULL AND 5",
            "a BETWEEN 1",
        ]),
        ([_NONE], [
            "a BETWEEN 1 5", "a BETWEEN 1 OR 5", "a BETWEEN 1 AND", "a BETWEEN TRUE AND FALSE",
            "NOT a BETWEEN 1 AND 5",
        ]),
        ([_NONE], [
            "a BETWEEN (b = 1) AND 5", "a NOT BETWEEN 'x' AND 5", "a IS", "a IS NOT", "a IS x", "a IS NOT x",
            "a IS TRUE",
        ]),
    ],
    "TRUE, FALSE, NULL and properties as conditions": [
        ([_NONE], [
            "TRUE", "FALSE", "NULL", "NOT TRUE", "NOT FALSE", "NOT NULL", "(TRUE)", "TRUE AND NULL", "FALSE AND NULL",
        ]),
        ([_NONE], [
            "TRUE OR NULL", "NULL OR TRUE", "FALSE OR NULL", "NULL OR FALSE", "NULL AND TRUE", "NULL AND FALSE",
        ]),
        ([*_BASIC, *_TEXTS], [
            "a", "NOT a", "(a)", "+a AND TRUE", "a AND TRUE", "a OR TRUE", "NOT (a)", "a = TRUE", "a <> TRUE",
        ]),
        ([_NONE, _X], [
            "TRUE = a", "FALSE <> a", "TRUE = TRUE", "TRUE <> FALSE", "1 = TRUE", "'true' = TRUE", "'x' <> TRUE",
        ]),
    ],
    "Null": [
        (_BASIC, [
            "a = 'x'", "a <> 'x'", "'x' = a", "'x' <> a", "a = 5", "5 = a", "5 <> a", "a = b", "a <> b", "a = TRUE",
        ]),
        (_BASIC, [
            "a > 5", "5 > a", "a >= b", "a IN ('x')", "a NOT IN ('x')", "a BETWEEN 1 AND 5", "a NOT BETWEEN 1 AND 5",
        ]),
        (_BASIC, [
            "a IS NULL", "a IS NOT NULL", "NULL IS NULL", "NULL IS NOT NULL", "5 IS NULL", "'x' IS NOT NULL",
        ]),
        (_BASIC, [
            "(a = 'x') IS NULL", "(a AND b) IS NOT NULL", "NOT a IS NULL", "-a IS NULL", "-(a = 1) IS NULL",
        ]),
        (_BASIC, [
            "a = -b", "-a = b", "-a = -b", "-a = 5", "5 = -a", "-a <> -b", "(a = 'x') = (b = 'y')", "-'x' = -TRUE",
        ]),
        (_BASIC, [
            "NOT (a = 'x')", "NOT (a > 5)", "NOT (a IN ('x'))", "a = 'x' AND b = 'y'", "a = 'x' OR b = 'y'",
        ]),
    ],
    "Order and short circuit: an exception is no match unless it is not reached": [
        (_BASIC, [
            "(n > 3) OR (a > 3)", "(a > 3) OR (n > 3)", "n < 3 AND a > 3", "a > 3 AND n < 3", "(b > 3) OR (n > 3)",
        ]),
        (_BASIC, [
            "(b AND a > 3) OR n = 5", "(b AND n = 4 AND a > 3) OR n = 5", "(b OR a > 3) AND n = 4",
        ]),
        (_BASIC, [
            "NOT (b AND a > 3) OR n = 5", "NOT (b OR a > 3) OR n = 5", "((b OR n = 5) AND a > 3) OR TRUE",
        ]),
        (_BASIC, [
            "(a > 3) IS NULL", "(a > 3) CONTAINS 'x'", "(a > 3) CONTAINS ''", "-(a > 3) = 5", "-(a > 3) IS NULL",
        ]),
        (_BASIC, [
            "(a > 3) = (n > 3)", "b > -(a > 3)", "a = -(n > 3)", "n BETWEEN 1 AND a", "n BETWEEN 6 AND a",
        ]),
    ],
    "NOT binds tighter than a comparison": [
        ([*_BASIC, {"b": "1"}], [
            "NOT a = 'x'", "NOT a = b", "NOT a = TRUE", "NOT a <> 5", "NOT a IS NULL", "NOT a CONTAINS 'x'",
        ]),
        (_BASIC, [
            "NOT NOT a", "NOT NOT TRUE", "NOT (NOT (a = 'x'))", "NOT TRUE = FALSE", "NOT a AND b", "NOT a OR TRUE",
        ]),
    ],
    "Chains of = and others": [
        (_BASIC, [
            "a = 'x' = TRUE", "a = 'x' = FALSE", "a = 'x' <> TRUE", "TRUE = TRUE = TRUE", "a = b = FALSE",
            "1 = 1 = 1",
        ]),
        (_BASIC, [
            "a = 'x' = 5", "(a = 'x') = 'true'", "'true' = (a = 'x')", "5 = (a = 'x')", "(a = 'x') = b",
            "a = (b = 'y')",
        ]),
        (_BASIC, [
            "a = b IN ('y')", "a = b CONTAINS 'y'", "a = n > 3", "n > 3 = TRUE", "TRUE = n > 3", "a > 3 > 4",
        ]),
    ],
    "A text read as Integer, Long, Double or Boolean": [
        (_READ, [
            "a = 5", "a <> 5", "5 = a", "a > 5", "5 > a", "a >= 5", "5 <= a", "a < 5", "a <= 5", "a > -5",
        ]),
        (_READ, [
            "a = 2147483648", "a > 2147483648", "2147483648 < a", "a <= 9007199254740992", "a = 9007199254740993",
        ]),
        (_READ, [
            "a = 5.0", "a > 5.0", "5.0 > a", "a >= 5.0", "5.0 >= a", "a < 5.0", "a <= 5.0", "5.0 < a", "a > -5.0",
        ]),
        ([{**values, "n": "5"} for values in _READ], [
            "a = TRUE", "a = FALSE", "a <> TRUE", "TRUE = a", "a = '5'", "a > b", "a >= n", "n > a",
        ]),
        (_BASIC, [
            "n = 5.0", "n = 5", "n = '5'", "n = '5.0'", "n = 'x'", "1 = 1", "1 = 1.0", "1 = 2", "5 = '5'", "5 = 'x'",
        ]),
        ([_NONE], [
            "1 > 2", "2 >= 2.0", "9007199254740993 = 9007199254740992.0", "-5 = -5", "-5 < 5", "5.0 = 5.0",
            "2147483648 > 1",
        ]),
        (_PAIRS, [
            "a = b", "a > b", "a >= b", "a < b", "a <= b", "a <> b",
        ]),
    ],
    "BETWEEN and IN": [
        (_READ, [
            "a BETWEEN 1 AND 5", "a NOT BETWEEN 1 AND 5", "a BETWEEN 1.0 AND 5.5", "a BETWEEN -5 AND 5",
            "a BETWEEN -1 AND -5",
        ]),
        (_ENDS, [
            "a NOT BETWEEN 5 AND 1", "5 BETWEEN 1 AND a", "a BETWEEN n AND b", "a BETWEEN n AND 9",
            "-5 BETWEEN -6 AND -a",
        ]),
        (_TEXTS, [
            "a IN ('x')", "a NOT IN ('x')", "a IN ('x', 'y')", "a IN ('', 'x''y')", "(a) IN ('x')", "+a IN ('x')",
        ]),
        (_TEXTS, [
            "a IN ('x','y','z','1','2','3')", "a NOT IN ('x','y','z','1','2','3')",
            "a IN ('x', 'x', 'x', 'x', 'x', 'x')",
        ]),
        (_BASIC, [
            "a IN ('1') IN ('x')", "a IN ('x') = TRUE", "NOT (a IN ('x'))", "a IN ('x') AND b IN ('y')",
        ]),
    ],
    "CONTAINS, STARTSWITH, ENDSWITH": [
        (_TEXTS, [
            "a CONTAINS 'x'", "a CONTAINS ''", "a CONTAINS '😀'", "a CONTAINS '\ud83d'", "a CONTAINS '\ude00'",
            "a CONTAINS 'y'", "a NOT CONTAINS 'x'", "a NOT CONTAINS ''", "a NOT CONTAINS '😀'",
            "a NOT CONTAINS '\ud83d'", "a NOT CONTAINS '\ude00'", "a NOT CONTAINS 'y'", "a STARTSWITH 'x'",
            "a STARTSWITH ''", "a STARTSWITH '😀'", "a STARTSWITH '\ud83d'", "a STARTSWITH '\ude00'",
            "a STARTSWITH 'y'", "a NOT STARTSWITH 'x'", "a NOT STARTSWITH ''", "a NOT STARTSWITH '😀'",
            "a NOT STARTSWITH '\ud83d'", "a NOT STARTSWITH '\ude00'", "a NOT STARTSWITH 'y'", "a ENDSWITH 'x'",
            "a ENDSWITH ''", "a ENDSWITH '😀'", "a ENDSWITH '\ud83d'", "a ENDSWITH '\ude00'", "a ENDSWITH 'y'",
            "a NOT ENDSWITH 'x'", "a NOT ENDSWITH ''", "a NOT ENDSWITH '😀'", "a NOT ENDSWITH '\ud83d'",
            "a NOT ENDSWITH '\ude00'", "a NOT ENDSWITH 'y'",
        ]),
        ([_NONE], [
            "'xy' CONTAINS 'x'", "'xy' NOT ENDSWITH 'y'", "5 CONTAINS '5'", "TRUE CONTAINS 'T'", "NULL CONTAINS 'x'",
        ]),
        (_BASIC, [
            "-a CONTAINS 'x'", "(a = 'x') CONTAINS 't'", "a CONTAINS 'x' CONTAINS 'x'", "a CONTAINS 'x' = TRUE",
        ]),
    ],
    "Signs": [
        (_BASIC, [
            "+a = 'x'", "-a = 'x'", "+ +a = 'x'", "-(-5) = 5", "- - 5 = 5", "-5 = 5", "+(a = 'x')", "-(a = 'x')",
            "+TRUE",
        ]),
        (_BASIC, [
            "-TRUE = TRUE", "-'x' = 'x'", "-NULL = a", "a > -b", "-a > 5", "-NOT a = 5", "NOT -a = 5", "+NOT a",
        ]),
    ],
    "Brackets and long chains": [
        (_BASIC, [
            "(((a = 'x')))", "(a = 'x' OR b = 'z') AND b = 'y'", "a = 'x' OR b = 'z' AND b = 'y'", "((a)) = (('x'))",
        ]),
        ([_NONE, _MANY], [" AND ".join(f"p{i} = {i}" for i in range(20))]),
        ([_NONE, _MANY], [" OR ".join(f"p{i} > {i}" for i in range(20))]),
        (_BASIC, [
            "a = 'q' OR a = 'r' OR a = 's' OR a = 'x' AND b IS NULL",
        ]),
    ],
}  # fmt: skip


def main() -> None:
    lines = []
    asked = 0
    with ApacheFilter(VERSION) as apache:
        for rule, blocks in TABLE.items():
            for properties, texts in blocks:
                recorded = {}
                for text in texts:
                    answers = apache.verdicts([(text, values) for values in properties])
                    asked += len(answers)
                    refused = answers[0].startswith("REFUSED")
                    recorded[text] = (
                        answers[0] if refused else "".join([LETTERS[answer.split()[0]] for answer in answers])
                    )
                lines.append(json.dumps({"rule": rule, "properties": properties, "verdicts": recorded}))
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="ascii")
    print(f"{asked} verdicts, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
