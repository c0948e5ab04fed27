"""Tag expressions as Apache's clients write them, and the filters made of them."""

import pytest

from appliance.engine.filter.message_filter import EVERYTHING
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
