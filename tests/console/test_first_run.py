"""The first run: the link, the wizard's steps, and that nothing of it is left afterwards."""

import re

import pytest
from django.test import Client

from appliance import runtime
from appliance.console.alerts.models import AlertRule
from appliance.console.models import AuditEntry, Setting, User
from appliance.console.sign_in import set_up
from appliance.engine import address_check
from appliance.engine.errors import StartError
from tests.support.audit_chain import first_broken
from tests.support.engine import start_engine

from .conftest import pretend_running

pytestmark = pytest.mark.django_db
NEW = {"username": "ann", "password": "a good long one", "again": "a good long one"}


@pytest.fixture
def new_broker(tmp_path):
    """The window of a broker that has no message yet."""
    engine = start_engine(tmp_path / "broker")
    pretend_running(engine)
    yield engine.window
    runtime.set_running(None)
    engine.stop()


@pytest.fixture
def link():
    return set_up.offer_link()


def test_the_link_leads_through_language_and_administrator_to_the_address(client, engine, link):
    assert client.get(link).status_code == 200
    assert client.post(link, {"language": "zh-hans"}).headers["Location"] == f"{link}administrator/"
    assert "管理员" in client.get(f"{link}administrator/").content.decode()
    assert client.post(f"{link}administrator/", NEW).headers["Location"] == "/setup/address/"
    ann = User.objects.get()
    assert (ann.username, ann.role, ann.may_read_bodies, ann.may_export, ann.language) == (
        "ann", "admin", True, True, "zh-hans",
    )  # fmt: skip
    assert client.get("/").status_code == 200
    assert AuditEntry.objects.get().action == "user.create"


def test_the_browsers_zone_is_offered_and_becomes_the_administrators(client, engine, link):
    assert "data-offer-zone" in client.get(f"{link}administrator/").content.decode()
    refused = client.post(f"{link}administrator/", NEW | {"time_zone": "Mars/Olympus"})
    assert refused.status_code == 422
    assert "There is no time zone Mars/Olympus." in refused.content.decode()
    client.post(f"{link}administrator/", NEW | {"time_zone": "Asia/Shanghai"})
    assert User.objects.get().time_zone == "Asia/Shanghai"


def test_the_link_ends_when_it_was_used(client, engine, link):
    client.post(f"{link}administrator/", NEW)
    for browser in (client, Client()):
        assert browser.get(link).status_code == 404
        assert browser.post(f"{link}administrator/", NEW | {"username": "eve"}).status_code == 404
    assert User.objects.count() == 1


def test_the_link_ends_with_a_restart(client, engine, link):
    newer = set_up.offer_link()
    assert newer != link
    assert client.get(link).status_code == 404
    assert client.get(newer).status_code == 200


def test_a_wrong_secret_finds_nothing(client, engine, link):
    for wrong in ("/setup/x/", link[:-2] + "/", "/setup/%C3%A9/", "/setup/None/"):
        assert client.get(wrong).status_code == 404
        assert client.post(f"{wrong}administrator/", NEW).status_code == 404
    assert not User.objects.exists()


def test_there_is_no_link_once_there_is_an_administrator(people):
    assert set_up.offer_link() is None


@pytest.mark.parametrize(
    "change",
    [{"again": "another one!!"}, {"password": "short", "again": "short"}, {"username": "a b"}, {"username": ""}],
)
def test_a_bad_administrator_is_refused_and_the_link_stays(client, engine, link, change):
    assert client.post(f"{link}administrator/", NEW | change).status_code == 422
    assert not User.objects.exists()
    assert client.get(link).status_code == 200


def test_every_page_leads_to_the_log_while_nobody_is_set_up(client, engine, link):
    assert client.get("/").headers["Location"] == "/login/"
    page = client.get("/login/").content.decode()
    assert "not set up" in page
    assert link not in page
    assert "password" not in page


def test_the_later_steps_need_the_administrator(client, engine, link):
    client.post(f"{link}administrator/", NEW)
    stranger = Client()
    for path in ("/setup/address/", "/setup/message/", "/setup/message/count/"):
        assert stranger.get(path).status_code == 302
        assert client.get(path).status_code == 200


def test_signing_in_again_goes_on_with_the_next_step(client, engine, link):
    client.post(f"{link}administrator/", NEW)
    again = Client()
    assert again.post("/login/", NEW).headers["Location"] == "/setup/address/"


def test_nothing_of_the_wizard_is_left_afterwards(client, engine, link):
    client.post(f"{link}administrator/", NEW)
    assert client.post("/setup/message/").headers["Location"] == "/"
    for path in (link, f"{link}administrator/", "/setup/address/", "/setup/message/", "/setup/message/count/"):
        assert client.get(path).status_code == 404
        assert client.post(path).status_code == 404
        assert Client().get(path).status_code == 404


@pytest.mark.parametrize(
    ("given", "there", "rules"),
    [
        ({"alert": "on"}, [], ["What needs you"]),
        ({}, [], []),
        ({"alert": "on"}, ["of a file"], ["of a file"]),  # definitions that were loaded at the start
    ],
)
def test_a_first_rule_of_alerts_is_offered(client, engine, link, given, there, rules):
    client.post(f"{link}administrator/", NEW)
    page = client.get("/setup/message/").content.decode()
    assert re.search(r'<input type="checkbox" name="alert" checked>', page)
    for name in there:
        AlertRule.objects.create(name=name, figure="lag_minutes", above=5)
    assert client.post("/setup/message/", given).headers["Location"] == "/"
    assert [rule.name for rule in AlertRule.objects.all()] == rules
    if rules and not there:
        (rule,) = AlertRule.objects.all()
        assert (rule.figure, rule.above, rule.severity, rule.is_active) == ("needs", 1.0, "act", True)
        assert AuditEntry.objects.filter(action="alert_rule.create", target="What needs you").exists()


def test_the_counter_turns_green_with_the_first_message_and_stops_asking(client, new_broker, link):
    client.post(f"{link}administrator/", NEW)
    waiting = client.get("/setup/message/count/").content.decode()
    assert "every 1s" in waiting
    assert "chip good" not in waiting
    new_broker.topic_commands.create("first")
    new_broker.sender.send("first", b"hello")
    arrived = client.get("/setup/message/count/").content.decode()
    assert "chip good" in arrived
    assert "hx-get" not in arrived


def test_the_programs_hold_the_running_servers_address(client, engine, link):
    client.post(f"{link}administrator/", NEW)
    engine.namesrv_address = "mq.example.org:19876"
    page = client.get("/setup/message/").content.decode()
    for key, files in (("java", "23"), ("go", "23"), ("python", "12")):
        for file in (*(f"-file-{number}" for number in files), "-shell"):
            text = page.split(f'id="{key}{file}"')[1].split("</pre>")[0]
            assert "mq.example.org:19876" in text


@pytest.mark.parametrize(
    ("bind", "host", "needed"),
    [("127.0.0.1", "10.1.2.3", True), ("0.0.0.0", "10.1.2.3", False), ("127.0.0.1", "127.0.0.1", False)],
)
def test_an_address_that_the_ports_do_not_listen_on_is_named_with_the_way_out(client, serve, link, bind, host, needed):
    serve(bind=bind)
    client.post(f"{link}administrator/", NEW)
    tried = client.get("/setup/address/", {"host": host}).content.decode()
    assert ("--bind 0.0.0.0" in tried) == needed
    client.post("/setup/address/", {"host": host})
    told = client.get("/setup/message/").content.decode()
    assert ("--bind 0.0.0.0" in told) == needed


def test_a_name_without_an_address_is_named_as_such(client, serve, link, monkeypatch):
    serve()
    client.post(f"{link}administrator/", NEW)
    for found, told in (([], True), (["10.1.2.3"], False)):
        monkeypatch.setattr(address_check, "resolved", lambda host, found=found: found)
        page = client.get("/setup/address/", {"host": "mq.example.org"}).content.decode()
        assert ("This machine finds no address for mq.example.org" in page) == told


def test_the_environment_names_the_administrator_only_while_there_is_none(db):
    set_up.create_from_environment({"ADMIN_USER": "root", "ADMIN_PASSWORD": "first password"})
    assert User.objects.get().check_password("first password")
    set_up.create_from_environment({"ADMIN_USER": "root", "ADMIN_PASSWORD": "second password"})
    assert User.objects.get().check_password("first password")
    assert set_up.offer_link() is None
    assert first_broken() is None


def test_a_password_file_is_read_without_its_line_end(tmp_path):
    (tmp_path / "secret").write_text("from the file\n")
    set_up.create_from_environment({"ADMIN_USER": "root", "ADMIN_PASSWORD_FILE": str(tmp_path / "secret")})
    assert User.objects.get().check_password("from the file")
    assert not set_up.is_open()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "ADMIN_PASSWORD or ADMIN_PASSWORD_FILE"),
        ({"ADMIN_PASSWORD": "short"}, "too short"),
        ({"ADMIN_PASSWORD_FILE": "/absent"}, "/absent cannot be read"),
    ],
)
def test_an_incomplete_environment_stops_the_start(environment, said):
    with pytest.raises(StartError, match=said):
        set_up.create_from_environment({"ADMIN_USER": "root", **environment})
    assert not User.objects.exists()


def test_a_saved_step_is_open_after_a_restart_and_done_is_closed(people):
    Setting.objects.update_or_create(key="set-up", defaults={"value": "message"})
    assert set_up.is_open()
    set_up.go_to(set_up.DONE)
    assert not set_up.is_open()
