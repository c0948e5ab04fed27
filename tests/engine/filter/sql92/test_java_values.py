"""Texts of thousands of characters are read once, however often an expression asks, and as Java reads them."""

import math
import time

import pytest

from appliance.engine.filter.sql92 import MAX_LENGTH, Sql92Expression
from appliance.engine.filter.sql92.java_values import boolean, compare_doubles, double, integer, long

LONG = 32_000


TEXTS = {
    "digits": "1" * LONG,
    "zeros": "0" * LONG + "5",
    "arabic zeros": "٠" * (LONG // 2) + "٥",
    "blanks": " " * LONG + "5",
    "fraction": "0." + "3" * LONG,
    "hex": "0x" + "1" * LONG + "p1",
    "emoji": "😀" * (LONG // 4),
    "letters": "x" * LONG,
}


@pytest.mark.parametrize("filler", ["a=1or ", "a>9.or ", "a=9l or ", "a>b or ", "a startswith'\ud800'or "], ids=ascii)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_long_text_is_read_once(filler, kind):
    text = TEXTS[kind]
    expression = Sql92Expression(filler * ((MAX_LENGTH - 20) // len(filler)) + "z = 'found'")
    properties = {"a": text, "b": text + "1", "z": "other"}
    began = time.thread_time()
    assert expression.matches(properties) in (True, False)
    assert time.thread_time() - began < 0.5


def test_long_texts_are_read_as_java_reads_them():
    assert integer("0" * LONG + "2147483647") == 2147483647
    assert integer("-" + "٠" * LONG + "٥") == -5
    assert integer("0" * LONG) == 0
    assert long("+" + "0" * LONG + "9223372036854775807") == 2**63 - 1
    assert double("0" * LONG + "5") == 5
    assert double("1" * LONG) == math.inf
    assert double(" " * LONG + "-5.5f") == -5.5
    beyond = ((integer, "0" * LONG + "2147483648"), (long, "0" * LONG + "9223372036854775808"), (double, "x" * LONG))
    for read, text in beyond:
        with pytest.raises(ValueError, match=r"not|more"):
            read(text)


def test_doubles_are_in_java_s_order():
    order = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for i, left in enumerate(order):
        for j, right in enumerate(order):
            assert (compare_doubles(left, right) > 0) is (i > j)
            assert (compare_doubles(left, right) < 0) is (i < j)


def test_nothing_but_true_is_true():
    for text in ("true", "TRUE", "tRuE"):
        assert boolean(text)
    for text in ("true ", " true", "t", "yes", "1", "", "\uff54\uff52\uff55\uff45", "trueu"):
        assert not boolean(text)
