"""The system pages: about, checks, configuration with preview, log, audit, tokens."""

import html
import logging
import re
from dataclasses import replace

import pytest
from django.urls import reverse

from appliance.console.jobs import runner
from appliance.console.models import ApiToken, AuditEntry
from appliance.console.system import views
from appliance.console.system.option_texts import OPTION_TEXTS
from appliance.console.users.patterns import Names
from appliance.engine import hotpath
from appliance.engine.broker.deleted_unread import DeletedUnread
from appliance.engine.hotpath import pure
from appliance.engine.hotpath.choice import Choice
from appliance.engine.window.options import HOT
from appliance.engine.window.process import system
from tests.console.conftest import age_login

OPTION = "notifyConsumerIdsChangedEnable"


def entry() -> AuditEntry:
    return AuditEntry.objects.first()


def test_about_and_checks_say_what_runs(client_as, broker):
    client = client_as("viewer")
    page = client.get("/system/").content.decode()
    assert broker.system().broker_address in page
    assert broker.system().data_dir in page
    assert "The message log accepts messages." in client.get("/system/checks/").content.decode()


def hot_path_row(client, language: str = "en") -> str:
    """Return the page's text behind "Hot path", as one line."""
    page = client.get("/system/", headers={"Accept-Language": language}).content.decode()
    row = re.search(r"<dt>(?:Hot path|热路径)</dt>\s*<dd>(.*?)</dd>", page, re.DOTALL)
    assert row, page
    return " ".join(re.sub(r"<[^>]*>", "", row.group(1)).split())


def test_about_says_which_twin_of_the_hot_path_runs(client_as, broker, monkeypatch):
    client = client_as("viewer")
    assert hot_path_row(client) == hotpath.CHOICE.text
    monkeypatch.setattr(system, "CHOICE", Choice(pure))
    assert (hot_path_row(client), hot_path_row(client, "zh-hans")) == ("compiled", "已编译")
    for reason, english, chinese in (
        ("pure_asked", "ROCKETBOX_PURE is set", "已设置 ROCKETBOX_PURE"),
        ("pure_not_loaded", "the compiled part cannot be loaded: no <b>", "编译部分无法加载：no <b>"),
    ):
        monkeypatch.setattr(system, "CHOICE", Choice(pure, reason, "no <b>"))
        assert html.unescape(hot_path_row(client)) == f"pure Python ({english})"
        assert html.unescape(hot_path_row(client, "zh-hans")) == f"纯 Python ({chinese})"


def test_about_names_what_retention_deleted_unread_to_those_who_may_see_it(client_as, broker, monkeypatch):
    rows = (
        DeletedUnread("clicks", "events", 0, 0, 1200, 1200, 5), DeletedUnread("clicks", "events", 1, 0, 34, 34, 9),
        DeletedUnread("*", "*", -1, 0, 3, 3, 7), DeletedUnread("audit", "events", 0, 0, 9000, 9000, 6),
    )  # fmt: skip
    part = broker.retention
    monkeypatch.setattr(part, "_deleted_unread", lambda: rows)
    found = client_as("viewer").get("/system/")
    assert found.context["lost"] == [
        ("audit", "events", 9000, 6), ("clicks", "events", 1234, 9), ("*", "*", 3, 7),
    ]  # fmt: skip
    assert 'href="/groups/clicks/"' in found.content.decode()
    assert views._lost(rows, Names((), ("clic*",))) == [("clicks", "events", 1234, 9)]


@pytest.mark.parametrize(("option", "shown"), [("04", "04:00"), ("4; 16", "04:00, 16:00")])
def test_about_says_when_expired_messages_go_as_people_say_times(client_as, broker, monkeypatch, option, shown):
    snapshot = replace(broker.retention.snapshot(), delete_when=option)
    monkeypatch.setattr(broker.retention, "snapshot", lambda: snapshot)
    for language, title in ((None, "Deleted daily at"), ("zh-hans", "每天删除时间")):
        page = client_as("viewer").get("/system/", headers={"Accept-Language": language or "en"}).content.decode()
        assert re.search(rf"<dt>{title}</dt>\s*<dd>\s*{shown}\s*<span", page), page


def test_every_option_is_listed_and_the_filter_filters(client_as, broker):
    client = client_as("viewer")
    assert len(client.get("/system/config/").context["options"]) == len(broker.options.listing().options)
    page = client.get("/system/config/", {"q": "autocreate"}).content.decode()
    assert "autoCreateTopicEnable" in page
    assert "flushDiskType" not in page
    found = client.get("/system/config/", {"q": "a Power Cut loses"}).context["options"]
    assert [option.name for option, _ in found] == ["flushDiskType"], "by what it does"
    assert (
        "flushDiskType"
        in client.get("/system/config/", {"q": "断电会丢失"}, headers={"Accept-Language": "zh-hans"}).content.decode()
    )


def test_each_option_says_what_it_does(client_as, broker):
    told = {option.name for option in broker.options.listing().options if option.in_effect}
    assert set(OPTION_TEXTS) == told
    page = client_as("admin").get("/system/config/change/").content.decode()
    assert OPTION_TEXTS["fileReservedTime"] in page


def test_a_hot_option_is_previewed_changed_and_audited(client_as, broker):
    client = client_as("admin")
    try:
        preview = client.post("/system/config/change/", {OPTION: "false"}).content.decode()
        assert OPTION in preview
        assert value_of(broker) == "true"
        assert client.post("/system/config/change/", {OPTION: "false", "step": "apply"}).status_code == 302
        assert value_of(broker) == "false"
        assert (entry().action, entry().before, entry().after) == (
            "config.change",
            {OPTION: "true"},
            {OPTION: "false"},
        )
    finally:
        broker.option_commands.change({OPTION: None})


def value_of(broker) -> str:
    return next(option.value for option in broker.options.listing().options if option.name == OPTION)


def test_a_wrong_value_and_a_stale_revision_change_nothing(client_as, broker):
    client = client_as("admin")
    wrong = client.post("/system/config/change/", {"shortPollingTimeMills": "soon", "step": "apply"})
    assert wrong.status_code == 422
    stale = client.post("/system/config/change/", {OPTION: "false", "revision": "0" * 16, "step": "apply"})
    assert stale.status_code == 409
    assert value_of(broker) == "true"


def test_access_control_is_switched_by_who_gave_the_password_lately(client_as, broker, monkeypatch):
    monkeypatch.setattr(broker.options, "_hot", HOT)
    client = client_as("admin")
    wanted = {"accessControl": "enforce"}
    assert "accessControl" in client.post("/system/config/change/", wanted).content.decode()
    age_login(client)
    for step in ({}, {"step": "apply"}):
        response = client.post("/system/config/change/", wanted | step)
        assert response.headers["Location"].startswith(reverse("confirm_password"))
        assert client.post("/system/config/change/", {OPTION: "false"}).status_code == 200
    assert broker.options.config.broker.access_control == "off"


def test_an_operator_changes_no_configuration(client_as, broker):
    client = client_as("operator")
    assert client.post("/system/config/change/", {OPTION: "false", "step": "apply"}).status_code == 403
    assert "/system/config/change/" not in client.get("/system/config/").content.decode()
    assert value_of(broker) == "true"


def test_the_log_is_for_operators_and_escaped(client_as, broker):
    logging.getLogger("appliance.test").warning("a line with <script>%s</script>", "x")
    page = client_as("operator").get("/system/log/", {"q": "a line with"}).content.decode()
    assert "a line with &lt;script&gt;" in page
    assert client_as("viewer").get("/system/log/").status_code == 403


def checked(client) -> str:
    """The page of the job that checked the audit log."""
    started = client.post("/system/audit/check/")
    assert runner.run_waiting() == 1
    return client.get(started.headers["Location"]).content.decode()


def test_the_audit_log_shows_who_did_what_and_checks_its_seals(client_as, broker, topic):
    client_as("operator").post("/messages/send/", {"topic": topic, "body": "x"})
    client = client_as("admin")
    page = client.get("/system/audit/", {"q": topic}).content.decode()
    assert "message.send" in page
    assert "the-operator" in page
    assert "The audit log is whole" in checked(client)
    AuditEntry.objects.filter(action="message.send").update(actor="somebody-else")
    assert "does not match the one before it" in checked(client)
    rows = client.get("/system/audit/", {"q": topic, "format": "csv"}).content.decode().splitlines()
    assert len(rows) == 2
    assert client_as("operator").get("/system/audit/").status_code == 403


def test_a_token_is_shown_once_and_never_more_than_its_owner(client_as, engine):
    client = client_as("operator")
    form = {"name": "ci", "role": "operator", "topic_pattern": "orders-*", "days": "30"}
    answer = client.post("/system/tokens/new/", form | {"may_export": "on"}, follow=True)
    page = answer.content.decode()
    secret = re.search(r"rbx_[\w-]+", page).group()
    token = ApiToken.objects.get()
    assert (token.role, token.may_export, token.topic_pattern, token.group_pattern) == (
        "operator",
        False,
        "orders-*",
        "*",
    )
    assert entry().action == "token.create"
    assert secret not in str(entry().after)
    assert secret not in client.get("/system/tokens/").content.decode()
    address = answer.redirect_chain[0][0]
    assert secret not in client.get(address).content.decode(), "loading the page again shows it no more"
    assert ApiToken.objects.count() == 1, "and makes no other"
    other = client_as("admin")
    again = client.post("/system/tokens/new/", form | {"name": "two"}).headers["Location"]
    assert "rbx_" not in other.get(again).content.decode(), "the secret is shown to who made it"
    assert client.post("/system/tokens/new/", form | {"role": "admin"}).status_code == 422


@pytest.mark.parametrize(("role", "status"), [("operator", 302), ("admin", 302), ("viewer", 404)])
def test_a_token_is_revoked_by_its_owner_or_an_administrator(client_as, people, engine, role, status):
    from appliance.console.users import tokens

    token, secret = tokens.create(people["operator"], "ci", "operator")
    assert client_as(role).post(f"/system/tokens/{token.pk}/revoke/").status_code == status
    assert (tokens.authenticate(secret) is None) == (status == 302)


def test_what_has_expired_is_deleted_by_administrators_who_said_who_they_are(client_as, broker):
    from tests.console.conftest import age_login

    operator = client_as("operator")
    assert "system/clean" not in operator.get("/system/").content.decode()
    assert operator.post("/system/clean/", {"what": "log"}).status_code == 403
    admin = client_as("admin")
    assert "Kept for" in admin.get("/system/").content.decode()
    assert admin.post("/system/clean/", {"what": "log"}).headers["Location"] == "/system/"
    entry = AuditEntry.objects.first()
    assert (entry.action, entry.target, entry.result) == ("system.clean", "log", "done")
    assert admin.post("/system/clean/", {"what": "everything"}).status_code == 400
    assert admin.get("/system/clean/").status_code == 405
    age_login(admin)
    assert admin.post("/system/clean/", {"what": "log"}).headers["Location"].startswith("/confirm/")
