"""Who acts on a message that waits for its time: never two at once, and nobody once delivery has it."""

import threading

from appliance.engine.broker.timers.claims import Claim, Claims


def test_recalls_of_one_message_go_on_at_once_and_nothing_else_does():
    claims = Claims()
    assert claims.claim("T+a", 100, alone=False) is Claim.YOURS
    assert claims.claim("T+a", 100, alone=False) is Claim.YOURS
    assert claims.claim("T+a", 100, alone=True) is Claim.TAKEN
    assert claims.claim("T+a", 101, alone=True) is Claim.YOURS, "another time is another message"
    assert claims.claim("T+a", 101, alone=False) is Claim.TAKEN
    claims.release("T+a", 100)
    assert claims.claim("T+a", 100, alone=True) is Claim.TAKEN, "the second recall is not over"
    claims.release("T+a", 100)
    assert claims.claim("T+a", 100, alone=True) is Claim.YOURS


def test_what_is_closed_is_claimed_by_nobody():
    claims = Claims()
    assert claims.close(100, 0)
    assert claims.claim("T+a", 99, alone=False) is Claim.TOO_LATE
    assert claims.claim("T+a", 100, alone=False) is Claim.YOURS
    assert claims.close(50, 0), "closed times stay closed"
    assert claims.claim("T+b", 99, alone=False) is Claim.TOO_LATE


def test_closing_waits_for_claims_on_what_is_due_only():
    claims = Claims()
    for key, out_ms in (("T+due", 99), ("T+later", 100)):
        assert claims.claim(key, out_ms, alone=False) is Claim.YOURS
    assert not claims.close(100, 0)
    assert claims.claim("T+due", 99, alone=False) is Claim.TOO_LATE, "closed all the same"
    threading.Timer(0.05, claims.release, ("T+due", 99)).start()
    assert claims.close(100, 10)
