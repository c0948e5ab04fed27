"""Alerts as people use them: channels keep their secrets, rules are tried and saved, silences end."""

import json
import re

import pytest
from django.utils.html import escape

from appliance.console.alerts import forms
from appliance.console.alerts.book import Judge, Teller
from appliance.console.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence
from appliance.console.models import AuditEntry, now_ms
from tests.console.conftest import age_login
from tests.support.receivers import http_receiver

pytestmark = pytest.mark.django_db
RULE = {
    "name": "slow", "figure": "lag_minutes", "pattern": "orders-*", "above": "10", "for_minutes": "0",
    "severity": "act", "again_after_minutes": "0", "is_active": "on",
}  # fmt: skip
HOSTILE = "<script>alert(1)</script>\u202e'\"&"


@pytest.fixture
def admin(client_as, engine):
    return client_as("admin")


@pytest.fixture
def operator(client_as, engine):
    return client_as("operator")


def html(response):
    return response.content.decode()


def test_after_the_first_channel_a_rule_about_all_needs_is_offered_and_saved_with_it(admin):
    form = html(admin.get("/alerts/channels/new/"))
    assert "--public-url" in form
    made = {"name": "ops", "kind": "webhook", "language": "en", "address": "http://127.0.0.1:1/"}
    page = html(admin.post("/alerts/channels/new/", made, follow=True))
    channel = AlertChannel.objects.get()
    offered = f"/alerts/rules/new/?figure=needs&amp;channel={channel.pk}"
    assert offered in page
    rule = html(admin.get(offered.replace("&amp;", "&")))
    assert re.search(r'<option value="needs" selected>', rule)
    assert re.search(rf'name="channels" value="{channel.pk}"[^>]* checked', rule)
    assert 'value="What needs you"' in rule
    values = RULE | {"name": "What needs you", "figure": "needs", "above": "0", "channels": [channel.pk]}
    assert "Anything that needs you" in html(admin.post("/alerts/rules/new/", values, follow=True))
    assert offered not in html(admin.get("/alerts/channels/"))
    tried = html(admin.post("/alerts/rules/new/", values | {"name": "other", "try": "yes"}))
    assert "Nothing was measured that this rule is about" in tried


def test_a_channel_never_shows_its_address_or_secret_again(admin):
    with http_receiver() as receiver:
        secret = {"address": receiver.url("/services/T000/verysecret"), "secret": "hush-hush"}
        made = admin.post("/alerts/channels/new/", {"name": "ops", "kind": "webhook", "language": "en", **secret})
        assert made.status_code == 302
        channel = AlertChannel.objects.get()
        assert admin.post(f"/alerts/channels/{channel.pk}/test/").status_code == 302
        assert receiver.received[0].path == "/services/T000/verysecret"
        shown = html(admin.get("/alerts/channels/")) + html(admin.get(f"/alerts/channels/{channel.pk}/"))
        shown += admin.get("/api/v1/alert-channels").content.decode()
        assert "ops" in shown
        assert "took the test" in shown
        assert "verysecret" not in shown
        assert "hush-hush" not in shown
        noted = str([(one.before, one.after, one.target) for one in AuditEntry.objects.all()])
        assert "verysecret" not in noted
        assert "hush-hush" not in noted

        kept = {"name": "ops2", "kind": "webhook", "language": "zh-hans", "address": "", "secret": ""}
        assert admin.post(f"/alerts/channels/{channel.pk}/", kept).status_code == 302
        channel.refresh_from_db()
        assert (channel.name, channel.secret) == ("ops2", "hush-hush")
        assert channel.address.endswith("verysecret")


def test_a_new_address_takes_the_old_secret_away(admin):
    channel = AlertChannel.objects.create(name="a", kind="webhook", address="https://one.example/", secret="s")
    other = {"name": "a", "kind": "webhook", "language": "en", "address": "https://two.example/", "secret": ""}
    assert admin.post(f"/alerts/channels/{channel.pk}/", other).status_code == 302
    channel.refresh_from_db()
    assert (channel.address, channel.secret) == ("https://two.example/", "")


MAIL = {
    "name": "m", "kind": "mail", "language": "en", "host": "mail.example.org", "port": "587", "security": "starttls",
    "sender": "box@example.org", "recipients": "a@example.org, b@example.org", "user": "box", "secret": "pw",
}  # fmt: skip


def test_a_channel_by_mail(admin):
    assert admin.post("/alerts/channels/new/", MAIL).status_code == 302
    channel = AlertChannel.objects.get()
    assert channel.mail["recipients"] == ["a@example.org", "b@example.org"]
    assert "a@example.org, b@example.org" in html(admin.get(f"/alerts/channels/{channel.pk}/"))


@pytest.mark.parametrize("number", ["9" * 23, str(1 << 63), "-1", "x", "\x00", ""])
def test_a_channel_that_does_not_exist_is_refused(operator, number):
    """SQLite cannot be asked for a number of more than 64 bits."""
    rule = {
        "name": "a", "figure": "lag_minutes", "pattern": "*", "above": "1", "for_minutes": "0", "severity": "watch",
        "again_after_minutes": "0", "channels": number,
    }  # fmt: skip
    assert operator.post("/alerts/rules/new/", rule).status_code == 422
    assert not AlertRule.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "slack", "address": ""},
        {"kind": "slack", "address": "ftp://x/"},
        {"kind": "slack", "address": "https://"},
        {"kind": "slack", "address": "https://x/\x00"},
        {"kind": "pigeon"},
        {"host": ""},
        {"recipients": ""},
        {"recipients": "nobody"},
        {"sender": "no address\r\nBcc: x@example.org"},
        {"security": "none"},
        {"port": "0"},
        {"language": "tlh"},
        {"name": ""},
    ],
)
def test_a_channel_that_cannot_work_is_refused(admin, wrong):
    response = admin.post("/alerts/channels/new/", MAIL | wrong)
    assert response.status_code == 422
    assert 'class="error"' in html(response)
    assert not AlertChannel.objects.exists()


def test_channels_need_a_recent_password_and_an_administrator(admin, operator):
    assert operator.get("/alerts/channels/").status_code == 403
    age_login(admin)
    assert admin.get("/alerts/channels/new/").status_code == 302


def test_a_rule_is_made_changed_and_deleted(operator):
    channel = AlertChannel.objects.create(name="ops", kind="webhook", address="http://127.0.0.1:1/")
    assert operator.post("/alerts/rules/new/", RULE | {"channels": [channel.pk]}).status_code == 302
    rule = AlertRule.objects.get()
    assert list(rule.channels.all()) == [channel]
    assert "above 10 minutes" in html(operator.get("/alerts/rules/"))
    Judge(Teller("prod", "")).look({"group_lag_ms": {"orders-a": 11 * 60_000}}, now_ms())
    assert "Group orders-a is 11 minutes behind (limit 10)" in html(operator.get("/alerts/"))

    assert operator.post(f"/alerts/rules/{rule.pk}/", RULE | {"above": "20"}).status_code == 302
    assert Alert.objects.get().ended_by == "changed"
    assert operator.get(f"/alerts/rules/{rule.pk}/delete/").status_code == 200
    assert operator.post(f"/alerts/rules/{rule.pk}/delete/").status_code == 302
    assert not AlertRule.objects.exists()
    assert "Group orders-a" in html(operator.get("/alerts/"))
    actions = ["alert_rule.create", "alert_rule.change", "alert_rule.delete"]
    assert [one.action for one in AuditEntry.objects.order_by("id")] == actions


def test_a_new_name_alone_ends_no_alert(operator):
    operator.post("/alerts/rules/new/", RULE)
    Judge(Teller("prod", "")).look({"group_lag_ms": {"orders-a": 11 * 60_000}}, now_ms())
    operator.post(f"/alerts/rules/{AlertRule.objects.get().pk}/", RULE | {"name": "slower", "severity": "watch"})
    assert Alert.objects.get().ended_ms is None


def test_trying_a_rule_saves_nothing(operator):
    response = operator.post("/alerts/rules/new/", RULE | {"try": "yes"})
    assert response.status_code == 200
    assert "Nothing was measured that this rule is about" in html(response)
    assert not AlertRule.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"figure": "x"}, {"above": "-1"}, {"above": "nan"}, {"above": "inf"}, {"for_minutes": "-1"},
     {"for_minutes": "99999"}, {"severity": "panic"}, {"channels": ["99"]}, {"pattern": ""}],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(operator, wrong):
    assert operator.post("/alerts/rules/new/", RULE | wrong).status_code == 422
    assert not AlertRule.objects.exists()


def test_a_silence_stands_on_the_page_until_it_is_ended(operator):
    assert operator.post("/alerts/silences/new/", {"pattern": "*", "hours": "2", "reason": HOSTILE}).status_code == 302
    page = html(operator.get("/alerts/"))
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    silence = AlertSilence.objects.get()
    assert operator.post(f"/alerts/silences/{silence.pk}/end/").status_code == 302
    assert "Silences" not in html(operator.get("/alerts/"))


def test_names_of_groups_and_answers_of_receivers_are_only_text(operator):
    operator.post("/alerts/rules/new/", RULE | {"pattern": "*"})
    rule = AlertRule.objects.get()
    rule.channels.add(AlertChannel.objects.create(name=HOSTILE[:64], kind="webhook", address="http://127.0.0.1:1/"))
    Judge(Teller("prod", "")).look({"group_lag_ms": {HOSTILE: 11 * 60_000}}, now_ms())
    AlertDelivery.objects.update(why=HOSTILE, state="failed", tries=5)
    for path in ("/alerts/", f"/alerts/{Alert.objects.get().pk}/", "/alerts/rules/"):
        page = html(operator.get(path))
        assert "<script>alert" not in page
        assert escape(HOSTILE) in page


def test_the_page_with_many_alerts_asks_few_questions(operator, django_assert_max_num_queries):
    operator.post("/alerts/rules/new/", RULE | {"pattern": "*"})
    judge = Judge(Teller("prod", ""))
    judge.look({"group_lag_ms": {f"g{number}": 11 * 60_000 for number in range(300)}}, now_ms())
    with django_assert_max_num_queries(25):
        assert html(operator.get("/alerts/")).count("minutes behind") == 300
    judge.look({"group_lag_ms": {f"g{number}": 0 for number in range(300)}}, now_ms())
    page = html(operator.get("/alerts/"))
    assert page.count("minutes behind") == 50
    assert "?page=2" in page


def test_the_digest_follows_a_channel_to_its_new_name_and_no_further_than_its_end(admin):
    for name in ("ops", "night"):
        AlertChannel.objects.create(name=name, kind="webhook", address="https://one.example/")
    settings = "/api/v1/reports/settings"

    def change(**values):
        return admin.patch(settings, json.dumps(values), content_type="application/json")

    assert change(digest_channels=["ops", "night"]).status_code == 200
    renamed = {"name": "day", "kind": "webhook", "language": "en", "address": "", "secret": ""}
    assert admin.post(f"/alerts/channels/{AlertChannel.objects.get(name='ops').pk}/", renamed).status_code == 302
    assert admin.get(settings).json()["digest_channels"] == ["day", "night"]
    assert admin.post(f"/alerts/channels/{AlertChannel.objects.get(name='night').pk}/delete/").status_code == 302
    assert admin.get(settings).json()["digest_channels"] == ["day"]
    assert change(keep_days=9).status_code == 200, "what is gone hinders no other setting"


def test_there_are_so_many_rules_channels_and_silences_and_no_more(admin, monkeypatch):
    for name in ("MOST_RULES", "MOST_CHANNELS", "MOST_SILENCES"):
        monkeypatch.setattr(forms, name, 1)
    silence = {"pattern": "*", "hours": "2", "reason": "r"}
    channel = {"name": "ops", "kind": "webhook", "address": "http://127.0.0.1:1/", "language": "en", "secret": ""}
    for address, values in (("rules", RULE), ("channels", channel), ("silences", silence)):
        assert admin.post(f"/alerts/{address}/new/", values).status_code == 302
        more = admin.post(f"/alerts/{address}/new/", values | {"name": "another"})
        assert more.status_code == 422
        assert "There are 1 already" in html(more)
    assert admin.post(f"/alerts/rules/{AlertRule.objects.get().pk}/", RULE | {"above": "20"}).status_code == 302
    AlertSilence.objects.update(until_ms=1)
    assert admin.post("/alerts/silences/new/", silence).status_code == 302
