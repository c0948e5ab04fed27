"""RocketBox's dataclass behaves as that of `dataclasses`, also before the first value has been made."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from appliance.engine import lazy_dataclass
from tests.support.server import ROOT


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Row:
    """A row."""

    name: str
    count: int = 3
    tags: list[str] = dataclasses.field(default_factory=list, repr=False, compare=False)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Wider(Row):
    both: tuple[Row, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    name: str
    count: int = 3
    tags: list[str] = dataclasses.field(default_factory=list, repr=False, compare=False)


def test_values_are_those_of_dataclasses():
    assert (Row("a"), Row("a", 4)) == (Row(name="a", count=3), Row("a", count=4, tags=["x"]))
    assert Row("a") != Row("b")
    assert Row("a") != Theirs("a")
    assert repr(Row("a")) == repr(Theirs("a")).replace("Theirs", "Row")
    assert hash(Row("a")) == hash(Theirs("a"))
    assert dataclasses.replace(Row("a"), count=5) == Row("a", 5)
    assert dataclasses.asdict(Wider("w", both=(Row("a"),))) == {
        "name": "w", "count": 3, "tags": [], "both": ({"name": "a", "count": 3, "tags": []},),
    }  # fmt: skip
    assert Row("a").tags is not Row("a").tags
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'name'"):
        Row()


def test_the_class_is_that_of_dataclasses():
    assert Row.__slots__ == Theirs.__slots__
    assert Wider.__slots__ == ("both",)
    assert Row.__match_args__ == Theirs.__match_args__
    assert [(one.name, one.type, one.default) for one in dataclasses.fields(Row)] == [
        (one.name, one.type, one.default) for one in dataclasses.fields(Theirs)
    ]
    assert not hasattr(Row("a"), "__dict__")


def test_a_value_never_changes():
    value = Row("a")
    for name in ("count", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
            setattr(value, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'count'"):
        del value.count


def test_values_are_copied():
    value = Wider("w", 1, ["x"], (Row("a"),))
    for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert made == value
        assert made.tags == ["x"]
        assert made.both[0].count == 3


def test_pydantic_writes_them():
    assert TypeAdapter(Wider).dump_python(Wider("w", both=(Row("a", 1, ["x"]),)), mode="json") == {
        "name": "w", "count": 3, "tags": [], "both": [{"name": "a", "count": 1, "tags": ["x"]}],
    }  # fmt: skip


def test_methods_of_ones_own_are_refused():
    with pytest.raises(TypeError, match="Odd has methods of its own"):

        @lazy_dataclass.dataclass(frozen=True, slots=True)
        class Odd:
            name: str

            def __eq__(self, other):
                return True


UNPICKLED = """
import pickle, sys
value = pickle.loads(bytes.fromhex(sys.argv[1]))
assert repr(value) == "Row(name='a', count=3)", value
assert value == type(value)("a") and hash(value) == hash(type(value)("a"))
"""


def test_the_first_value_may_come_out_of_a_pickle():
    code = [sys.executable, "-c", UNPICKLED, pickle.dumps(Row("a")).hex()]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
