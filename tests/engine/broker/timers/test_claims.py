"""Claims on a message that waits for its time: never two at once, and none once delivery has it."""

from appliance.engine.broker.timers import claims as claims_module
from appliance.engine.broker.timers.claims import RECALLS, Claim, Claims

ACT, OTHER = object(), object()


def test_recalls_of_one_message_go_on_at_once_and_nothing_else_does():
    claims = Claims()
    assert claims.claim("T+a", 100, RECALLS) is Claim.YOURS
    assert claims.claim("T+a", 100, RECALLS) is Claim.YOURS
    assert claims.claim("T+a", 100, ACT) is Claim.TAKEN
    assert claims.claim("T+a", 101, ACT) is Claim.YOURS, "another time is another message"
    assert claims.claim("T+a", 101, RECALLS) is Claim.TAKEN
    claims.release("T+a", 100, 0)
    assert claims.claim("T+a", 100, ACT) is Claim.TAKEN, "the second recall is not over"
    claims.release("T+a", 100, 0)
    assert claims.claim("T+a", 100, ACT) is Claim.YOURS
    assert claims.claim("T+a", 100, OTHER) is Claim.TAKEN


def test_delivery_waits_for_claims_on_its_message_only_and_until_the_mark_is_known():
    claims = Claims()
    assert claims.claim("T+a", 100, ACT) is Claim.YOURS
    assert not claims.enter("T+a", 100)
    assert claims.enter("T+b", 100)
    claims.release("T+a", 100, 7)
    claims.indexed(6, 0)
    assert not claims.enter("T+a", 100)
    claims.indexed(7, 0)
    assert claims.enter("T+a", 100)


def test_what_delivery_has_is_claimed_by_nobody():
    claims = Claims()
    assert claims.enter("T+a", 100)
    assert claims.enter("T+a", 100), "a second message of the key"
    claims.leave("T+a", 100)
    assert claims.claim("T+a", 100, RECALLS) is Claim.TOO_LATE
    claims.leave("T+a", 100)
    assert claims.claim("T+a", 100, RECALLS) is Claim.YOURS, "it was not delivered"


def test_what_came_before_its_time_by_the_wall_clock_stays_known_until_then(monkeypatch):
    monkeypatch.setattr(claims_module, "MOST_EARLY", 2)
    claims = Claims()
    for number in range(3):
        assert claims.enter(f"T+{number}", 100)
        claims.leave(f"T+{number}", 100, is_early=True)
    claims.indexed(1, 100)
    assert [claims.claim(f"T+{number}", 100, RECALLS) for number in range(3)] == [
        Claim.YOURS,
        Claim.TOO_LATE,
        Claim.TOO_LATE,
    ]
    claims.indexed(1, 101)
    assert claims.claim("T+2", 100, RECALLS) is Claim.YOURS
