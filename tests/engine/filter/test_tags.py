"""Tag expressions as Apache's clients write them, and the filters made of them."""

import gc
from collections import OrderedDict

import pytest

from appliance.engine.errors import RefusedRequest
from appliance.engine.filter import long_tags
from appliance.engine.filter.expressions import NotCompiled, make_filter, quick_filter
from appliance.engine.filter.message_filter import EVERYTHING
from appliance.engine.filter.shelf import Shelf
from appliance.engine.filter.tags import tag_filter
from appliance.engine.protocol.properties import java_hash


@pytest.mark.parametrize("expression", [None, "", "*", "||", " || "])
def test_an_expression_without_a_tag_lets_everything_through(expression):
    assert tag_filter(expression) is EVERYTHING
    assert EVERYTHING.codes is None


@pytest.mark.parametrize("expression", ["A||B", " A || B ", "||A|| B||", "B || A || B"])
def test_a_filter_has_the_hashes_of_its_tags(expression):
    assert tag_filter(expression).codes == {java_hash("A"), java_hash("B")}


def test_pulls_with_the_same_expression_share_one_filter():
    """Ten thousand of them may be held."""
    assert tag_filter("A || C") is tag_filter("A || C")


def long_expression(*tags):
    return "||".join([*tags, *(f"Tag{number}" for number in range(100))])


def test_long_expressions_in_use_are_bounded_and_forgotten_afterwards(monkeypatch):
    """Each takes up to a megabyte, and a client may hold 20,000 pulls with one of its own."""
    monkeypatch.setattr(long_tags, "_shelves", (Shelf(1 << 30, 2, 8, 1),))
    first = make_filter("TAG", long_expression("first"))
    assert java_hash("first") in first.codes
    assert make_filter(None, long_expression("first")) is first
    held = [make_filter("TAG", long_expression(f"held{number}")) for number in range(7)]
    with pytest.raises(RefusedRequest) as refused:
        make_filter("TAG", long_expression("one more"))
    assert refused.value.code == 2
    held.clear()
    for number in range(50):
        make_filter("TAG", long_expression(f"passing{number}"))
    gc.collect()
    assert len(long_tags._shelves[0].in_use) == 3, "the one in use, and the last two"
    assert tag_filter(long_expression("first")).codes == first.codes, "of no connection, and not kept"
    assert make_filter("TAG", "||" * 300).codes is None


def test_what_is_long_and_new_is_not_made_on_the_loop():
    text = long_expression("not on the loop")
    with pytest.raises(NotCompiled):
        quick_filter("TAG", text)
    made = make_filter("TAG", text)
    assert quick_filter("TAG", text) is made
    for short in ("A", "", None, "*"):
        assert quick_filter(None, short) is tag_filter(short)


def test_an_expression_is_kept_while_another_thread_drops_all_that_are_kept():
    class Raced(OrderedDict):
        """Kept filters that another thread drops between the look at their number and the removal of one."""

        def popitem(self, last=True):
            self.clear()
            return super().popitem(last)

    shelf = Shelf(1 << 30, 1, 8, 1)
    shelf.kept = Raced()
    made = {name: make_filter("TAG", long_expression(name)) for name in ("a", "b", "c")}
    for name, one in made.items():
        shelf.keep(name, one, None)
    assert set(shelf.in_use) == made.keys()
