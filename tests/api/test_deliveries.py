"""Running a message on a client, by program."""

from __future__ import annotations

import pytest

from appliance.console.models import AuditEntry
from tests.support.direct_consumers import answering_member

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


def test_a_client_consumes_it_once_and_the_answer_says_what_it_made_of_it(operator, running, topic):
    running.put(topic, b"the body")
    with answering_member(running, "c1", "billing", topic, consumeResult="CR_LATER", remark="not today") as given:
        address = f"/messages/{topic}/0/0/deliveries"
        would = answer_of(operator.post(address + "?dry_run=true", {"group": "billing"}))
        assert (would["delivered"], would["client_id"], given) == (False, "c1", [])
        found = answer_of(operator.post(address, {"group": "billing", "client_id": "c1"}))
    assert (found["delivered"], found["result"], found["remark"]) == (True, "CR_LATER", "not today")
    assert len(given) == 1
    assert AuditEntry.objects.get(action="message.run").after["result"] == "CR_LATER"


def test_who_is_not_there_is_not_found(operator, running, topic):
    running.put(topic, b"x")
    address = f"/messages/{topic}/0/0/deliveries"
    problem_of(operator.post(address, {"group": "nobody"}), 404, "client_not_found")
    problem_of(operator.post(address, {"group": "nobody", "client_id": "c9"}), 404, "client_not_found")
    problem_of(
        operator.post(address + "?dry_run=true", {"group": "nobody", "client_id": "c9"}), 404, "client_not_found"
    )
    problem_of(operator.post(f"/messages/{topic}/0/77/deliveries", {"group": "nobody"}), 404, "message_not_found")


def test_a_token_asks_no_group_beyond_its_pattern(by_token, running, topic):
    running.put(topic, b"x")
    caller = by_token("operator", pattern=topic)
    problem_of(caller.post(f"/messages/{topic}/0/0/deliveries", {"group": "billing"}), 403, "outside_pattern")
