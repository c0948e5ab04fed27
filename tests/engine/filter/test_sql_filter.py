"""Expressions as filters: made once, remembered within bounds, with the same verdict in each way of evaluation."""

import gc
import random
import weakref

import pytest

from appliance.engine.errors import RefusedRequest
from appliance.engine.filter import sql_filter as module
from appliance.engine.filter.expressions import NotCompiled, is_known, make_filter, quick_filter
from appliance.engine.filter.shelf import TooManyExpressions
from appliance.engine.filter.sql92 import SqlError
from appliance.engine.filter.sql_filter import known_filter, sql_filter
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record


def record(properties):
    return encode_record(
        Record(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, b"body", "T", properties),
        bytes(8),
        bytes(8),
    )


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    monkeypatch.setattr(module, "_shelves", (module.Shelf(200, 4, 8, 1), module.Shelf(1 << 30, 2, 4, 1)))
    monkeypatch.setattr(module, "_errors", type(module._errors)())


def test_one_object_while_it_is_in_use():
    one = sql_filter("a > 1")
    assert sql_filter("a > 1") is one
    assert known_filter("a > 2") is None


def test_a_wrong_one_is_not_parsed_again(monkeypatch):
    make_filter("SQL92", "a = 1")  # before the first one nothing is known
    parsed = []
    compile_sql92 = module.compile_sql92
    monkeypatch.setattr(module, "compile_sql92", lambda text: parsed.append(text) or compile_sql92(text))
    said = set()
    for _ in range(3):
        with pytest.raises(SqlError) as error:
            sql_filter("a > ")
        said.add(str(error.value))
        assert is_known("a > ")
    assert parsed == ["a > "]
    assert len(said) == 1
    for number in range(module._ERRORS_KEPT + 5):
        with pytest.raises(SqlError):
            sql_filter(f"a{number} >")
    assert len(module._errors) == module._ERRORS_KEPT
    assert not is_known("a > ")


def test_an_error_that_is_remembered_holds_nobodys_request():
    class Request:
        pass

    def handle(request):
        with pytest.raises(RefusedRequest):
            make_filter("SQL92", "a > ")

    request = Request()
    gone = weakref.ref(request)
    handle(request)
    del request
    gc.collect()
    assert gone() is None
    assert [error.__traceback__ for error in module._errors.values()] == [None]


def test_what_nobody_uses_is_forgotten_and_what_is_in_use_is_bounded():
    for number in range(50):
        sql_filter(f"a > {number}")
    gc.collect()
    assert len(module._shelves[0].in_use) == 4
    held = [sql_filter(f"b > {number}") for number in range(8)]
    with pytest.raises(TooManyExpressions):
        sql_filter("c > 1")
    with pytest.raises(RefusedRequest) as refused:
        make_filter("SQL92", "d > 1")
    assert refused.value.code == 2
    held.pop()
    assert sql_filter("c > 1"), "what is not used makes room"
    assert sql_filter("e > 1 " + " OR a = 'x'" * 30), "longer ones have room of their own"


def test_what_is_long_and_new_is_not_made_on_the_loop():
    text = "a > 1 " + " OR a = 'x'" * 100
    with pytest.raises(NotCompiled):
        quick_filter("SQL92", text)
    made = make_filter("SQL92", text)
    assert quick_filter("SQL92", text) is made
    assert made.costly
    assert not sql_filter("a > 1").costly


@pytest.mark.parametrize("expression", ["a > 3 AND b = 'x'", "b IS NULL", "TRUE", "a = b", "colour IN ('x', 'blue')"])
def test_verdicts_are_those_of_the_whole_map(expression):
    chance = random.Random(1)
    names, values = ("a", "b", "colour", "ab"), ("", "1", "4", "x", "blue", "a\x01b")
    texts = [
        "".join([chance.choice(names) + "\x01" + chance.choice(values) + "\x02" for _ in range(chance.randrange(6))])
        for _ in range(300)
    ]
    records = [record(text) for text in texts]
    places, at = [], 0
    for one in records:
        places.append((at, len(one)))
        at += len(one)
    judge = sql_filter(expression)
    expected = [judge.matches(decode_properties(text)) for text in texts]
    for _ in range(2):  # from memory the second time
        assert judge.verdicts(b"".join(records), places) == expected
    assert judge.verdicts(b"no record at all" * 20, [(0, 100)]) == [True], "who reads it next finds out"


def test_many_names_are_looked_up_in_the_map():
    judge = sql_filter(" OR ".join(f"n{number} = 'x'" for number in range(20)))
    assert judge.names is None
    some = [record("n3\x01x\x02"), record("n3\x01y\x02"), record("")]
    assert [judge.verdicts(one, [(0, len(one))]) for one in some] == [[True], [False], [False]]


def test_verdicts_of_all_expressions_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "_VERDICTS_KEPT", 100)
    monkeypatch.setattr(module, "_remembered", 0)
    one, other = sql_filter("a > 1"), sql_filter("b > 1")
    for number in range(300):
        one.verdicts_of([b"%d" % number])
        other.verdicts_of([b"%d" % number])
        assert len(one._verdicts) + len(other._verdicts) <= 101
    one.verdicts_of([b"x" * 1000])
    assert b"x" * 1000 not in one._verdicts


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_whether_verdicts_are_remembered_does_not_depend_on_how_many_are_asked_for_at_once(at_once):
    judge = sql_filter("a > 1")
    keys = [b"%d" % (number if number % 4 == 0 else number % 4) for number in range(40_000)]
    for first in range(0, len(keys), at_once):
        judge.verdicts_of(keys[first : first + at_once])
    assert b"39996" in judge._verdicts, "three of four are known"
    for number in range(3 * module._MOST_DIFFERENT):
        judge.verdicts_of([b"9%07d" % number])
    assert b"9%07d" % (3 * module._MOST_DIFFERENT - 1) not in judge._verdicts, "none is"
    for _ in range(40_000):
        judge.verdicts_of([b"7"])
    judge.verdicts_of([b"new"])
    assert b"new" in judge._verdicts, "it is tried again"


def test_a_record_that_is_no_text_or_cannot_be_read_goes_through():
    """The consumer that gets it finds the damage; a message that is kept from its group would be lost to it."""
    wanted = sql_filter("a = 'x'")
    assert wanted.verdicts_of([b"x", b"y", b"\xff", None]) == [True, False, True, True]
