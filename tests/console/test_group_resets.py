"""A group's offsets moved in the console: form, preview, act, the page that watches, the way back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from appliance import runtime
from appliance.console.groups.reset_notes import _target
from appliance.console.models import AuditEntry, User
from tests.support.engine import Peer


@pytest.fixture
def group(broker, request) -> str:
    """A group that has read 3 of 10 messages in queue 0 of its topic, and none of the 5 in queue 1."""
    name = "r-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    broker.topic_commands.create(name, read_queues=2, write_queues=2)
    broker.group_commands.create(name)
    for number in range(15):
        broker.sender.send(name, b"%d" % number, queue_id=number % 3 // 2)
    commit(name, 0, 3)
    return name


def commit(name: str, queue: int, offset: int) -> None:

    peer = Peer(runtime.window().system().broker_address)
    fields = {"consumerGroup": name, "topic": name, "queueId": queue, "commitOffset": offset}
    assert peer.ask(15, fields).code == 0
    peer.close()


def content(response) -> str:
    assert response.status_code == 200, response.content.decode()[:2000]
    return re.sub(r"\s+", " ", response.content.decode())


ASK = {"topic": "", "queues": "", "to": "latest", "at_ms": "", "offset": "", "by": ""}


def test_preview_act_watch_undo(client_as, broker, group):
    operator = client_as("operator")
    address = f"/groups/{group}/reset/"
    assert "No client is connected; the next one begins there." in content(operator.get(address))
    asked = ASK | {"to": "earliest"}
    preview = content(operator.post(address, asked | {"step": "preview"}))
    assert "Nothing is changed yet." in preview
    assert "replays 3" in preview
    assert "begins there" in preview, "queue 1 had no offset"
    assert f"q={group}%2F0%2F0" in preview, "the first message that comes again is a link"
    assert "Apply to 2 queues" in preview
    assert not AuditEntry.objects.exists()
    revision = re.search(r'name="revision" value="([^"]+)"', preview)[1]
    done = operator.post(address, asked | {"step": "apply", "revision": revision})
    page = content(operator.get(done.headers["Location"]))
    assert "client told" not in page
    assert "waiting <b>2</b>" in page
    assert "No client of the group is connected." in page
    assert "hx-get" in page
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.target) == ("group.reset", group)
    assert entry.before == {f"{group}/0": 3, f"{group}/1": None}
    assert entry.after[f"{group}/0"] == 0
    assert (entry.after["replays"], entry.after["to"]) == (3, "earliest")

    listed = content(operator.get(f"/groups/{group}/resets/"))
    assert "to the earliest message that is kept" in listed
    assert listed.count("Undo…") == 1
    undo = content(operator.get(done.headers["Location"] + "undo/"))
    assert "skips 3" in undo
    assert "has no offset again" in undo
    back = operator.post(done.headers["Location"] + "undo/", {"step": "apply"})
    page = content(operator.get(back.headers["Location"]))
    assert "back to where it was before reset" in page
    assert [one.action for one in AuditEntry.objects.order_by("id")] == ["group.reset", "group.undo_reset"]
    [first] = [move for move in broker.offsets.of_group(group)[0].moves if move.queue_id == 0]
    assert (first.now, first.to) == (3, 3)
    again = operator.post(done.headers["Location"] + "undo/", {"step": "apply"}, follow=True)
    assert "This was taken back before." in content(again)
    rows = operator.get(f"/groups/{group}/resets/?format=csv").content.decode().splitlines()
    assert len(rows) == 3


def test_skip_to_the_end_needs_no_form(client_as, broker, group):
    operator = client_as("operator")
    preview = content(operator.get(f"/groups/{group}/reset/?to=latest&step=preview"))
    assert "skips 7" in preview
    assert "messages are never given to this group" in preview
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)"(?: value="([^"]*)")?', preview))
    hidden.pop("csrfmiddlewaretoken", None)
    done = operator.post(f"/groups/{group}/reset/", hidden)
    assert done.status_code == 302, done.content
    assert {move.queue_id: move.now for move in broker.offsets.of_group(group)[0].moves} == {0: 10, 1: 5}


@pytest.mark.parametrize(
    ("asked", "offsets"),
    [
        ({"to": "shift", "by": "-2"}, {0: 1}),
        ({"to": "shift", "by": "4"}, {0: 7}),
        ({"to": "offset", "offset": "4", "queues": "0-1"}, {0: 4, 1: 4}),
        ({"to": "earliest", "queues": "1"}, {1: 0}),
        ({"to": "earliest", "at_ms": "2999-01-01T00:00:00", "by": "2", "offset": "3"}, {0: 0, 1: 0}),  # typed before
        ({"to": "time", "at_ms": "2020-01-01T00:00:00"}, {0: 0, 1: 0}),
        ({"to": "", "at_ms": "2999-01-01T00:00:00"}, {0: 10, 1: 5}),
        ({"to": "time", "at_ms": "2999-01-01T00:00:00"}, {0: 10, 1: 5}),
    ],
)
def test_where_to(client_as, broker, group, asked, offsets):
    answer = client_as("operator").post(f"/groups/{group}/reset/", ASK | {"step": "apply"} | asked)
    assert answer.status_code == 302, answer.content
    assert {move.queue_id: move.now for move in broker.offsets.of_group(group)[0].moves} == offsets


def test_a_skip_that_comes_late_is_refused_in_a_sentence(client_as, broker, group):
    operator, address = client_as("operator"), f"/groups/{group}/reset/"
    asked = ASK | {"topic": group, "queues": "0", "to": "skip", "offset": "3"}
    preview = content(operator.post(address, asked | {"step": "preview"}))
    revision = re.search(r'name="revision" value="([^"]+)"', preview)[1]
    commit(group, 0, 6)
    late = operator.post(address, asked | {"step": "apply", "revision": revision})
    assert late.status_code == 409
    assert f"The group has gone on: in queue 0 of {group} it is at 6" in late.content.decode()
    assert [queue.committed for queue in broker.groups.detail(group).queues if queue.queue_id == 0] == [6]


def test_a_preview_asks_again_for_the_moment_that_it_showed(client_as, broker, group):
    """An hour ago is another moment by the time that a user has read the preview."""
    page = client_as("operator").post(f"/groups/{group}/reset/", ASK | {"to": "time", "at_ms": "1 h ago"})
    assert page.status_code == 200
    [hidden] = re.findall('name="at_ms" value="(.*?)"', page.content.decode())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", hidden)
    page = client_as("operator").post(f"/groups/{group}/reset/", ASK | {"to": "time", "at_ms": "1795268072123"})
    assert re.findall('name="at_ms" value="(.*?)"', page.content.decode()) == ["1795268072123"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": "no-such"}, "There is no topic no-such."),
        ({"queues": "7"}, "There is no"),
        ({"queues": "x"}, "is not a queue, and no range of queues"),
        ({"queues": "3-1"}, "is not a queue, and no range of queues"),
        ({"queues": "0-999999"}, "is not a queue, and no range of queues"),
        ({"queues": "²"}, "is not a queue, and no range of queues"),
        ({"to": ""}, "Choose where to move them."),
        ({"to": "", "at_ms": "10:00", "by": "2"}, "Choose where to move them."),
        ({"to": "", "at_ms": "<b>"}, "is not a date and time"),
        ({"to": "moon"}, "Select a valid choice"),
        ({"to": "time"}, "Give a date and time to move to."),
        ({"to": "time", "at_ms": "<b>"}, "is not a date and time"),
        ({"to": "offset", "offset": "3"}, "Name the queues and the offset"),
        ({"to": "offset", "queues": "0"}, "Name the queues and the offset"),
        ({"to": "offset", "queues": "0", "offset": "99"}, "has the offsets 0 to 10, not 99"),
        ({"to": "shift"}, "A shift needs a number of messages"),
        ({"to": "shift", "by": "0"}, "A shift needs a number of messages"),
        ({"to": "shift", "by": "9" * 30}, "less than or equal"),
    ],
)
def test_what_cannot_be_is_said_at_its_field(client_as, group, changes, said):
    answer = client_as("operator").post(f"/groups/{group}/reset/", ASK | {"step": "preview"} | changes)
    assert answer.status_code == 422, answer.content
    assert said in answer.content.decode()


def test_another_reset_in_between_is_not_overridden(client_as, broker, group):
    operator = client_as("operator")
    asked = ASK | {"to": "earliest"}
    preview = content(operator.post(f"/groups/{group}/reset/", asked | {"step": "preview"}))
    revision = re.search(r'name="revision" value="([^"]+)"', preview)[1]
    broker.offset_commands.reset(group, group, broker.offset_target("latest"))
    answer = operator.post(f"/groups/{group}/reset/", asked | {"step": "apply", "revision": revision})
    assert answer.status_code == 409
    assert "It has changed since you looked at it" in answer.content.decode()
    assert len(broker.offsets.of_group(group)) == 1


def test_who_may(client_as, broker, group):
    done = broker.offset_commands.reset(group, group, broker.offset_target("latest"))
    viewer = client_as("viewer")
    assert "Undo…" not in content(viewer.get(f"/groups/{group}/resets/"))
    assert "Undo…" not in content(viewer.get(f"/groups/{group}/resets/{done.id}/"))
    for path in (f"/groups/{group}/reset/", f"/groups/{group}/resets/{done.id}/undo/"):
        assert viewer.get(path).status_code == 403
        assert viewer.post(path, {"step": "apply"}).status_code == 403
    assert len(broker.offsets.of_group(group)) == 1


def test_a_reset_of_another_group_or_none(client_as, broker, group):
    broker.group_commands.create(group + "-other")
    done = broker.offset_commands.reset(group, group, broker.offset_target("latest"))
    operator = client_as("operator")
    for name, number in ((group + "-other", done.id), (group, 17), (group, "9" * 40)):
        for rest in ("", "progress/", "undo/"):
            assert operator.get(f"/groups/{name}/resets/{number}/{rest}").status_code == 404
    assert "Nobody has moved this group" in content(operator.get(f"/groups/{group}-other/resets/"))
    assert operator.get("/groups/never-was/resets/").status_code == 404
    assert operator.get("/groups/never-was/reset/").status_code == 404


def test_a_group_without_offsets_and_topics(client_as, broker, group):
    name = group + "-fresh"
    broker.group_commands.create(name)
    operator = client_as("operator")
    empty = operator.post(f"/groups/{name}/reset/", ASK | {"step": "preview"})
    assert empty.status_code == 422
    assert "There is no queue to move." in empty.content.decode()
    named = operator.post(f"/groups/{name}/reset/", ASK | {"step": "apply", "topic": group})
    assert named.status_code == 302
    assert {move.queue_id: (move.before, move.now) for move in broker.offsets.of_group(name)[0].moves} == {
        0: (None, 10), 1: (None, 5)
    }  # fmt: skip


def test_a_user_kept_to_some_names_moves_no_others(client_as, people, broker, group):
    operator = client_as("operator")
    User.objects.filter(pk=people["operator"].pk).update(group_pattern=group, topic_pattern="elsewhere-*")
    asked = ASK | {"to": "latest", "step": "apply"}
    assert content(operator.get(f"/groups/{group}/reset/"))
    assert operator.post(f"/groups/{group}/reset/", asked).status_code == 403
    assert operator.get(f"/groups/{group}/reset/?to=latest&step=preview").status_code == 403
    assert broker.offsets.of_group(group) == ()
    done = broker.offset_commands.reset(group, group, broker.offset_target("latest"))
    assert operator.post(f"/groups/{group}/resets/{done.id}/undo/", {"step": "apply"}).status_code == 403
    assert len(broker.offsets.of_group(group)) == 1
    User.objects.filter(pk=people["operator"].pk).update(topic_pattern=group)
    assert operator.post(f"/groups/{group}/resets/{done.id}/undo/", {"step": "apply"}).status_code == 302
    User.objects.filter(pk=people["operator"].pk).update(group_pattern="elsewhere-*")
    for rest in ("", "now/", "diagnosis/", "reset/", "resets/", "pause/", "clone/", f"resets/{done.id}/"):
        assert operator.get(f"/groups/{group}/{rest}").status_code == 403, rest


@pytest.mark.parametrize(
    ("asked", "to"),
    [("time 1795268072000", "time 2026-11-21T13:34:32+00:00"), ("earliest", "earliest"), ("shift -3", "shift -3"),
     (f"time {1 << 60}", f"time {1 << 60}")],
)  # fmt: skip
def test_the_audit_log_has_a_target_in_time_as_people_read_it(asked, to):
    assert _target(asked) == to


def test_a_skip_of_one_message_says_so(client_as, broker, group):
    operator = client_as("operator")
    asked = ASK | {"topic": group, "queues": "0", "to": "skip", "offset": "3", "step": "preview"}
    preview = content(operator.get(f"/groups/{group}/reset/", asked))
    assert f"Skip one message of {group}?" in preview
    assert f"to offset 4 of {group}/0" in preview
    revision = re.search(r'name="revision" value="([^"]+)"', preview)[1]
    operator.post(f"/groups/{group}/reset/", asked | {"step": "apply", "revision": revision})
    assert f"to offset 4 of {group}/0" in content(operator.get(f"/groups/{group}/resets/"))


def test_a_diagnosis_that_comes_early_says_so(client_as, broker, group, monkeypatch):
    window, address = runtime.window(), f"/groups/{group}/diagnosis/"
    of, detail = window.diagnosis.of, window.groups.detail
    monkeypatch.setattr(window.diagnosis, "of", lambda *_: replace(of(*_), findings=()))
    monkeypatch.setattr(window.groups, "detail", lambda *_, **given: replace(detail(*_, **given), lag=7, lag_ms=99_000))
    page = content(client_as("viewer").get(address))
    assert "Nothing wrong was found yet. The oldest message has waited for 1 min 39 s" in page
    monkeypatch.setattr(window.groups, "detail", lambda *_, **given: replace(detail(*_, **given), lag=7, lag_ms=2_000))
    assert "Nothing wrong was found." in content(client_as("viewer").get(address))
