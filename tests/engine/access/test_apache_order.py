"""What 5.3.3 decides by the same entries, in the cases that its source and Java's sort make odd."""

import ipaddress
import random
from functools import cmp_to_key

import pytest

from appliance.engine.access import apache_order
from appliance.engine.access.apache_order import ApachePolicies, differences
from appliance.engine.access.policies import Policies, checked_entry

HERE = ipaddress.ip_address("10.0.0.1")


def entries(*texts: str):
    """Entries like "Topic:orders Deny" or "Topic:* Allow 10.0.0.0/8", each of Pub."""
    made = []
    for text in texts:
        resource, decision, *sources = text.split(" ")
        made.append(checked_entry(resource, ["Pub"], sources, decision))
    return tuple(made)


@pytest.mark.parametrize(
    ("texts", "there", "here"),
    [
        (("Topic:order-1 Deny", "Topic:* Allow"), "Topic:* Allow", "Topic:order-1 Deny"),
        (("Topic:* Allow", "Topic:order-1 Deny"), "Topic:order-1 Deny", "Topic:order-1 Deny"),
        (("Topic:order* Deny", "Topic:* Allow"), "Topic:* Allow", "Topic:order* Deny"),
        (("Topic:order-1 Deny", "Topic:order* Allow"), "Topic:order* Allow", "Topic:order-1 Deny"),
        (("Topic:order* Allow", "Topic:order-1 Deny"), "Topic:order-1 Deny", "Topic:order-1 Deny"),
        (("Topic:order-1 Allow", "Topic:order* Deny"), "Topic:order* Deny", "Topic:order-1 Allow"),
        (("Topic:order* Allow", "Topic:order-* Deny"), "Topic:order* Allow", "Topic:order-* Deny"),
        (("Topic:order-* Deny", "Topic:order* Allow"), "Topic:order* Allow", "Topic:order-* Deny"),
        (("* Deny", "Topic:* Allow"), "Topic:* Allow", "Topic:* Allow"),
        (("Topic:* Allow", "* Deny"), "Topic:* Allow", "Topic:* Allow"),
    ],
)
def test_both_columns_of_the_table(texts, there, here):
    made = entries(*texts)
    asked = "Topic", "order-1", frozenset(["Pub"]), HERE
    assert ApachePolicies(made, ()).decide(*asked) == Policies(*[entries(there)]).decide(*asked)
    assert Policies(made).decide(*asked).entry == entries(here)[0]


def test_with_a_comparison_that_is_one_the_sort_sorts(monkeypatch):
    """Java's way of sorting fewer than 32, on which the first depends, finds the least of them."""
    chance = random.Random(3)
    by = cmp_to_key(lambda one, other: one[0] - other[0])
    monkeypatch.setattr(apache_order, "_compare", lambda one, other: one[0] - other[0])
    for _ in range(500):
        found = [(chance.randrange(9), number) for number in range(chance.randrange(1, 32))]
        expected = sorted(found, key=by)
        assert apache_order._first(found) == expected[0][1]
        assert found == expected, "and so are all others"


@pytest.mark.parametrize(
    ("source", "address", "matches"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.0/8", "10.200.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("2001:db8::1", "2001:db8::1", False),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1", True),
        ("2001:db8::1/128", "2001:db8::1", True),
        ("::/96", "10.0.0.1", True),
        ("0.0.0.0/0", "::5", True),
    ],
)
def test_addresses_are_compared_as_there(source, address, matches):
    made = entries(f"Topic:a Allow {source}")
    verdict = ApachePolicies(made, ()).decide("Topic", "a", frozenset(["Pub"]), ipaddress.ip_address(address))
    assert verdict.is_allowed == matches


def test_default_entries_count_where_no_own_one_matches_and_too_many_are_not_told():
    asked = "Topic", "x" * 40, frozenset(["Pub"]), HERE
    assert ApachePolicies(entries("Topic:a Deny"), entries("* Allow")).decide(*asked).is_allowed
    assert ApachePolicies(entries("Topic:* Deny"), entries("* Allow")).decide(*asked).is_allowed is False
    assert ApachePolicies((), ()).decide(*asked).entry is None
    many = entries(*(f"Topic:{'x' * (number + 1)}* Allow" for number in range(32)))
    assert ApachePolicies(many[:31], ()).decide(*asked).entry == many[0]
    assert ApachePolicies(many, ()).decide(*asked) is None


def test_differences_name_the_question_and_both_answers():
    found, are_all = differences(entries("Topic:order* Allow", "Topic:order-* Deny", "Group:g Allow 2001:db8::1"), ())
    assert are_all
    assert [
        (one.resource, one.actions, one.address, one.here.is_allowed, one.there.is_allowed) for one in found
    ] == [
        ("Topic:order-example", ("Pub",), "203.0.113.250", False, True),
        ("Group:g", ("Pub",), "2001:db8::1", True, False),
    ]  # fmt: skip
    assert differences(entries("Topic:a Allow", "Topic:b Deny", "Group:* Allow"), ()) == ([], True)


def test_a_comparison_has_an_end(monkeypatch):
    monkeypatch.setattr(apache_order, "MOST_QUESTIONS", 50)
    made = entries(*(text for number in range(40) for text in (f"Topic:a{number} Deny", f"Topic:a{number}* Allow")))
    found, are_all = differences(made, ())
    assert (len(found), are_all) == (8, False)
