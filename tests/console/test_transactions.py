"""Transactions in the console: the three lists, checks, decisions with a reason, and those that are resumed."""

from __future__ import annotations

import re

import pytest

from appliance import runtime
from appliance.console.models import AuditEntry
from appliance.engine.window.transactions.snapshots import HalfPlace
from tests.console.conftest import age_login
from tests.support.halves import set_aside


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


@pytest.fixture
def half(broker, topic):
    """A half message that is open; what the window said when it was sent."""
    return broker.sender.send(topic, b"paid", keys=["order-1"], half_of="PG", queue_id=0)


@pytest.fixture
def pick(half) -> str:
    return f"{half.queue_offset}-"


def test_an_open_one_is_listed(client_as, topic, half):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/transactions/?topic={topic}"))
    assert f"/messages/{half.offset_id}/" in page
    assert "0 / 15" in page
    assert "offline" in page
    assert 'name="pick"' not in page, "a viewer chooses nothing"
    for query, there in (("key=order-1", True), ("key=order-2", False), ("group=PG", True), ("group=other", False)):
        assert (half.offset_id in content(viewer.get(f"/transactions/?topic={topic}&{query}"))) == there, query
    assert half.offset_id not in content(viewer.get(f"/transactions/?show=resolved&topic={topic}"))
    assert "fits this filter" in content(viewer.get("/transactions/?show=discarded&topic=no-such"))
    assert viewer.get("/transactions/?show=x").status_code == 400
    content(viewer.get("/transactions/?show=resolved&how=x"), 422)


@pytest.mark.parametrize(("what", "how"), [("commit", "committed"), ("roll_back", "rolled back")])
def test_decided_with_a_reason(client_as, broker, topic, half, pick, what, how):
    admin = client_as("admin")
    page = content(admin.get(f"/transactions/decide/?what={what}&pick={pick}"))
    assert "Prefer to check now" in page
    assert order_of(page)
    wrong = admin.post("/transactions/decide/", {"what": what, "pick": pick, "step": "apply", "reason": " "})
    content(wrong, 422)
    asked = {"what": what, "pick": pick, "reason": "the shop is gone"}
    preview = content(admin.post("/transactions/decide/", asked | {"step": "preview"}))
    assert "1 transaction would be" in preview
    assert len(broker.transactions.open(topic=topic).rows) == 1, "nothing has changed yet"
    assert not AuditEntry.objects.exists()
    answer = admin.post("/transactions/decide/", asked | {"step": "apply"})
    assert answer.headers["Location"] == "/transactions/done/"
    done = content(admin.get("/transactions/done/"))
    assert f"1 transaction was {how}" in done
    assert "the shop is gone" in done
    assert broker.messages.page(topic).total == (1 if what == "commit" else 0)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.after["reason"]) == (f"transaction.{what}", "the shop is gone")
    ended = content(admin.get(f"/transactions/?show=resolved&topic={topic}"))
    assert "the shop is gone" in ended
    assert "the-admin" in ended


def order_of(page: str) -> bool:
    """The way that does no harm stands on the page too."""
    return "Check now instead" in page


def test_when_the_producer_was_faster_that_is_told(client_as, broker, topic, half, pick):
    admin = client_as("admin")
    asked = {"what": "roll_back", "pick": pick, "reason": "late"}
    content(admin.post("/transactions/decide/", asked | {"step": "preview"}))
    broker.transaction_commands.act("commit", [HalfPlace(half.queue_offset)], reason="first", by="bob")
    answer = admin.post("/transactions/decide/", asked | {"step": "apply"}, follow=True)
    assert "It was committed before by bob." in content(answer)
    assert AuditEntry.objects.get().result == "refused"
    # Beside others it is no error but a result, which says how it ended.
    other = broker.sender.send(topic, b"paid", half_of="PG", queue_id=0)
    both = asked | {"pick": [pick, f"{other.queue_offset}-"], "step": "apply"}
    page = content(admin.post("/transactions/decide/", both, follow=True))
    assert "1 transaction was rolled back" in page
    assert "It was committed before by bob." in page


def test_who_may(client_as, half, pick):
    operator = client_as("operator")
    assert operator.get(f"/transactions/decide/?what=commit&pick={pick}").status_code == 403
    assert "transactions/decide" not in content(operator.get("/transactions/"))
    assert client_as("viewer").get(f"/transactions/check/?pick={pick}").status_code == 403
    admin = client_as("admin")
    age_login(admin)
    late = admin.get(f"/transactions/decide/?what=commit&pick={pick}")
    assert late.headers["Location"].startswith("/confirm/"), "the password is asked for first"


def test_a_check_without_a_producer_says_so(client_as, topic, half, pick):
    operator = client_as("operator")
    answer = operator.get(f"/transactions/check/?ticked=yes&pick={pick}", follow=True)
    assert "No producer of its group is connected." in content(answer)
    preview = content(operator.get(f"/transactions/check/?topic={topic}"))
    assert "no producer connected" in preview
    nothing = operator.get("/transactions/check/?ticked=yes", follow=True)
    assert "No transaction is ticked." in content(nothing)
    for bad in ("pick=x", "pick=-1", "pick=²", "pick=1&" * 101):
        assert operator.get(f"/transactions/check/?{bad}").status_code == 400, bad
    assert operator.post("/transactions/done/").status_code == 405


def test_what_was_not_set_aside_is_not_resumed(client_as, half):
    operator = client_as("operator")
    page = content(operator.get(f"/transactions/{half.offset_id}/resume/"))
    assert "it does not commit" in page
    answer = operator.post(f"/transactions/{half.offset_id}/resume/", {"reason": "again", "step": "apply"})
    assert answer.status_code == 422
    assert not AuditEntry.objects.exists()
    assert re.search(r'role="alert"', answer.content.decode())


def test_one_that_was_set_aside_is_resumed_once(client_as, broker, topic):
    ref = set_aside(broker_engine(), topic)
    operator = client_as("operator")
    listed = content(operator.get(f"/transactions/?show=discarded&topic={topic}"))
    assert f"/transactions/{ref}/resume/" in listed
    assert f"/transactions/{ref}/resume/" not in content(
        client_as("viewer").get(f"/transactions/?show=discarded&topic={topic}")
    )
    address = f"/transactions/{ref}/resume/"
    content(operator.post(address, {"reason": "", "step": "apply"}), 422)
    answer = operator.post(address, {"reason": "the shop is back", "step": "apply"}, follow=True)
    page = content(answer)
    assert "A check is queued" in page
    [one] = broker.transactions.open(topic=topic).rows
    assert f"/messages/{one.message.offset_id}/" in page
    assert broker.messages.page(topic).total == 0, "nothing was committed"
    assert "resumed" in content(operator.get(f"/transactions/?show=discarded&topic={topic}"))
    again = operator.post(address, {"reason": "once more", "step": "apply"})
    assert "resumed before" in content(again, 422)
    assert [entry.action for entry in AuditEntry.objects.all()] == ["transaction.resume"]


def broker_engine():
    found = runtime.running()
    assert found is not None
    return found.engine
