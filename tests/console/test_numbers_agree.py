"""One scene, and each of its numbers wherever it is shown: pages and their CSV, the API, commands, the
requests of mqadmin, /metrics, the history and the reports' inputs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from django.test import Client

from appliance import runtime
from appliance.commands.remote import run
from appliance.console.users import tokens
from appliance.engine.disk import DiskUsage
from appliance.engine.window.health import disk_room
from appliance.engine.window.waiting.snapshots import WaitingPlace
from tests.console.conftest import pretend_running
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db

GIB = 1 << 30
#: Group -> (messages behind, retries ready, retries that wait at a level, dead letters). `ghost` is known by its offset
#: only, `fresh` has retries but no offset in its retry topic.
GROUPS = {"billing": (4, 2, 1, 3), "fresh": (0, 2, 0, 0), "ghost": (2, 0, 0, 0)}
ORDERS = 5
DELAYED = 2 + 1  # with the retry that waits


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    found = RunningEngine(shared_directory(request, "numbers"))
    found.put("Orders", b"a", b"b", b"c")
    found.put("Orders", b"d", b"e", queue=1)
    for group in ("billing", "fresh"):
        found.window.group_commands.create(group)
    found.commit("billing", "Orders", 0, 1)
    found.commit("billing", "Orders", 1, 0)
    found.put("%RETRY%billing", b"1", b"2", b"3", j=1)
    found.commit("billing", "%RETRY%billing", 0, 1)
    found.put("%RETRY%billing", b"later", properties="DELAY\x0117\x02", j=1)
    found.put("%DLQ%billing", b"1", b"2", b"3", c="TBW102", d=1)
    found.put("%DLQ%gone", b"1", c="TBW102", d=1)
    for queue, offset in ((0, 3), (1, 2)):
        found.commit("fresh", "Orders", queue, offset)
    found.put("%RETRY%fresh", b"1", b"2", j=1)
    for queue, offset in ((0, 1), (1, 2)):
        found.engine.broker.offsets.commit("ghost", "Orders", queue, offset)  # as of a group that was deleted
    found.put("Slow", b"1", b"2", b"3", properties="DELAY\x0118\x02")
    wait_for(lambda: len(found.window.waiting.page(topic="Slow").rows) == 3, "three messages wait")
    one = found.window.waiting.page(topic="Slow").rows[0]
    found.window.waiting_commands.run("drop", [WaitingPlace(one.level, one.queue_offset)])
    half = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01%032X\x02"
    found.put("Orders", b"half", queue=2, properties=half % 1, f=4)
    found.join("one@10.0.0.9", "watchers", topic="Orders")
    found.join("two@10.0.0.9", "watchers", topic="Orders")
    found.sample()
    found.sample()
    yield found
    found.stop()


class Voices:
    """The places that show a number."""

    def __init__(self, scene: RunningEngine, browser: Client, secret: str, capsys: Any) -> None:
        self.scene = scene
        self.browser = browser
        self.secret = secret
        self.capsys = capsys
        lines = self.browser.get("/metrics").content.decode().splitlines()
        self.metrics = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def page(self, address: str) -> str:
        response = self.browser.get(address)
        assert response.status_code == 200, response.content
        return " ".join(response.content.decode().split()) if "csv" not in address else response.content.decode()

    def rows(self, address: str) -> list[dict[str, str]]:
        return list(csv.DictReader(self.page(address).lstrip("\ufeff").splitlines()))

    def api(self, path: str, method: str = "GET", query: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.secret}"}
        response = Client().generic(method, f"/api/v1{path}", headers=headers, query_params=query or {})
        assert response.status_code == 200, response.content
        return response.json()

    def command(self, *words: str) -> Any:
        self.capsys.readouterr()
        assert run.run(words[0], [*words[1:], "--json"]) == 0
        return json.loads(self.capsys.readouterr().out)

    def wire(self, code: int, **fields: str) -> Any:
        answer = self.scene._ours().ask(code, fields)
        assert answer.code == 0, answer
        # mqadmin's JSON has objects as keys.
        return re.sub(
            rb'(\{"brokerName[^}]*\}):', lambda found: json.dumps(found[1].decode()).encode() + b":", answer.body
        )

    def behind_on_the_wire(self, group: str) -> dict[str, int]:
        """Return topic -> broker's minus consumer's offset, as `consumerProgress` prints it."""
        table = msgspec.json.decode(self.wire(208, consumerGroup=group))["offsetTable"]
        found: dict[str, int] = {}
        for queue, one in table.items():
            topic = json.loads(queue)["topic"]
            found[topic] = found.get(topic, 0) + one["brokerOffset"] - one["consumerOffset"]
        return found

    def measured(self) -> dict[tuple[str, str], float | None]:
        """Return what the history keeps."""
        found = {}
        for some in self.scene.window.measurements.take(30):
            found |= {(one.name, one.label): one.value for one in some}
        return found

    def metric(self, name: str, *labels: str) -> float:
        found = [
            value
            for key, value in self.metrics.items()
            if key.startswith(name) and all(label in key for label in labels)
        ]
        return sum(map(float, found))


@pytest.fixture
def voices(scene, client_as, people, monkeypatch, capsys) -> Iterator[Voices]:
    usage = DiskUsage(777 * GIB, 223 * GIB)
    monkeypatch.setattr(scene.engine.broker.store.disk, "usage", lambda path: usage, raising=False)
    monkeypatch.setattr(disk_room, "disk_usage", lambda path: usage)
    scene.engine.broker.store.cleaner.look()
    pretend_running(scene.engine)
    _, secret = tokens.create(people["admin"], "a token", "admin")
    found = Voices(scene, client_as("admin"), secret, capsys)

    class Server:
        def ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
            return found.api(path, method, query)

    @contextmanager
    def server(*_: Any) -> Iterator[Server]:
        yield Server()

    monkeypatch.setattr(run, "server", server)
    yield found
    runtime.set_running(None)


def said(**voices: Callable[[], Any] | Any) -> dict[str, int]:
    return {name: int(value) for name, value in voices.items()}


def agree(expected: int, **voices: Any) -> None:
    assert said(**voices) == dict.fromkeys(voices, expected)


@pytest.mark.parametrize("group", GROUPS)
def test_how_far_a_group_is_behind(voices, group):
    behind, ready, _, _ = GROUPS[group]
    (row,) = voices.rows(f"/groups/?q={group}&format=csv")
    page = voices.page(f"/groups/{group}/")
    queues = voices.rows(f"/groups/{group}/?format=csv")
    wire = voices.behind_on_the_wire(group)
    (listed,) = [one for one in voices.api("/groups", query={"q": group})["items"] if one["name"] == group]
    (first_page,) = [one for one in voices.api("/broker")["behind"] if one["group"] == group]
    (report,) = [one for one in voices.scene.window.report_inputs.take().groups if one.name == group]
    agree(
        behind,
        list=row["lag"],
        page=re.search(r"<span class=\"soft\">Behind</span> <b>(\d+)</b>", page)[1],
        queues=sum(int(one["lag"]) for one in queues if not one["topic"].startswith("%RETRY%")),
        topic_page=next(one["lag"] for one in voices.api("/topics/Orders/groups")["items"] if one["group"] == group),
        api_list=listed["lag"],
        api=voices.api(f"/groups/{group}")["lag"],
        overview=first_page["lag"],
        command=voices.command("group", "show", group)["lag"],
        mqadmin=sum(count for topic, count in wire.items() if not topic.startswith("%RETRY%")),
        metrics=voices.metric("rocketmq_group_diff", f'group="{group}"'),
        lag_messages=voices.metric("rocketmq_consumer_lag_messages", f'consumer_group="{group}"'),
        history=voices.measured()["group_lag", group],
        report=report.lag,
    )
    # A retry topic is in mqadmin's sum as soon as the group has committed there.
    total = behind + (ready if group != "fresh" else 0)
    assert sum(wire.values()) == total


@pytest.mark.parametrize("group", GROUPS)
def test_how_many_retries_are_ready(voices, group):
    _, ready, waiting, _ = GROUPS[group]
    (row,) = voices.rows(f"/groups/?q={group}&format=csv")
    page = voices.page(f"/groups/{group}/")
    queues = voices.rows(f"/groups/{group}/?format=csv")
    shown = re.search(r"and (\d+) retr(?:y|ies) that", page)
    agree(
        ready,
        list=row["retries_ready"],
        page=shown[1] if shown else 0,
        queues=sum(int(one["lag"]) for one in queues if one["topic"].startswith("%RETRY%")),
        api=voices.api(f"/groups/{group}")["retries_ready"],
        command=voices.command("group", "show", group)["retries_ready"],
        metrics=voices.metric("rocketmq_group_retrydiff", f'group="{group}"'),
        history=voices.measured()["group_retries", group],
    )
    if group != "ghost":  # nothing configures it, so it has no ladder
        retries = voices.page(f"/groups/{group}/retries/")
        agree(
            ready,
            page=re.search(r"(\d+) (?:is|are) ready for the consumers", retries)[1],
            api=voices.api(f"/groups/{group}/retries")["ready"],
            command=voices.command("retry", "list", group)["ready"],
        )
    if group == "billing":
        agree(ready, mqadmin=voices.behind_on_the_wire(group)["%RETRY%billing"])
    agree(
        ready + waiting,
        list=row["retries"],
        tab=re.search(r">Retries <b>(\d+)</b>", page)[1],
        api=voices.api(f"/groups/{group}")["retries"],
    )


def test_dead_letters_of_groups_that_are_there_and_that_are_gone(voices):
    letters = GROUPS["billing"][3]
    (row,) = voices.rows("/groups/?q=billing&format=csv")
    agree(
        letters,
        list=row["dead_letters"],
        tab=re.search(r">Dead letters <b>(\d+)</b>", voices.page("/groups/billing/"))[1],
        api=voices.api("/groups/billing")["dead_letters"],
        letters=next(one["count"] for one in voices.api("/dead-letters")["items"] if one["group"] == "billing"),
        metrics=voices.metric("rocketmq_group_dlqdiff", 'group="billing"'),
        history=voices.measured()["group_dead_letters", "billing"],
    )
    needs = [need for need in voices.api("/broker")["needs"] if need["kind"] == "dead_letters"]
    assert sorted(need["name"] for need in needs) == ["billing", "gone"]
    agree(
        letters + 1,
        list=sum(one["count"] for one in voices.api("/dead-letters")["items"]),
        history=voices.measured()["dead_letters", ""],
    )


def test_what_a_topic_holds(voices):
    (row,) = voices.rows("/topics/?q=Orders&format=csv")
    status = msgspec.json.decode(voices.wire(202, topic="Orders"))["offsetTable"].values()
    agree(
        ORDERS,
        list=row["messages"],
        api=voices.api("/topics/Orders/stats")["messages"],
        command=voices.command("topic", "stats", "Orders")["messages"],
        mqadmin=sum(one["maxOffset"] - one["minOffset"] for one in status),
        metrics=voices.metric("rocketmq_producer_offset", 'topic="Orders"'),
        history=voices.measured()["topic_messages", "Orders"],
    )


def test_what_waits_without_what_was_dropped(voices):
    agree(
        DELAYED,
        levels=sum(one.waiting for one in voices.scene.window.waiting.levels()),
        list=len(voices.api("/delayed")["items"]),
        pending=voices.api("/delayed")["pending"],
        metrics=voices.metric("rocketbox_delayed_messages_waiting"),
        history=voices.measured()["delayed_messages", ""],
    )


def test_transactions_that_are_open(voices):
    agree(
        1,
        counts=voices.api("/transactions")["open"],
        list=len(voices.api("/transactions/open")["items"]),
        command=len(voices.command("transaction", "list")["items"]),
        metrics=voices.metric("rocketmq_half_messages"),
        history=voices.measured()["half_messages", ""],
    )


def test_members_of_a_group(voices):
    (row,) = voices.rows("/groups/?q=watchers&format=csv")
    agree(
        2,
        list=row["clients"],
        tab=re.search(r">\s*Clients <b>(\d+)</b>", voices.page("/groups/watchers/"))[1],
        api=voices.api("/groups/watchers")["clients"],
        members=len(voices.api("/groups/watchers/clients")["items"]),
        clients=len(voices.api("/clients")["items"]),
        overview=voices.api("/broker")["consumer_clients"],
        topic_page=next(
            one["clients"] for one in voices.api("/topics/Orders/groups")["items"] if one["group"] == "watchers"
        ),
        mqadmin=len(msgspec.json.decode(voices.wire(38, consumerGroup="watchers"))["consumerIdList"]),
        metrics=voices.metric("rocketmq_consumer_connections", 'consumer_group="watchers"'),
    )


def test_a_disk_has_one_size(voices):
    system, info = voices.api("/system"), msgspec.json.decode(voices.wire(28))["table"]
    report = voices.scene.window.report_inputs.take()
    assert info["commitLogDirCapacity"] == "Total : 1000.0 GiB, Free : 223.0 GiB."
    assert re.search(r"223\.0 GiB .{0,40}1000\.0 GiB", voices.page("/system/"))
    agree(1000 * GIB, api=system["disk_total_bytes"], report=report.disk_total)
    agree(
        223 * GIB,
        api=system["disk_free_bytes"],
        report=report.disk_free,
        overview=voices.api("/broker")["disk_free_bytes"],
    )
    shares = (
        voices.api("/broker")["disk_used_percent"] / 100,
        float(info["commitLogDiskRatio"]),
        voices.metric("rocketbox_disk_used_ratio"),
        voices.measured()["disk_used_percent", ""] / 100,
    )
    assert shares == pytest.approx((0.777,) * 4)
