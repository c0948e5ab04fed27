"""Running a message on a client: which client may be chosen, which errors are shown, and that nothing moves."""

import json

import pytest

from appliance.console.models import AuditEntry
from tests.support.direct_consumers import answering_member
from tests.support.engine import RunningEngine

from .conftest import pretend_running


@pytest.fixture
def running(tmp_path):
    made = RunningEngine(tmp_path / "engine")
    pretend_running(made.engine)
    yield made
    made.stop()


def run(client, address: str, group: str, member: str, step: str = "apply"):
    return client.post(address, {"member": json.dumps([group, member]), "step": step})


@pytest.fixture
def message(running) -> str:
    running.window.topic_commands.create("orders", read_queues=1, write_queues=1)
    return f"/messages/{running.window.sender.send('orders', b'the body').offset_id}/run/"


def test_the_preview_says_what_happens_and_nothing_has_happened(client_as, running, message):
    client = client_as("operator")
    with answering_member(running, "c1", "billing", "orders") as given:
        form = client.get(message).content.decode()
        assert "billing · c1 · 127.0.0.1" in form
        preview = run(client, message, "billing", "c1", "preview").content.decode()
    assert "Nothing has happened yet." in preview
    assert "No offset moves" in preview
    assert given == []
    assert not AuditEntry.objects.filter(action="message.run").exists()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "its listener consumed the message"),
        ({"consumeResult": "CR_LATER"}, "could not consume it"),
        ({"consumeResult": "CR_THROW_EXCEPTION", "remark": "<b>boom</b>"}, "&lt;b&gt;boom&lt;/b&gt;"),
        ({"consumeResult": "something new"}, "something new"),
    ],
)
def test_what_the_client_made_of_it_is_told_and_no_offset_moves(client_as, running, message, said, told):
    client = client_as("operator")
    with answering_member(running, "c1", "billing", "orders", **said) as given:
        running.commit("billing", "orders", 0, 0)
        response = run(client, message, "billing", "c1")
        page = client.get(response.headers["Location"]).content.decode()
    assert len(given) == 1
    assert b"the body" in given[0]
    assert told in page
    assert "No offset has moved." in page
    assert running.engine.broker.offsets.get("billing", "orders", 0) == 0
    entry = AuditEntry.objects.get(action="message.run")
    assert (entry.target, entry.after["client_id"]) == ("orders/0/0", "c1")


def test_a_client_that_is_no_member_is_not_to_be_chosen(client_as, running, message):
    client = client_as("operator")
    with answering_member(running, "c1", "billing", "elsewhere") as given:
        assert "No client is connected of a group that subscribes to orders" in client.get(message).content.decode()
        assert run(client, message, "billing", "c1").status_code == 422
        assert run(client, message, "billing", "c2").status_code == 422
    assert given == []


def test_a_retried_message_is_for_its_group_alone(running, message):
    running.window.topic_commands.create("other")
    running.put("%RETRY%billing", b"x", properties="RETRY_TOPIC\x01orders\x02")
    with answering_member(running, "c1", "billing", "orders"), answering_member(running, "c2", "another", "orders"):
        found = running.window.asking.consumers_for("%RETRY%billing/0/0")
        assert [(group, client) for group, client, _ in found] == [("billing", "c1")]
        both = running.window.asking.consumers_for("orders/0/0")
        assert [(group, client) for group, client, _ in both] == [("another", "c2"), ("billing", "c1")]


def test_a_viewer_runs_nothing(client_as, running, message):
    client = client_as("viewer")
    assert client.get(message).status_code == 403
    assert run(client, message, "billing", "c1").status_code == 403
    assert "/run/" not in client.get(message.removesuffix("run/")).content.decode()
