"""A group's dead letters by filter, the grid, and its retry ladder: what the pages show, and what they do."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest

from appliance.console.jobs.job_board import board
from appliance.console.jobs.message_lines import item_of
from appliance.console.jobs.runner import run_waiting
from appliance.console.models import AuditEntry, User
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.protocol.properties import encode_properties
from tests.support.dead_letters import dead_letter, make_group, put
from tests.support.engine import Peer, send_fields
from tests.support.waiting import wait_for

HOSTILE = '=<script>alert("x")</script>&'


class _Shared:
    """The session's engine, as the support of dead letters takes it."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.window = engine.window


@pytest.fixture
def running(_one_broker, broker):
    return _Shared(_one_broker)


@pytest.fixture
def group(running, request) -> str:
    """60 dead letters: of Orders and Refunds in turn, every third with 3 retries; one of a hostile topic."""
    name = "g-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    make_group(running, name)
    put(running, [dead_letter(name, n, ("Orders", "Refunds")[n % 2]) for n in range(60)])
    put(
        running,
        [OwnMessage(f"%DLQ%{name}", 0, b"x", encode_properties({"RETRY_TOPIC": HOSTILE, "KEYS": HOSTILE}), "", 1)],
    )
    return name


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


def test_the_grid_leads_to_what_it_counts(client_as, group):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/dead-letters/{group}/"))
    assert "61 dead letters" in page
    assert html.escape(HOSTILE) in page
    assert "<script>alert" not in page
    cells = [html.unescape(one) for one in re.findall(r'<a href="(\?[^"]*#letters)">', page)]
    counted = [link for link in cells if "from=" in link]
    assert len(counted) >= 3, "a cell for each origin"
    shown = 0
    for link in counted:
        found = content(viewer.get(f"/dead-letters/{group}/{link.split('#')[0]}"))
        shown += len(re.findall(r'<td class="id">', found))
    assert shown == 61, "no dead letter is in two cells, and none is in no cell"


def test_a_filter_is_carried_from_the_list_to_the_replay(client_as, broker, group):
    operator = client_as("operator")
    page = content(operator.get(f"/dead-letters/{group}/?origin=Refunds&retries=17"))
    assert len(re.findall(r'name="pick"', page)) == 30
    assert "looked at 61 of 61" in page
    link = html.unescape(re.search(r'<a class="btn go" href="([^"]*)"', page)[1])
    form = content(operator.get(link))
    assert "sent to Refunds" in re.sub(r"\s+", " ", form)
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert (fields["origin"], fields["retries"], fields.get("picked", "")) == ("Refunds", "17", "")
    asked = {"target": "group", "rate": "10000", "max_replays": "3", "origin": "Refunds", "retries": "17"}
    preview = content(operator.post(f"/dead-letters/{group}/replay/", asked | {"step": "preview"}))
    assert "30 messages would be sent" in preview
    assert "Left out by the filter" in preview
    address = operator.post(f"/dead-letters/{group}/replay/", asked | {"step": "apply"}).headers["Location"]
    wait_for(lambda: ">done</span>" in content(operator.get(address + "progress/")), "the end of the replay")
    shown = re.sub(r"\s+", " ", content(operator.get(address)))
    assert "<b>30</b> of 30" in shown
    assert "The filter left out 31 of the 61 that were looked at." in shown
    [entry] = AuditEntry.objects.all()
    assert entry.after["filter"] == {"topic": "Refunds", "retries": 17}
    assert "looked at 61 of 61" in content(operator.get(f"/dead-letters/{group}/?replayed=yes&origin=Orders"))
    assert 'name="pick"' not in content(operator.get(f"/dead-letters/{group}/?replayed=yes&origin=Orders"))
    assert content(operator.get(f"/dead-letters/{group}/?replayed=yes")).count('name="pick"') == 30


@pytest.mark.parametrize("query", ["retries=x", "retries=-1", "replayed=maybe", "from=x", "cursor=zz&retries=3"])
def test_what_is_no_filter_is_said(client_as, group, query):
    page = content(client_as("viewer").get(f"/dead-letters/{group}/?{query}"), 422)
    assert 'role="alert"' in page


def test_a_spreadsheet_runs_nothing(client_as, group):
    rows = content(client_as("viewer").get(f"/dead-letters/{group}/?format=csv&key={HOSTILE.replace('&', '%26')}"))
    assert len(rows.splitlines()) == 2
    assert "'=<script>" in rows
    assert ",=<" not in rows


def test_an_empty_group_says_what_would_come_here(client_as, running, request):
    name = "g-" + request.node.name
    make_group(running, name)
    page = re.sub(r"\s+", " ", content(client_as("viewer").get(f"/dead-letters/{name}/")))
    assert "Nothing of this group is dead." in page
    assert "after 16 of them" in page


# --- the ladder


@pytest.fixture
def retried(running, request) -> Iterator[str]:
    """A group with five messages that its consumer sent back: they wait at level 3, and one at level 5."""
    name = "g-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    make_group(running, name)
    running.window.topic_commands.create(name, read_queues=1, write_queues=1)
    peer = Peer(running.window.system().broker_address)
    for number in range(6):
        text = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01<b>{number}\x02"
        answer = peer.ask(310, send_fields(name, 0, text), b"x")
        fields = {
            "offset": int(answer.ext_fields["msgId"][-16:], 16), "group": name, "originMsgId": "x",
            "delayLevel": 15 if number < 5 else 16, "originTopic": name, "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        assert peer.ask(36, fields).code == 0
    peer.close()
    yield name
    running.window.waiting_commands.run("drop", group=name)  # other tests count what waits


def picks(page: str) -> list[str]:
    return re.findall(r'name="pick"\s+value="([^"]*)"', page)


def test_a_group_s_retries_are_those_that_wait_as_well(client_as, running, retried):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/groups/?q={retried}"))
    assert re.search(rf'href="/groups/{retried}/retries/">6</a>', page)
    assert re.search(r"Retries <b>6</b>", content(viewer.get(f"/groups/{retried}/")))
    counts = [row.retries for row in running.window.groups.page(sort="-retries").rows]
    assert counts == sorted(counts, reverse=True)


def test_the_ladder_and_its_messages(client_as, retried):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/groups/{retried}/retries/"))
    assert "6 messages wait for their next try" in re.sub(r"\s+", " ", page)
    assert re.search(r'href="\?level=15#waiting"><b>5</b>', page)
    assert "&lt;b&gt;3" in page
    assert not picks(page), "a viewer chooses nothing"
    operator = client_as("operator")
    assert len(picks(content(operator.get(f"/groups/{retried}/retries/")))) == 6
    assert len(picks(content(operator.get(f"/groups/{retried}/retries/?level=16")))) == 1
    assert "is not a delay level" in content(operator.get(f"/groups/{retried}/retries/?level=x"), 422)
    rows = content(viewer.get(f"/groups/{retried}/retries/?format=csv")).splitlines()
    assert len(rows) == 7
    assert viewer.get("/groups/never-was/retries/").status_code == 404
    assert viewer.get(f"/groups/{retried}/retries/act/?what=drop").status_code == 403


@pytest.mark.parametrize(
    ("what", "said", "place"),
    [
        ("deliver_now", "2 messages are retried now", "%RETRY%"),
        ("to_dead_letters", "2 messages became dead letters", "%DLQ%"),
        ("drop", "2 messages were dropped", ""),
    ],
)
def test_ticked_ones_are_handled_once(client_as, running, retried, what, said, place):
    operator = client_as("operator")
    chosen = picks(content(operator.get(f"/groups/{retried}/retries/")))[:2]
    asked = {"what": what, "pick": chosen}
    preview = content(operator.get(f"/groups/{retried}/retries/act/", asked))
    assert "the ticked ones" in preview
    assert not AuditEntry.objects.exists()
    done = operator.post(f"/groups/{retried}/retries/act/", asked | {"step": "apply"})
    assert done.headers["Location"] == f"/groups/{retried}/retries/done/"
    page = re.sub(r"\s+", " ", content(operator.get(f"/groups/{retried}/retries/done/")))
    assert said in page
    assert "of 2 that were chosen" in page
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.after["done"]) == (f"retry.{what}", retried, 2)
    assert running.window.waiting.ladder(retried).waiting == 4
    if place:
        assert running.engine.broker.store.offset_range(place + retried, 0)[1] == 2


def test_a_whole_level_is_handled(client_as, running, retried):
    operator = client_as("operator")
    asked = {"what": "to_dead_letters", "level": "15"}
    assert "5 messages" in content(operator.get(f"/groups/{retried}/retries/act/", asked))
    operator.post(f"/groups/{retried}/retries/act/", asked | {"step": "apply"})
    ladder = running.window.waiting.ladder(retried)
    assert (ladder.waiting, [rung.waiting for rung in ladder.rungs if rung.waiting]) == (1, [1])
    assert running.engine.broker.store.offset_range(f"%DLQ%{retried}", 0)[1] == 5


def test_what_is_no_retry_of_the_group_is_refused(client_as, running, retried, request):
    other = retried + "-other"
    make_group(running, other)
    operator = client_as("operator")
    [*_, one] = picks(content(operator.get(f"/groups/{retried}/retries/")))
    assert operator.get(f"/groups/{other}/retries/act/", {"what": "drop", "pick": one}).status_code == 400
    answer = operator.post(f"/groups/{other}/retries/act/", {"what": "drop", "pick": one, "step": "apply"})
    assert answer.status_code == 400
    assert operator.get(f"/groups/{retried}/retries/act/", {"what": "explode"}).status_code == 400
    answer = operator.get(f"/groups/{retried}/retries/act/", {"what": "drop", "ticked": "yes"})
    assert answer.status_code == 302, "nothing ticked is not everything"
    assert running.window.waiting.ladder(retried).waiting == 6


# --- the archive


def archived(client, address: str) -> list[str]:
    """The lines of the file that a job wrote."""
    assert run_waiting() == 1
    job = address.rstrip("/").rpartition("/")[2]
    [found] = board().get(job).files
    assert board().get(job).state == "done"
    return board().folder(job).file(found.name).read_text().splitlines()


def test_dead_letters_are_archived_to_a_file(client_as, running, group):
    reader = client_as("viewer", "may_read_bodies", "may_export")
    page = content(reader.get(f"/dead-letters/{group}/?origin=Refunds"))
    link = html.unescape(re.search(r'href="(/dead-letters/[^"]*/archive/[^"]*)"', page)[1])
    form = content(reader.get(link))
    assert "sent to Refunds" in re.sub(r"\s+", " ", form)
    asked = {"origin": "Refunds", "format": "ndjson"}
    address = reader.post(f"/dead-letters/{group}/archive/", asked).headers["Location"]
    lines = [json.loads(line) for line in archived(reader, address)]
    assert len(lines) == 30
    assert {line["origin_topic"] for line in lines} == {"Refunds"}
    assert {line["dead_letter_of"] for line in lines} == {group}
    bodies = {line["body"]["data"] for line in lines}
    assert bodies == {f"body {n}" for n in range(60) if n % 2}
    shown = re.sub(r"\s+", " ", content(reader.get(address)))
    assert "left out by the filter" in shown
    # A line is what an import takes.
    assert item_of(json.dumps(lines[0]).encode())["body"] == b"body 59"
    job = board().get(address.rstrip("/").rpartition("/")[2])
    assert job.counts == {"archived": 30, "left_out": 31, "unreadable": 0}
    actions = [one.action for one in AuditEntry.objects.order_by("id")]
    assert actions[:2] == ["job.start", "job.end"]


def test_ticked_ones_and_hostile_ones_are_archived_as_csv(client_as, group):
    reader = client_as("viewer", "may_read_bodies", "may_export")
    page = content(reader.get(f"/dead-letters/{group}/archive/?pick=0-60&pick=0-3&ticked=yes"))
    assert "Those that were ticked." in page
    asked = {"picked": "0-60 0-3", "format": "csv"}
    lines = archived(reader, reader.post(f"/dead-letters/{group}/archive/", asked).headers["Location"])
    assert len(lines) == 3
    assert "'=<script>" in lines[1]
    assert ",=<" not in lines[1]
    assert ",body 3" in lines[2]
    assert reader.get(f"/dead-letters/{group}/archive/?ticked=yes").status_code == 302


def test_an_archive_is_for_those_who_may_export_bodies(client_as, group):
    for client in (client_as("operator"), client_as("viewer", "may_read_bodies")):
        assert client.get(f"/dead-letters/{group}/archive/").status_code == 403
        assert "/archive/" not in content(client.get(f"/dead-letters/{group}/"))


# --- users of some names


def test_who_is_kept_to_some_names_replays_no_others(client_as, people, running, group):
    User.objects.filter(username="the-operator").update(topic_pattern="mine-*", group_pattern="g-test-who-is-kept*")
    other = "elsewhere-" + group[-20:]
    make_group(running, other)
    put(running, [dead_letter(other, n) for n in range(90)])
    mine = running.window.replay_commands.start(group, rate=1).job
    others = running.window.replay_commands.start(other, rate=1).job
    client = client_as("operator")
    assert client.get(f"/dead-letters/{group}/").status_code == 200
    assert client.get(f"/groups/{group}/retries/").status_code == 200
    assert client.get(f"/replays/{mine.id}/").status_code == 200
    for path in (
        f"/dead-letters/{other}/", f"/dead-letters/{other}/replay/", f"/groups/{other}/retries/",
        f"/groups/{other}/retries/act/?what=drop", f"/replays/{others.id}/", f"/replays/{others.id}/progress/",
        f"/replays/{others.id}/results/",
    ):  # fmt: skip
        assert client.get(path).status_code == 403, path
    assert client.post(f"/replays/{others.id}/act/", {"what": "cancel"}).status_code == 403
    assert client.post(f"/replays/{mine.id}/act/", {"what": "cancel"}).status_code == 302
    asked = {"rate": "1", "max_replays": "3", "step": "apply"}
    for target, topic in (("original", ""), ("topic", "Orders")):
        answer = client.post(f"/dead-letters/{group}/replay/", asked | {"target": target, "topic": topic})
        assert answer.status_code == 403, target
    assert client.post(f"/dead-letters/{group}/replay/", asked | {"target": "group"}).status_code == 302
    to_all = running.window.replays.jobs(group).jobs[0]
    running.window.replay_commands.cancel(to_all.id)
    everywhere = running.window.replay_commands.start(group, target="original", rate=1).job
    assert client.post(f"/replays/{everywhere.id}/act/", {"what": "cancel"}).status_code == 403
    for job in (others, everywhere):
        running.window.replay_commands.cancel(job.id)


# --- without a tick


@pytest.mark.parametrize("act", ["replay", "archive"])
def test_an_act_without_a_tick_goes_back_to_the_list_with_its_filter(client_as, group, act):
    operator = client_as("operator", "may_read_bodies", "may_export")
    page = content(operator.get(f"/dead-letters/{group}/?origin=Refunds&retries=17&from=2001-01-01"))
    form = page.split(f'action="/dead-letters/{group}/replay/"')[1]
    carried = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert carried == {"origin": "Refunds", "retries": "17", "from": "2001-01-01"}
    answer = operator.get(f"/dead-letters/{group}/{act}/", carried | {"ticked": "yes"})
    assert answer.status_code == 302
    assert answer.url == f"/dead-letters/{group}/?from=2001-01-01&origin=Refunds&retries=17"


def test_a_tick_is_all_that_counts_beside_the_filter_of_the_list(client_as, group):
    operator = client_as("operator")
    address = f"/dead-letters/{group}/replay/?ticked=yes&pick=0-1&origin=Refunds&from=2001-01-01"
    page = content(operator.get(address))
    assert "Those that were ticked." in page
    assert "has no parameter" not in page
    (origin,) = re.findall(r'<input[^>]*name="origin"[^>]*>', page)
    assert "value=" not in origin, "and no filter beside it"


def test_retries_without_a_tick_go_back_to_their_level(client_as, retried, running):
    operator = client_as("operator")
    answer = operator.get(f"/groups/{retried}/retries/act/", {"what": "drop", "ticked": "yes", "level": "3"})
    assert answer.url == f"/groups/{retried}/retries/?level=3"


def test_bodies_are_shown_to_those_who_may_read_them(client_as, group):
    address, viewer = f"/dead-letters/{group}/", client_as("viewer")
    assert 'name="bodies"' not in content(viewer.get(address))
    assert "glance" not in content(viewer.get(f"{address}?bodies=on"))
    reader = client_as("viewer", "may_read_bodies")
    assert "glance" not in content(reader.get(address))
    for more in ("", "&origin=Orders"):
        page = content(reader.get(f"{address}?bodies=on{more}"))
        shown = re.findall(r'class="line glance short".*?<code>(.*?)</code>', page, re.DOTALL)
        assert len(shown) == len(re.findall(r'<td class="id">', page)) > 10
        assert all(shown), "each has a beginning"
    entries = AuditEntry.objects.filter(action="message.read", target=f"%DLQ%{group}")
    assert entries.count() == 2
