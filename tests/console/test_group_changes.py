"""Making, changing and deleting a consumer group: shown, allowed, refused, audited."""

import re

import pytest

from appliance.console.models import AuditEntry
from appliance.engine.errors import NotFound
from tests.console.conftest import age_login
from tests.console.test_groups import UPDATE_OFFSET, peers  # noqa: F401  (a fixture)

NEW = {"consume_enable": "on", "consume_broadcast_enable": "on", "retry_max_times": "16", "retry_queue_nums": "1"}


@pytest.fixture
def name(request) -> str:
    return "made-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]


@pytest.fixture
def group(broker, name) -> str:
    broker.group_commands.create(name)
    return name


def entry() -> AuditEntry:
    return AuditEntry.objects.first()


def is_known(broker, name: str) -> bool:
    try:
        return broker.groups.detail(name).settings is not None
    except NotFound:
        return False


def test_a_group_is_shown_before_it_is_made(client_as, broker, name):
    client = client_as("operator")
    assert 'href="/create/group/"' in client.get("/groups/").content.decode()
    preview = client.post("/create/group/", NEW | {"name": name, "consume_enable": ""}).content.decode()
    assert "Its clients get no messages while consumption is switched off." in preview
    assert not is_known(broker, name)
    answer = client.post("/create/group/", NEW | {"name": name, "retry_max_times": "3", "step": "apply"})
    assert answer.headers["Location"] == f"/groups/{name}/"
    assert broker.groups.detail(name).settings.retry_max_times == 3
    assert (entry().action, entry().target, entry().after["retry_max_times"]) == ("group.create", name, "3")


@pytest.mark.parametrize("bad", ["<script>", "", "a b", "x" * 256, "CID_RMQ_SYS_own"])
def test_a_name_that_is_none_is_refused_in_the_form(client_as, broker, bad):
    response = client_as("operator").post("/create/group/", NEW | {"name": bad, "step": "apply"})
    assert response.status_code == 422
    assert not is_known(broker, bad)


def test_a_refusal_is_said_in_the_readers_language(client_as, broker):
    client = client_as("operator", headers={"accept-language": "zh-hans"})
    page = client.post("/create/group/", NEW | {"name": "a b", "step": "apply"}).content.decode()
    assert "消费组名称由 1 到" in page
    assert "A group" not in page


def test_numbers_that_are_none_and_names_that_are_taken_are_refused(client_as, broker, group):
    client = client_as("operator")
    taken = client.post("/create/group/", NEW | {"name": group, "step": "apply"})
    assert taken.status_code == 422
    assert "There is already a group with this name." in taken.content.decode()
    for wrong in ("-2", "x", ""):
        answer = client.post("/create/group/", NEW | {"name": "g-new", "retry_max_times": wrong, "step": "apply"})
        assert answer.status_code == 422, wrong
    assert not is_known(broker, "g-new")


def test_a_viewer_makes_no_group_and_an_operator_changes_and_deletes_none(client_as, broker, group, name):
    viewer = client_as("viewer")
    assert viewer.post("/create/group/", NEW | {"name": f"{name}-2", "step": "apply"}).status_code == 403
    assert 'href="/create/group/"' not in viewer.get("/groups/").content.decode()
    operator = client_as("operator")
    assert operator.post(f"/groups/{group}/edit/", NEW | {"step": "apply"}).status_code == 403
    assert operator.post(f"/groups/{group}/delete/", {"name": group}).status_code == 403
    page = operator.get(f"/groups/{group}/").content.decode()
    assert "/edit/" not in page
    assert "/delete/" not in page
    assert is_known(broker, group)
    assert not is_known(broker, f"{name}-2")


def test_a_change_shows_its_difference_and_is_audited_with_both_sides(client_as, broker, group):
    client = client_as("admin")
    form = NEW | {"retry_max_times": "5", "revision": broker.groups.detail(group).settings.revision}
    preview = client.post(f"/groups/{group}/edit/", form).content.decode()
    assert "Retries before a dead letter" in preview
    assert re.search(r">16</td>\s*<td[^>]*><b>5</b></td>", preview)
    assert broker.groups.detail(group).settings.retry_max_times == 16
    back = client.post(f"/groups/{group}/edit/", form | {"step": "back"}).content.decode()
    assert 'value="5"' in back, "what was typed is still there"
    assert client.post(f"/groups/{group}/edit/", form | {"step": "apply"}).status_code == 302
    assert broker.groups.detail(group).settings.retry_max_times == 5
    assert (entry().action, entry().before, entry().after) == (
        "group.edit", {"retry_max_times": "16"}, {"retry_max_times": "5"},
    )  # fmt: skip


def test_a_change_of_something_else_meanwhile_is_refused(client_as, broker, group):
    form = NEW | {"retry_max_times": "5", "revision": broker.groups.detail(group).settings.revision, "step": "apply"}
    broker.group_commands.edit(group, retry_queue_nums=2)
    response = client_as("admin").post(f"/groups/{group}/edit/", form)
    assert response.status_code == 409
    assert broker.groups.detail(group).settings.retry_max_times == 16


def test_a_group_goes_when_its_name_was_typed(client_as, broker, group):
    client = client_as("admin")
    wrong = client.post(f"/groups/{group}/delete/", {"name": group + "x"})
    assert wrong.status_code == 422
    assert "This is not the group&#x27;s name." in wrong.content.decode()
    assert is_known(broker, group)
    assert client.post(f"/groups/{group}/delete/", {"name": group}).status_code == 302
    assert not is_known(broker, group)
    assert (entry().action, entry().target, entry().result) == ("group.delete", group, "done")


def test_what_speaks_against_it_is_shown_and_must_be_overruled(client_as, broker, topic, group, peers):  # noqa: F811
    peer = peers("one@10.0.0.9", group, topic)
    for _ in range(3):
        broker.sender.send(topic, b"x", queue_id=0)
    assert peer.ask(UPDATE_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}).code == 0
    client = client_as("admin")
    page = client.get(f"/groups/{group}/delete/").content.decode()
    for sentence in (f"{group} has not read 2 messages of {topic}.", f"{group} has 1 connected client.",
                     "Its offsets in 1 topic are deleted."):  # fmt: skip
        assert sentence in page
    refused = client.post(f"/groups/{group}/delete/", {"name": group})
    assert refused.status_code == 409
    assert entry().result == "refused"
    assert is_known(broker, group)
    answer = client.post(f"/groups/{group}/delete/", {"name": group, "force": "yes", "offsets": "keep"})
    assert answer.status_code == 302
    assert entry().after == {"force": True, "offsets": False}
    peer.close()
    row = next(queue for queue in broker.groups.detail(group).queues if queue.topic == topic and queue.queue_id == 0)
    assert row.committed == 1, "its offsets were to stay"


def test_the_password_is_asked_for_again_before_a_group_goes(client_as, broker, group):
    client = client_as("admin")
    age_login(client)
    assert client.get(f"/groups/{group}/delete/").headers["Location"].startswith("/confirm/")
    assert client.post(f"/groups/{group}/delete/", {"name": group}).headers["Location"].startswith("/confirm/")
    assert is_known(broker, group)


def test_the_systems_groups_are_neither_changed_nor_deleted(client_as, broker):
    client = client_as("admin")
    name = "SELF_TEST_C_GROUP"
    assert is_known(broker, name)
    assert "/delete/" not in client.get(f"/groups/{name}/").content.decode()
    assert client.post(f"/groups/{name}/delete/", {"name": name}).status_code == 400
    assert client.post(f"/groups/{name}/edit/", NEW | {"step": "apply"}).status_code in (400, 422)
    assert is_known(broker, name)


def test_a_group_that_was_never_used_is_listed_and_deleted(client_as, broker, group):
    client = client_as("admin")
    assert 'href="/clean-up/"' in client.get("/groups/").content.decode()
    address = f"/clean-up/?idle_hours=0&q={group}"
    young = client.get(f"/clean-up/?idle_hours=1&q={group}").content.decode()
    assert f"<td>{group}</td>" not in young
    page = client.get(address).content.decode()
    assert f"<td>{group}</td>" in page
    assert "Delete 1 entry" in page
    (revision,) = re.findall(r'name="revision" value="(\w+)"', page)
    wanted = {"kind": "groups", "idle_hours": "0", "q": group, "revision": revision}
    broker.group_commands.create(f"{group}-2")
    assert client.post("/clean-up/", wanted).status_code == 409
    assert is_known(broker, group)
    broker.group_commands.delete(f"{group}-2")
    answer = client.post("/clean-up/", wanted)
    assert answer.headers["Location"] == f"/clean-up/?kind=groups&idle_hours=0&q={group}"
    assert not is_known(broker, group)
    assert (entry().action, entry().target, entry().after) == (
        "clean_up.apply", "groups", {"count": 1, "left": 0, "first": [group]}
    )  # fmt: skip
    assert "There is nothing to clean up." in client.get(address).content.decode()
