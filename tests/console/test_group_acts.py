"""A group in the console: its tabs and diagnosis, pause and resume, clone; a client and what it is asked."""

from __future__ import annotations

import html
import re
import threading

import pytest

from appliance.console.models import AuditEntry, User
from appliance.engine.broker import member_questions
from appliance.engine.window.health import limits
from tests.support.engine import Peer
from tests.support.members import Member
from tests.support.waiting import wait_for


@pytest.fixture
def group(broker, request) -> str:
    """A group that has read 3 of 10 messages of its topic."""
    name = "a-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    broker.topic_commands.create(name, read_queues=1, write_queues=1)
    broker.group_commands.create(name)
    for number in range(10):
        broker.sender.send(name, b"%d" % number, queue_id=0)
    peer = Peer(broker.system().broker_address)
    fields = {"consumerGroup": name, "topic": name, "queueId": 0, "commitOffset": 3}
    assert peer.ask(15, fields).code == 0
    peer.close()
    return name


@pytest.fixture
def member(broker, group):
    """`member(wait_s)`: joins the group, and answers what it is asked after so long."""
    opened = []

    def join(client_id: str = "one@10.0.0.9", wait_s: float = 0.0) -> Member:
        opened.append(Member(broker.system().broker_address, client_id, group, group, wait_s))
        return opened[-1]

    yield join
    for one in opened:
        one.close()


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content.decode()[:2000]
    return re.sub(r"\s+", " ", response.content.decode())


def test_the_page_says_what_is_wrong_and_links_the_next_message(client_as, group):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/groups/{group}/"))
    assert "No consumer is connected, and 7 messages are waiting." in page
    assert "Start a consumer of the group" in page
    assert '<span class="chip bad">no client connected</span>' in page
    assert f"/search/?q={group}%2F0%2F3" in page
    assert "nobody has pulled it since the start" in page
    now = content(viewer.get(f"/groups/{group}/now/?tab=settings"))
    assert "<html" not in now
    assert 'id="group-state" hx-swap-oob="true"' in now
    assert f'hx-get="/groups/{group}/now/?tab=settings"' in now, "it loads the same tab again"
    assert "Retries before a dead letter" in now
    for tab in ("clients", "subscriptions", "settings", "no-such"):
        content(viewer.get(f"/groups/{group}/?tab={tab}"))
    for query in ("sort=-lag_time", "sort=idle", "q=no-such", "page=99"):
        content(viewer.get(f"/groups/{group}/?{query}"))
    assert viewer.get(f"/groups/{group}/?sort=colour").status_code == 400
    for address in ("/groups/never-was/now/", "/groups/never-was/diagnosis/"):
        assert viewer.get(address).status_code == 404


def test_the_diagnosis_shows_figures_and_what_cannot_be_told(client_as, group):
    page = content(client_as("viewer").get(f"/groups/{group}/diagnosis/"))
    assert "messages waiting</dt> <dd>7</dd>" in page
    assert "No consumer of the group is connected." in page, "why other looks cannot tell"
    assert page.count('<span class="chip">not known</span>') >= 3


def test_a_queue_that_stands_names_its_message_which_is_looked_at_and_skipped(
    client_as, broker, group, member, monkeypatch
):
    monkeypatch.setattr(limits, "STUCK_S", 0.0)
    member()
    operator = client_as("operator")
    page = content(operator.get(f"/groups/{group}/diagnosis/"))
    assert '<span class="chip bad">a queue is stuck</span>' in page
    assert f"<code>{group}/0/3</code>" in page
    look, skip = (
        html.unescape(re.search(f'href="([^"]*)">{words}</a>', page)[1]) for words in ("Look at it", "Skip this one…")
    )
    assert f"{group}" in content(operator.get(look))
    preview = content(operator.get(skip))
    assert "1 message" in preview
    fields = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', preview)) | {"step": "apply"}
    assert operator.post(f"/groups/{group}/reset/", fields).status_code == 302
    assert broker.groups.detail(group).queues[0].committed == 4
    viewer = content(client_as("viewer").get(f"/groups/{group}/diagnosis/"))
    assert "Look at it" in viewer
    assert "Skip this one" not in viewer, "nobody is shown what is refused"
    User.objects.filter(username="the-viewer").update(group_pattern=group, topic_pattern="elsewhere-*")
    page = content(client_as("viewer").get(f"/groups/{group}/diagnosis/"))
    assert "a queue is stuck</span>" in page
    assert "Message that holds it up" not in page, "who may not see the topic is not told its messages' ids and keys"


def test_pause_and_resume(client_as, broker, group):
    operator = client_as("operator")
    page = content(operator.get(f"/groups/{group}/pause/"))
    assert "What clients have already pulled they still consume" in page
    assert broker.groups.detail(group).settings.consume_enable
    answer = operator.post(f"/groups/{group}/pause/", {"step": "apply", "what": "pause"}, follow=True)
    assert f"{group} is paused." in content(answer)
    assert not broker.groups.detail(group).settings.consume_enable
    assert '<span class="chip bad">paused</span>' in content(operator.get(f"/groups/{group}/"))
    page = content(operator.get(f"/groups/{group}/pause/"))
    assert "7 messages wait." in page
    operator.post(f"/groups/{group}/pause/", {"step": "apply", "what": "resume"})
    assert broker.groups.detail(group).settings.consume_enable
    said = [(one.action, one.before, one.after) for one in AuditEntry.objects.order_by("id")]
    assert [action for action, _, _ in said] == ["group.pause", "group.resume"]
    assert said[0][1] != said[0][2]
    assert client_as("viewer").post(f"/groups/{group}/pause/", {"step": "apply", "what": "pause"}).status_code == 403
    assert operator.get("/groups/never-was/pause/").status_code == 404


def test_a_new_group_takes_over_settings_and_offsets(client_as, broker, group):
    broker.group_commands.edit(group, retry_max_times=5)
    operator = client_as("operator")
    asked = {"target": group + "-b", "offsets": "on"}
    preview = content(operator.post(f"/groups/{group}/clone/", asked | {"step": "preview"}))
    assert "There is no such group yet" in preview
    assert "begins there" in preview
    assert operator.get(f"/groups/{group}-b/").status_code == 404, "a preview makes nothing"
    revision = re.search(r'name="revision" value="([^"]+)"', preview)[1]
    done = operator.post(f"/groups/{group}/clone/", asked | {"step": "apply", "revision": revision})
    assert f"to where {group} is" in content(operator.get(done.headers["Location"]))
    made = broker.groups.detail(group + "-b")
    assert made.settings.retry_max_times == 5
    assert [queue.committed for queue in made.queues if queue.topic == group] == [3]
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.after["from"]) == ("group.clone", group + "-b", group)


def test_only_an_administrator_changes_settings_of_a_group_that_exists(client_as, broker, group):
    broker.group_commands.create(group + "-b", retry_max_times=9)
    asked = {"target": group + "-b", "settings": "on", "step": "apply"}
    refused = client_as("operator").post(f"/groups/{group}/clone/", asked)
    assert "Only an administrator may change" in content(refused, 422)
    assert broker.groups.detail(group + "-b").settings.retry_max_times == 9
    assert client_as("admin").post(f"/groups/{group}/clone/", asked).status_code == 302
    assert broker.groups.detail(group + "-b").settings.retry_max_times == 16


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target": ""}, "This field is required"),
        ({"target": "x"}, "Choose offsets, settings, or both."),
        ({"target": "bad name", "offsets": "on"}, "A group name has"),
        ({"target": "SELF", "offsets": "on"}, "A group cannot take over its own offsets."),
        ({"target": "x", "offsets": "on", "topic": "no-such"}, "There is no topic no-such."),
    ],
)
def test_what_cannot_be_cloned_is_said(client_as, group, asked, said):
    asked = {key: value.replace("SELF", group) for key, value in asked.items()}
    for step in ("preview", "apply"):
        answer = client_as("operator").post(f"/groups/{group}/clone/", asked | {"step": step})
        assert said in content(answer, 422)


def test_a_client_and_what_it_says(client_as, group, member):
    one = member("<b>one</b>@10.0.0.9/x")
    one.answer |= {
        "properties": {"PROP_CONSUMEORDERLY": "<i>false</i>"},
        "jstack": "ConsumeMessageThread_1 <script>alert(1)</script> Hung.listener",
        "mqTable": {},
    }
    listed = content(client_as("viewer").get(f"/clients/?group={group}"))
    address = re.search(r'href="(/clients/[^"?]+)"', listed)[1]
    page = content(client_as("viewer").get(address))
    assert "&lt;b&gt;one" in page
    assert "Ask, with its threads" not in page, "a viewer asks no client"
    assert client_as("viewer").post(address + "ask/", {"group": group}).status_code == 403
    operator = client_as("operator")
    page = content(operator.post(address + "ask/", {"group": group, "stack": "yes"}))
    assert "Hung.listener" in page
    assert "<script>alert" not in page
    assert "&lt;i&gt;false" in page
    assert one.questions[-1]["jstackEnable"] == "true"
    page = content(operator.post(address + "ask/", {"group": group, "stack": "no"}))
    assert "Hung.listener" not in page
    [refused, first, second] = AuditEntry.objects.order_by("id")
    assert refused.action == "request.refused"
    assert (first.action, first.after) == ("client.ask", {"group": group, "stack": True})
    assert second.after["stack"] is False


def test_a_client_is_asked_one_question_at_a_time(client_as, broker, group, member):
    slow = member("slow@10.0.0.9")
    slow.may_answer.clear()
    operator = client_as("operator")
    answers = []
    ask = lambda: answers.append(broker.asking.running_info(group, "slow@10.0.0.9"))  # noqa: E731
    first = threading.Thread(target=ask)
    first.start()
    wait_for(lambda: slow.questions, "it is asked")
    assert "is being asked already" in content(operator.post("/clients/slow@10.0.0.9/ask/", {"group": group}), 409)
    slow.may_answer.set()
    first.join()
    assert [one.client_id for one in answers] == ["slow@10.0.0.9"]
    assert len(slow.questions) == 1
    content(operator.post("/clients/slow@10.0.0.9/ask/", {"group": group}))


def test_a_client_that_does_not_answer_is_told_in_words(client_as, group, member, monkeypatch):
    monkeypatch.setattr(member_questions, "ANSWER_TIMEOUT_S", 0.2)
    member("mute@10.0.0.9", wait_s=30)
    answer = client_as("operator").post("/clients/mute@10.0.0.9/ask/", {"group": group})
    assert "mute@10.0.0.9 has left, or has not answered within" in content(answer, 503)
    assert AuditEntry.objects.get().result == "failed"


def test_a_client_that_is_gone(client_as, group):
    for address in ("/clients/never-was/", "/clients/~5/"):
        assert client_as("viewer").get(address).status_code == 404
    assert client_as("operator").post("/clients/never-was/ask/", {"group": group}).status_code == 404


def test_what_goes_with_a_group_is_listed(client_as, broker, group):
    admin = client_as("admin")
    page = content(admin.get(f"/groups/{group}/delete/"))
    assert "Offsets that go with it" in page
    assert re.search(rf'<td>{re.escape(group)} / 0</td> <td class="num"[^>]*> 3 </td>', page)
    broker.group_commands.create(group + "-new")
    assert "It has none." in content(admin.get(f"/groups/{group}-new/delete/"))
    wrong = admin.post(f"/groups/{group}/delete/", {"name": "another", "offsets": "keep"})
    assert "Offsets that stay" in content(wrong, 422)
