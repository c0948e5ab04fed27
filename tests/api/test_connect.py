"""Programs for clients, and a connection that is tried, for programs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from appliance.console.pages.words import WORDS
from appliance.console.system.snippets import LANGUAGES
from tests.support.engine import RunningEngine
from tests.support.wire_users import wire_users

from .conftest import Caller, answer_of, problem_of

pytestmark = pytest.mark.django_db


def test_the_programs_are_those_of_the_page(viewer: Caller, running: RunningEngine):
    found = answer_of(viewer.get("/connect?topic=orders&user=billing"))
    assert [one["key"] for one in found["items"]] == list(LANGUAGES)
    assert (found["namesrv"], found["access"], found["tls"]) == (running.window.addresses().namesrv, "off", "disabled")
    for one in found["items"]:
        assert found["namesrv"] in one["shell"]
        assert "billing" in one["shell"]
    [only] = answer_of(viewer.get("/connect?language=python"))["items"]
    assert only["key"] == "python"
    assert {file["name"] for file in only["files"]} == {"producer.py", "consumer.py"}


@pytest.mark.parametrize(("name", "value"), [("topic", '")'), ("user", "a b"), ("language", "perl")])
def test_what_would_be_text_of_a_program_is_refused(viewer: Caller, running: RunningEngine, name: str, value: str):
    refused = viewer.get(f"/connect?{urlencode({name: value})}")
    assert refused.status_code == 422, refused.content
    assert name in refused.content.decode()


def test_a_trial_says_each_step(operator: Caller, running: RunningEngine):
    found = answer_of(operator.get("/connect/trial?client=python&host=localhost"))
    assert [one["name"] for one in found["items"]][:2] == ["host", "port"]
    assert found["worst"] in ("ok", "warning")
    lost = answer_of(operator.get("/connect/trial?host=no-such-host.invalid"))
    assert lost["worst"] == "failed"
    assert lost["items"][0]["sentence"]["code"] == "try_unknown_name"


def test_an_operator_is_not_told_that_a_client_signs_nothing(
    operator: Caller, admin: Caller, running: RunningEngine, tmp_path: Path
):
    """Only administrators may name a user."""
    with wire_users(running.window, tmp_path / "wire-users"):
        for caller, said in ((operator, "try_user_unsaid_reported"), (admin, "try_no_user_reported")):
            found = answer_of(caller.get("/connect/trial"))["items"]
            assert found[-1]["sentence"]["code"] == said
            assert {one["name"] for one in found} <= WORDS.keys()


def test_what_users_may_is_for_administrators(operator: Caller, admin: Caller, viewer: Caller, running: RunningEngine):
    problem_of(operator.get("/connect/trial?user=ann"), 403, "forbidden")
    assert answer_of(admin.get("/connect/trial?user=ann"))["items"][-1]["sentence"]["code"] == "try_user_unneeded"
    assert viewer.get("/connect/trial").status_code == 403
