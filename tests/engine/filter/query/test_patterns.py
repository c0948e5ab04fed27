"""Patterns of linear time: which texts they match, which patterns are refused, and the bounds of all."""

import random
import re
import time

import pytest

from appliance.engine.filter.query.patterns import MAX_PATTERN, Pattern, PatternError, TooMuchWork

PIECES = (
    r"a b . [ab] [^a] [a-b1] [\d_] \d \w \s \b ^ $ (a|b) (?:ab)* a{2} a{1,3} b{2,} a* (a+)+ a+? b? 1 _ (|a) (a?){0,2}"
).split()


def test_random_patterns_find_what_pythons_find():
    dice = random.Random(5)
    for _ in range(4000):
        pattern = "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 5)))
        if dice.random() < 0.3:
            pattern = f"({pattern})" + dice.choice(["*", "+", "?", "|b", "{2}", "{0}"])
        ours = Pattern(pattern)
        # In Python's patterns $ also matches before a last line feed.
        theirs = re.compile(pattern.replace("$", r"\Z"))
        for _ in range(4):
            text = "".join(dice.choice("ab1_ \n") for _ in range(dice.randint(0, 7)))
            assert ours.found_in(text) == bool(theirs.search(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("(?i)straße", "STRAßE", True),
        ("(?i)[a-c]x", "BX", True),
        (r"\x41B", "AB", True),
        (r"é+$", "caféé", True),
        (r"\bé", "aé", False),
        (r"a\.b", "a-b", False),
        (r"[]a]", "]", True),
        (r"[a-]", "-", True),
        (r"a\{2\}", "a{2}", True),
        ("订单-[0-9]{3}", "订单-017", True),
        ("", "", True),
    ],
)
def test_what_matches(pattern, text, found):
    assert Pattern(pattern).found_in(text) is found


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a(b", 1), ("a)b", 1), ("[ab", 0), ("*a", 0), ("a**", 2), ("(a)\\1", 3), ("(?=a)", 0), ("(?<!a)b", 0),
        ("a{3,2}", 1), ("a{9999}", 1), ("a{x}", 1), ("a\\", 1), ("\\q", 0), ("[b-a]", 1), ("\\u12", 0),
        ("a" * (MAX_PATTERN + 1), MAX_PATTERN),
    ],
)  # fmt: skip
def test_what_is_refused_says_where(pattern, position):
    with pytest.raises(PatternError) as refused:
        Pattern(pattern)
    assert refused.value.position == position


@pytest.mark.parametrize("pattern", ["(" * 400, "((a{200}){200}){200}", "((((a{9}){9}){9}){9}){9}", "(a?){200}" * 50])
def test_patterns_that_would_grow_are_refused_at_once(pattern):
    begin = time.process_time()
    with pytest.raises(PatternError):
        Pattern(pattern)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$b", "(a|a)*b",
     "(a|aa)+b", "a*a*a*a*a*a*a*b", "(.*)*x", "(x+x+)+y", "((a*)*)*b", "([a-z]+)*[0-9]", "(a|b|ab)*c"],
)  # fmt: skip
def test_patterns_that_stop_others_take_time_in_proportion(pattern):
    """Python's own patterns take hours for most of these on forty letters."""
    begin = time.process_time()
    assert not Pattern(pattern).found_in("a" * 200_000)
    assert time.process_time() - begin < 1


def test_a_pattern_with_very_many_states_gives_up_on_a_text_and_stays_usable():
    dice = random.Random(1)
    pattern = Pattern("[ab]*a[ab]{150}c")
    begin = time.process_time()
    with pytest.raises(TooMuchWork):
        pattern.found_in("".join(dice.choice("ab") for _ in range(200_000)))
    assert time.process_time() - begin < 2
    assert pattern.found_in("a" * 151 + "c")


def test_what_is_remembered_of_texts_is_bounded():
    pattern = Pattern("x.y")
    for begin in range(0x4E00, 0x9F00, 0x100):
        assert not pattern.found_in("".join(map(chr, range(begin, begin + 0x100))))
    assert pattern._remembered <= 20_000
    assert pattern.found_in("x一y")


@pytest.mark.parametrize(
    ("like", "text", "found"),
    [
        ("a%", "abc", True), ("%c", "abc", True), ("%b%", "abc", True), ("a_c", "abc", True), ("a_", "abc", False),
        ("a", "abc", False), ("%", "", True), ("_", "", False), ("a\\%", "a%", True), ("a\\%", "ab", False),
        ("a.c", "abc", False), ("%\n%", "a\nb", True),
    ],
)  # fmt: skip
def test_like(like, text, found):
    assert Pattern.like(like).found_in(text) is found
