"""Rows of what was refused: counted, bounded, and of each user its own."""

from __future__ import annotations

from appliance.engine.access.refusals import MOST_EACH, MOST_USERS, NO_ENTRY, NO_USER, Refusals


def add(refusals: Refusals, user: str, resource: str, at_ms: int = 1, address: str = "10.0.0.1") -> None:
    refusals.add(user, resource, ("Pub",), NO_ENTRY, code=310, address=address, now_ms=at_ms)


def test_the_same_again_is_counted_and_the_last_one_is_told():
    found = Refusals()
    add(found, "ann", "Topic:a", 5)
    add(found, "ann", "Topic:a", 9, "10.0.0.2")
    found.add("", "", (), NO_USER, code=11, address="::1", now_ms=7)
    [row, other] = found.rows()
    assert (row.count, row.first_ms, row.last_ms, row.address, row.code) == (2, 5, 9, "10.0.0.2", 310)
    assert (other.user, other.reason, other.count) == ("", NO_USER, 1)
    add(found, "ann", "Topic:a")
    assert row.count == 2, "what was returned stays as it is"


def test_a_user_crowds_out_its_own_rows_only():
    found = Refusals()
    add(found, "quiet", "Topic:orders")
    for number in range(3 * MOST_EACH):
        add(found, "loud", f"Topic:{number}")
    add(found, "loud", f"Topic:{2 * MOST_EACH}")
    rows = found.rows()
    assert [row.resource for row in rows if row.user == "quiet"] == ["Topic:orders"]
    loud = [row.resource for row in rows if row.user == "loud"]
    assert len(loud) == MOST_EACH
    assert loud[-1] == f"Topic:{2 * MOST_EACH}", "seen again just now"


def test_of_more_users_those_whose_refusals_are_oldest_go():
    found = Refusals()
    for number in range(MOST_USERS):
        add(found, f"u{number}", "Topic:a")
    add(found, "u0", "Topic:b")
    add(found, "one more", "Topic:a")
    users = {row.user for row in found.rows()}
    assert len(users) == MOST_USERS
    assert "u1" not in users
    assert "u0" in users
