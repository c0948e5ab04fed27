"""Dead letters in the console: the groups, those of one, and a replay from its form to its results."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace

import pytest

from appliance.console.models import AuditEntry
from tests.support.dead_letters import put_dead_letters
from tests.support.engine import Peer, send_fields
from tests.support.waiting import wait_for


@pytest.fixture
def group(broker, request) -> str:
    """A group with seven dead letters, stored as a consumer that gives up sends them."""
    name = "g-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    broker.group_commands.create(name)
    broker.topic_commands.create(name, read_queues=1, write_queues=1)
    peer = Peer(broker.system().broker_address)
    for number in range(7):
        answer = peer.ask(310, send_fields(name, 0, f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01<b>{number}\x02"), b"x")
        assert answer.code == 0
        offset = int(answer.ext_fields["msgId"][-16:], 16)
        fields = {
            "offset": offset, "group": name, "delayLevel": -1, "originMsgId": "x", "originTopic": name,
            "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        assert peer.ask(36, fields).code == 0
    peer.close()
    return name


def downloaded(client, address: str) -> str:
    """A stream to its end."""
    response = client.get(address)
    assert response.status_code == 200, response.content

    async def read() -> bytes:
        return b"".join([part async for part in response.streaming_content])

    return asyncio.run(read()).decode()


def content(response) -> str:
    assert response.status_code == 200, response.content
    return str(response.content.decode())


def test_the_lists(client_as, group):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/dead-letters/?q={group}"))
    assert f'href="/dead-letters/{group}/"' in page
    assert re.search(r'<td class="num"[^>]*>7</td>', page)
    page = content(viewer.get(f"/dead-letters/{group}/"))
    assert "&lt;b&gt;3" in page
    assert 'name="pick"' not in page, "a viewer chooses nothing"
    page = content(client_as("operator").get(f"/dead-letters/{group}/"))
    assert len(re.findall('name="pick"', page)) == 7
    rows = viewer.get(f"/dead-letters/?q={group}&format=csv").content.decode().splitlines()
    assert rows[1].startswith(f"{group},7,")


def test_no_dead_letters_teach_how_there_come_some(client_as, broker):
    assert "No group of this name has dead letters." in content(client_as("viewer").get("/dead-letters/?q=no-such"))
    assert client_as("viewer").get("/dead-letters/no-such/").status_code == 404
    # No message of it ever died, so that not even the topic is there: the page that others lead to says so.
    broker.group_commands.create("nothing-died")
    page = content(client_as("viewer").get("/dead-letters/nothing-died/"))
    assert "Nothing of this group is dead." in page
    assert "0 messages wait for their next try; after 16 of them" in page
    asked = {"target": "group", "rate": "10", "max_replays": "3"}
    answer = client_as("operator").post("/dead-letters/nothing-died/replay/", asked)
    assert "There is no topic %DLQ%nothing-died." in answer.content.decode()


def test_a_replay_is_shown_before_it_begins_and_until_it_ends(client_as, group):
    operator = client_as("operator")
    form = content(operator.get(f"/dead-letters/{group}/replay/?pick=0-1&pick=0-4"))
    assert 'value="0-1 0-4"' in form
    asked = {"target": "group", "rate": "1000", "max_replays": "3", "picked": "0-1 0-4"}
    preview = content(operator.post(f"/dead-letters/{group}/replay/", asked | {"step": "preview"}))
    assert "2 messages would be sent" in preview
    assert not AuditEntry.objects.exists()
    started = operator.post(f"/dead-letters/{group}/replay/", asked | {"step": "apply"})
    address = started.headers["Location"]
    wait_for(lambda: "done" in content(operator.get(address + "progress/")), "the end of the replay")
    progress = content(operator.get(address + "progress/"))
    assert "hx-get" not in progress, "what has ended is not asked for again"
    ended = operator.get(address + "progress/")
    assert ended.headers["HX-Refresh"] == "true", "the results below are shown again"
    page = content(operator.get(address))
    assert page.count('<span class="chip good">sent</span>') == 2
    assert "q=%25DLQ%25" + group + "/0/4" in page
    assert "No message of this replay has this result." in content(operator.get(address + "?result=failed"))
    assert [one.action for one in AuditEntry.objects.all()] == ["replay.start"]
    rows = downloaded(operator, address + "results/?format=csv").splitlines()
    assert rows[0] == "number,queue,offset,result,why,died_again,origin_topic,origin_id,unique_id,keys"
    assert [row.split(",")[:7] for row in rows[1:]] == [
        ["0", "0", "1", "replayed", "", "no", group],
        ["1", "0", "4", "replayed", "", "no", group],
    ]
    assert rows[2].endswith(f"{4:032X},<b>4")
    lines = downloaded(operator, address + "results/?format=ndjson&result=replayed").splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [1, 4]


def test_paused_resumed_cancelled(client_as, _one_broker, broker, group):  # noqa: PT019
    put_dead_letters(SimpleNamespace(engine=_one_broker, window=broker), group, 100)  # it lasts, however slow this is
    operator = client_as("operator")
    asked = {"target": "group", "rate": "1", "max_replays": "3", "step": "apply"}
    address = operator.post(f"/dead-letters/{group}/replay/", asked).headers["Location"]
    act = address + "act/"
    for what, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert operator.post(act, {"what": what}).headers["Location"] == address
        assert f">{state}</span>" in content(operator.get(address + "progress/"))
    assert client_as("viewer").post(act, {"what": "cancel"}).status_code == 403
    assert operator.post(act, {"what": "explode"}).status_code == 400
    assert [one.action for one in AuditEntry.objects.order_by("id")] == [
        "replay.start", "replay.pause", "replay.resume", "replay.cancel", "request.refused"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "topic"}, "topic"),
        ({"target": "topic", "topic": "no-such"}, "There is no topic no-such."),
        ({"rate": "0"}, "greater than or equal to 1"),
        ({"picked": "0-77"}, "77"),
        ({"picked": "x"}, "is not a queue and an offset"),
        ({"from_ms": "<script>"}, "is not a date and time"),
        ({"from_ms": "9" * 32}, "is not a date and time"),
        ({"to_ms": str(1 << 63)}, "to_ms must be milliseconds since 1970"),
        ({"from_ms": "2", "to_ms": "1"}, "The end time is before the start time."),
        ({"picked": "9" * 5000 + "-1"}, "is not a queue and an offset"),
        ({"picked": "0-" + "9" * 19}, "has no offset"),
        ({"picked": "²-1"}, "is not a queue and an offset"),
        ({"picked": "0--1"}, "is not a queue and an offset"),
        ({"picked": "0-1", "from_ms": "1"}, "not both"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_the_form(client_as, group, changes, said):
    asked = {"target": "group", "rate": "10", "max_replays": "3", "step": "preview"} | changes
    response = client_as("operator").post(f"/dead-letters/{group}/replay/", asked)
    assert response.status_code == 422
    assert said in response.content.decode()


def test_nothing_ticked_is_not_everything(client_as, group):
    operator = client_as("operator")
    assert 'name="ticked"' in content(operator.get(f"/dead-letters/{group}/"))
    answer = operator.get(f"/dead-letters/{group}/replay/?ticked=yes", follow=True)
    assert answer.redirect_chain == [(f"/dead-letters/{group}/", 302)]
    assert "No dead letter is ticked." in content(answer)
    assert operator.get(f"/dead-letters/{group}/replay/?" + "pick=0-1&" * 501).status_code == 400, "none is left out"


def test_a_deleted_group_is_no_target(client_as, broker, group):
    broker.group_commands.delete(group)
    operator = client_as("operator")
    form = content(operator.get(f"/dead-letters/{group}/replay/"))
    asked = {"target": "group", "rate": "10", "max_replays": "3", "step": "apply"}
    answer = operator.post(f"/dead-letters/{group}/replay/", asked)
    assert answer.status_code == 422
    assert f"There is no consumer group {group}." in answer.content.decode()
    assert "All dead letters that the group has now." in form
    assert "7 messages" in content(
        operator.post(f"/dead-letters/{group}/replay/", asked | {"target": "original", "step": "preview"})
    )
    assert operator.get("/dead-letters/never-was/replay/").status_code == 404


def test_a_group_leads_to_its_dead_letters(client_as, group):
    assert f'<a href="/dead-letters/{group}/">' in content(client_as("viewer").get(f"/groups/{group}/"))


@pytest.mark.parametrize("job", ["no-such", "..", "%2e%2e%2fx", "0" * 300, "%00", "<b>"])
def test_a_replay_that_is_none(client_as, broker, job):
    operator = client_as("operator")
    for path in (f"/replays/{job}/", f"/replays/{job}/progress/", f"/replays/{job}/?format=csv"):
        assert operator.get(path).status_code == 404, path
    assert operator.post(f"/replays/{job}/act/", {"what": "cancel"}).status_code == 404
