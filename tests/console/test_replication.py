"""The page of replication, on a master and on its slave; and what else of the console knows of it."""

import json

import pytest

from appliance import runtime
from appliance.api.api import operations
from appliance.console.users.access import ACCESS, MASTERS_WORK
from appliance.engine.window.health import limits
from tests.console.conftest import pretend_running
from tests.support.directories import shared_directory
from tests.support.ha import PlayedSlave
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import start_master, start_slave, wait_same
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def two(request):
    directory = shared_directory(request, "pair")
    master = start_master(directory / "master", reserve_port())
    slave = start_slave(directory / "slave", master.engine.namesrv_address)
    master.put("Orders", b"x" * 1000, b"y")
    wait_same(master, slave)
    wait_for(lambda: slave.window.replication.snapshot().master.end == 1000 + 403, "the slave to ask")
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the slave to have the topic")
    rows = master.window.replication.snapshot
    wait_for(lambda: [one.acknowledged for one in rows().slaves] == [1403], "the master to be told")
    yield master, slave
    slave.stop()
    master.stop()


@pytest.fixture
def master(two):
    pretend_running(two[0].engine)
    yield two[0]
    runtime.set_running(None)


@pytest.fixture
def slave(two):
    pretend_running(two[1].engine)
    yield two[1]
    runtime.set_running(None)


def text_of(client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, address
    return answer.content.decode()


def test_a_master_shows_who_follows_it(client_as, master):
    [row] = master.window.replication.snapshot().slaves
    assert (row.acknowledged, row.behind_bytes, row.behind_ms, row.in_sync) == (1403, 0, 0, True)
    page = text_of(client_as("viewer"), "/replication/")
    assert row.address in page
    assert "in sync" in page
    assert "1\N{NARROW NO-BREAK SPACE}403" in page or "1 403" in page or "1,403" in page
    assert "takes no sends" not in page
    part = text_of(client_as("viewer"), "/replication/now/")
    assert row.address in part
    assert "<html" not in part


def test_a_slave_shows_whom_it_follows_and_how_far_it_is(client_as, slave):
    found = slave.window.replication.snapshot().master
    assert found.following
    assert (found.behind_bytes, found.behind_ms, found.serves_reads) == (0, 0, True)
    page = text_of(client_as("viewer"), "/replication/")
    assert "takes no sends and no changes" in page
    assert found.address in page
    assert found.ha_address in page
    assert f"http://{found.address.partition(':')[0]}" in page, "a way to its console"


def test_pages_of_a_slave_say_so_and_offer_nothing_that_only_the_master_can_do(client_as, slave, two):
    admin = client_as("admin")
    address = slave.window.replication.snapshot().master.address
    for page in ("/", "/topics/", "/topics/Orders/", "/groups/", "/delayed/", "/transactions/", "/messages/"):
        text = text_of(admin, page)
        assert "This broker is a slave" in text, page
        assert address in text, page
        for link in ("/create/topic/", "/create/group/", "/messages/send/", "/edit/", "/delete/", "/messages/import/"):
            assert f'href="{link}' not in text, (page, link)
            assert not any(part.endswith(link) for part in text.split('"') if part.startswith("/topics/")), (page, link)
    pretend_running(two[0].engine)
    text = text_of(admin, "/topics/")
    assert "This broker is a slave" not in text
    assert "/create/topic/" in text
    assert set(MASTERS_WORK) <= set(ACCESS)


def test_whoever_tries_is_told_where_the_master_is(client_as, slave):
    admin = client_as("admin")
    form = {
        "name": "NewOne",
        "kind": "NORMAL",
        "read_queues": 4,
        "write_queues": 4,
        "reserve_hours": 0,
        "step": "apply",
    }
    answer = admin.post("/create/topic/", form)
    assert answer.status_code == 503
    address = slave.window.replication.snapshot().master.address
    assert f"comes from its master at {address}, and is changed there" in answer.content.decode()
    made = admin.post("/api/v1/topics", json.dumps({"name": "NewOne"}), content_type="application/json")
    assert made.status_code == 503
    assert address in made.json()["detail"]


def test_the_api_tells_the_same(client_as, master, two):
    viewer = client_as("viewer")
    told = viewer.get("/api/v1/replication").json()
    assert (told["role"], told["master"]) == ("ASYNC_MASTER", None)
    assert told["slaves"][0]["behind_bytes"] == 0
    pretend_running(two[1].engine)
    told = viewer.get("/api/v1/replication").json()
    assert (told["role"], told["slaves"]) == ("SLAVE", [])
    assert told["master"]["end"] == 1403
    assert any(one.route == "api/v1/replication" for one in operations())


def test_metrics_tell_the_lag(client_as, master, two):
    viewer = client_as("viewer")
    lines = dict(line.rsplit(" ", 1) for line in text_of(viewer, "/metrics").splitlines() if line[0] != "#")
    assert lines["rocketbox_replication_slaves"] == lines["rocketbox_replication_in_sync_slaves"] == "1"
    assert lines["rocketbox_replication_lag_bytes"] == "0"
    address = master.window.replication.snapshot().slaves[0].address
    assert lines[f'rocketbox_slave_lag_bytes{{slave="{address}"}}'] == "0"
    pretend_running(two[1].engine)
    text = text_of(viewer, "/metrics")
    assert "rocketbox_replication_following 1" in text
    name = "rocketmq_broker_commitlog_diff{"
    [line] = [line for line in text.splitlines() if line.startswith(name)]
    assert f'brokerIP="{two[1].engine.broker_address}"' in line
    assert line.endswith(" 0")


def test_a_slave_that_is_gone_or_far_behind_needs_somebody(client_as, master, monkeypatch):
    view = master.window._parts.replication
    monkeypatch.setattr(limits, "GONE_MS", 0)
    monkeypatch.setattr(limits, "LAG_MS", 0)
    needs = lambda: {one.sentence.code for one in view.findings() if one.level}  # noqa: E731
    slow = PlayedSlave(view._server.port)
    slow.report(0)
    wait_for(lambda: len(master.window.replication.snapshot().slaves) == 2, "it follows")
    slow.copy_to(1403)
    # It never says that it has more than nothing.
    wait_for(lambda: "slave_lags" in needs(), "the lag to be told")
    [row] = [one for one in master.window.replication.snapshot().slaves if one.acknowledged == 0]
    assert row.behind_bytes == 1403
    slow.close()
    wait_for(lambda: "slave_gone" in needs(), "the loss to be told")
    [gone] = master.window.replication.snapshot().gone
    assert gone.reason == "it closed the connection"
    page = text_of(client_as("viewer"), "/replication/")
    assert "it closed the connection" in page
    assert [check.level for check in master.window.checks() if check.name == "replication"] == ["warning"]


def test_a_broker_without_slaves_says_how_to_have_one(client_as, broker):
    page = text_of(client_as("viewer"), "/replication/")
    assert "haListenPort" in page
    assert [check for check in broker.checks() if check.name == "replication"] == []


def test_a_sync_master_without_slaves_fails_its_check(client_as, tmp_path):
    alone = start_master(tmp_path / "alone", reserve_port(), broker_role="SYNC_MASTER")
    try:
        pretend_running(alone.engine)
        [check] = [one for one in alone.window.checks() if one.name == "replication"]
        assert (check.level, check.sentence.code) == ("failed", "slaves_missing")
        assert "slaves_missing" in {one.sentence.code for one in alone.window.overview.snapshot().needs}
        page = text_of(client_as("viewer"), "/replication/")
        assert "Sends time out" in page
        assert alone.window.replication.snapshot().waiting.slaves == 1
    finally:
        runtime.set_running(None)
        alone.stop()
