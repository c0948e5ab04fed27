"""RocketBox's NamedTuple behaves as typing's."""

from __future__ import annotations

import pickle
import typing

import msgspec
import pytest

from appliance.engine.named_tuple import NamedTuple


class Ours(NamedTuple):
    """A value."""

    topic: str
    queue_id: int | None = None

    @property
    def both(self) -> str:
        return f"{self.topic}-{self.queue_id}"

    @classmethod
    def of(cls, topic: str) -> Ours:
        return cls(topic, 1)


class Theirs(typing.NamedTuple):
    """A value."""

    topic: str
    queue_id: int | None = None


def test_values_are_those_of_typing():
    assert Ours("T") == Theirs("T") == ("T", None)
    assert repr(Ours("T")) == "Ours(topic='T', queue_id=None)"
    assert hash(Ours("T")) == hash(Theirs("T"))
    assert Ours("T")._replace(queue_id=2)._asdict() == {"topic": "T", "queue_id": 2}
    assert (Ours.of("T").both, Ours.__doc__) == ("T-1", "A value.")


def test_the_class_is_that_of_typing():
    assert (Ours._fields, Ours._field_defaults) == (Theirs._fields, Theirs._field_defaults)
    assert (Ours.__module__, Ours.__qualname__, Ours.__bases__) == (__name__, "Ours", (tuple,))
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)


def test_others_take_it_for_a_named_tuple():
    assert pickle.loads(pickle.dumps(Ours("T"))) == Ours("T")
    assert msgspec.json.decode(b'["T", 3]', type=Ours) == Ours("T", 3)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'["T", "x"]', type=Ours)


def test_a_field_without_a_default_behind_one_with_it_is_refused():
    with pytest.raises(TypeError, match="Wrong"):

        class Wrong(NamedTuple):
            topic: str = ""
            queue_id: int
