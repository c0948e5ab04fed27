"""From looks at figures to notices: what is written down, told, silenced, told late, and kept across a restart."""

from types import SimpleNamespace

import pytest
from django.db import DatabaseError

from appliance.console.alerts import book, watch
from appliance.console.alerts.book import Judge, Teller, dry_run, end_alerts
from appliance.console.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence
from appliance.console.alerts.watch import AlertSender
from appliance.console.health import needs as needs_
from appliance.console.health.needs import Mute
from appliance.console.templatetags.pages import translated
from appliance.engine.errors import Unavailable
from appliance.engine.window.sentences import say
from appliance.engine.window.snapshots import Need
from tests.support.clock import FakeClock
from tests.support.receivers import http_receiver

pytestmark = pytest.mark.django_db

TELLER = Teller("prod", "http://box")
MINUTE = 60_000
T0 = 1_700_000_000_000


@pytest.fixture
def channel():
    return AlertChannel.objects.create(name="chat", kind="webhook", address="http://127.0.0.1:1/")


@pytest.fixture
def rule(channel):
    made = AlertRule.objects.create(name="slow", figure="lag_minutes", pattern="orders-*", above=10, for_minutes=0)
    made.channels.add(channel)
    return made


def lags(**minutes):
    return {"group_lag_ms": {f"orders-{name}": value * MINUTE for name, value in minutes.items()}}


def told():
    return [(one.event, one.state, one.notice["subject"]) for one in AlertDelivery.objects.order_by("id")]


def test_an_alert_is_told_once_and_told_over(rule):
    judge = Judge(TELLER)
    for minute in range(3):
        judge.look(lags(a=11 + minute, b=3), T0 + minute * MINUTE)
    assert told() == [("fired", "waiting", "orders-a")]
    (alert,) = Alert.objects.all()
    assert (alert.subject, alert.worst, alert.value, alert.ended_ms) == ("orders-a", 13, 13, None)
    judge.look(lags(a=9), T0 + 3 * MINUTE)
    assert told()[1:] == [("resolved", "waiting", "orders-a")]
    alert.refresh_from_db()
    assert (alert.ended_ms, alert.ended_by, alert.worst) == (T0 + 3 * MINUTE, "below", 13)
    notice = AlertDelivery.objects.order_by("id").first().notice
    assert notice["title"] == "[prod] Alert: Group orders-a is 11 minutes behind (limit 10)"
    assert notice["link"] == "http://box/groups/orders-a/"
    assert notice["since"] == "2023-11-14T22:13:20.000Z"


def needs(*found):
    """found: (level, kind, name, sentence)."""
    return lambda: [Need(*one) for one in found]


BEHIND = ("watch", "group", "billing", say("nobody_consumes", group="billing", lag=7))
WORSE = ("act", "group", "billing", say("falls_behind", group="billing", lag=9, late_span=60_000, came=2.0, went=1.0))
DISK = ("act", "system", "disk", say("disk_full", used_percent=91.0, limit_percent=90))


@pytest.fixture
def all_needs(channel):
    made = AlertRule.objects.create(name="all", figure="needs", above=0, for_minutes=0)
    made.channels.add(channel)
    return made


def titles():
    return [(one.event, one.state, one.notice["title"]) for one in AlertDelivery.objects.order_by("id")]


def test_a_need_is_told_in_its_own_words_again_when_it_gets_worse_and_when_it_is_over(all_needs):
    judge = Judge(TELLER, needs(BEHIND))
    judge.look({}, T0)
    judge.look({}, T0 + MINUTE)
    assert titles() == [("fired", "waiting", f"[prod] Alert: {translated(BEHIND[3])}")]
    (alert,) = Alert.objects.all()
    assert (alert.subject, alert.severity) == ("lag:group:billing", "watch")
    assert AlertDelivery.objects.get().notice["link"] == "http://box/groups/billing/"
    judge.needs = needs(WORSE, BEHIND)
    judge.look({}, T0 + 2 * MINUTE)
    assert titles()[1:] == [("fired", "waiting", f"[prod] Alert: {translated(WORSE[3])}")]
    alert.refresh_from_db()
    assert alert.severity == "act"

    def away():
        raise Unavailable("no broker")

    judge.needs = away
    judge.look({}, T0 + 3 * MINUTE)
    assert len(titles()) == 2, "what is unknown is not over"
    judge.needs = needs()
    judge.look({}, T0 + 4 * MINUTE)
    assert titles()[2:] == [("resolved", "waiting", f"[prod] Over: {translated(WORSE[3])}")]


def test_one_is_told_of_what_is_urgent_or_of_some_groups_only(all_needs):
    AlertRule.objects.filter(pk=all_needs.pk).update(above=1)
    AlertRule.objects.create(name="some", figure="needs", above=0, for_minutes=0, pattern="bill*")
    Judge(TELLER, needs(DISK, BEHIND)).look({}, T0)
    found = {(one.rule_name, one.subject) for one in Alert.objects.all()}
    assert found == {("all", "check:system:disk"), ("some", "lag:group:billing")}


def test_a_muted_need_is_told_when_its_time_is_over_and_so_are_figures_of_it(all_needs, channel, monkeypatch):
    slow = AlertRule.objects.create(name="slow", figure="lag_minutes", above=10, for_minutes=0)
    slow.channels.add(channel)
    now = [T0]
    monkeypatch.setattr(needs_, "now_ms", lambda: now[0])
    needs_._keep([Mute(1, "lag:group:billing", "", "known", "ada", T0, T0 + 5 * MINUTE)], 1)
    judge = Judge(TELLER, needs(BEHIND))
    behind = {"group_lag_ms": {"billing": 20 * MINUTE}}
    judge.look(behind, T0)
    assert sorted(told()) == [("fired", "silenced", "billing"), ("fired", "silenced", "lag:group:billing")]
    now[0] = T0 + 6 * MINUTE
    judge.look(behind, now[0])
    assert sorted(told()[2:]) == [("fired", "waiting", "billing"), ("fired", "waiting", "lag:group:billing")]


def test_groups_that_the_pattern_does_not_name_are_left_alone(rule):
    Judge(TELLER).look({"group_lag_ms": {"billing": 99 * MINUTE}}, T0)
    assert not Alert.objects.exists()


def test_a_restart_tells_nothing_twice_and_forgets_nothing(rule):
    Judge(TELLER).look(lags(a=11), T0)
    again = Judge(TELLER)
    again.begin(T0 + MINUTE)
    again.look(lags(a=20), T0 + MINUTE)
    assert told() == [("fired", "waiting", "orders-a")]
    again.look(lags(a=1), T0 + 2 * MINUTE)
    assert [event for event, _, _ in told()] == ["fired", "resolved"]


def test_a_figure_that_is_not_known_any_more_ends_nothing(rule):
    judge = Judge(TELLER)
    judge.look(lags(a=11), T0)
    judge.look({}, T0 + 60 * MINUTE)
    assert Alert.objects.filter(ended_ms=None).count() == 1


def test_many_at_once_are_one_notice(rule):
    many = {f"g{number:02d}": 11 for number in range(30)}
    Judge(TELLER).look(lags(**many), T0)
    assert Alert.objects.count() == 30
    (delivery,) = AlertDelivery.objects.all()
    assert delivery.alerts.count() == 30
    assert "and 29 more" in delivery.notice["title"]
    assert delivery.notice["text"].count("\n") < 13


def test_silence_writes_down_and_tells_what_is_still_on_when_it_ends(rule):
    AlertSilence.objects.create(pattern="orders-*", until_ms=T0 + MINUTE, reason="deploy", by="x", created_at_ms=T0)
    judge = Judge(TELLER)
    judge.look(lags(a=11, b=11), T0)
    judge.look(lags(a=11, b=1), T0 + MINUTE // 2)
    assert {(event, state) for event, state, _ in told()} == {("fired", "silenced"), ("resolved", "silenced")}
    judge.look(lags(a=11), T0 + 2 * MINUTE)
    assert [one for one in told() if one[1] == "waiting"] == [("fired", "waiting", "orders-a")]
    judge.look(lags(a=11), T0 + 3 * MINUTE)
    assert len([one for one in told() if one[1] == "waiting"]) == 1


@pytest.mark.parametrize("other", [True, False])
def test_a_silence_of_another_rule_or_group_is_no_silence(rule, other):
    elsewhere = AlertRule.objects.create(name="other", figure="lag_messages", above=10**9)
    AlertSilence.objects.create(
        rule=elsewhere if other else None, pattern="*" if other else "billing-*", until_ms=T0 + MINUTE, reason="r",
        by="x", created_at_ms=T0,
    )  # fmt: skip
    Judge(TELLER).look(lags(a=11), T0)
    assert told() == [("fired", "waiting", "orders-a")]


def test_what_goes_on_is_told_again_as_often_as_the_rule_says(rule):
    rule.again_after_minutes = 10
    rule.save()
    judge = Judge(TELLER)
    for minute in range(25):
        judge.look(lags(a=11), T0 + minute * MINUTE)
    assert [event for event, _, _ in told()] == ["fired", "reminder", "reminder"]


def test_a_changed_rule_ends_its_alerts_and_says_so(rule):
    judge = Judge(TELLER)
    judge.look(lags(a=11), T0)
    assert end_alerts(rule, TELLER, T0 + 1) == 1
    rule.above = 5
    rule.save()
    judge.look(lags(a=11), T0 + MINUTE)
    assert [event for event, _, _ in told()] == ["fired", "resolved", "fired"]
    assert Alert.objects.order_by("id").first().ended_by == "changed"
    assert "nobody looks any more" in AlertDelivery.objects.get(event="resolved").notice["text"]


def test_one_rule_has_no_more_alerts_than_its_bound(rule, monkeypatch):
    monkeypatch.setattr(book, "MOST_OF_A_RULE", 5)
    judge = Judge(TELLER)
    judge.look(lags(**{f"g{number}": 11 for number in range(9)}), T0)
    assert Alert.objects.count() == 5
    judge.look(lags(**{f"g{number}": 11 if number > 4 else 1 for number in range(9)}), T0 + MINUTE)
    judge.look(lags(**{f"g{number}": 11 if number > 4 else 1 for number in range(9)}), T0 + 2 * MINUTE)
    assert set(Alert.objects.filter(ended_ms=None).values_list("subject", flat=True)) == {
        f"orders-g{number}" for number in range(5, 9)
    }


def test_a_notice_is_tried_again_and_given_up_in_the_end(rule, channel):
    with http_receiver() as receiver:
        channel.address = receiver.url()
        channel.save()
        receiver.answers = [(500, b"no"), (500, b"no"), (200, b"")]
        Judge(TELLER).look(lags(a=11), T0)
        sender = AlertSender()
        assert sender.send_next(T0)
        delivery = AlertDelivery.objects.get()
        assert (delivery.state, delivery.tries, delivery.why) == ("waiting", 1, "HTTP 500: no")
        assert not sender.send_next(delivery.next_try_ms - 1)
        assert sender.send_next(delivery.next_try_ms)
        delivery.refresh_from_db()
        assert sender.send_next(delivery.next_try_ms)
        delivery.refresh_from_db()
        assert (delivery.state, delivery.tries, delivery.why) == ("sent", 3, "")
        assert len(receiver.received) == 3

        Judge(TELLER).look({}, T0)
        receiver.answers = [(500, b"no")]
        book.put(TELLER, [channel], "fired", [Alert.objects.get()], T0)
        last = AlertDelivery.objects.order_by("-id").first()
        while sender.send_next(last.next_try_ms):
            last.refresh_from_db()
        assert (last.state, last.tries) == ("failed", 1 + len(watch.RETRY_AFTER_MS))


def test_a_notice_that_cannot_be_sent_holds_no_other_back(rule, channel, caplog):
    Judge(TELLER).look(lags(a=11), T0)
    Judge(TELLER).look(lags(a=11, b=11), T0 + MINUTE)
    tried = []

    def send(target, notice):
        tried.append(notice)
        if len(tried) == 1:
            raise RecursionError("nobody expects this")

    sender = AlertSender(send)
    assert sender.send_next(T0 + MINUTE)
    assert sender.send_next(T0 + MINUTE)
    assert tried[0] != tried[1]
    first, second = AlertDelivery.objects.order_by("id")
    assert (first.state, first.tries, first.why) == ("waiting", 1, "RecursionError")
    assert second.state == "sent"
    assert "a notice could not be sent" in caplog.text


def test_a_clock_that_is_set_back_holds_no_notice_back(rule, channel):
    rule.again_after_minutes = 10
    rule.save()
    judge, day = Judge(TELLER), 24 * 60 * MINUTE
    judge.look(lags(a=11), T0 + 3 * day)
    AlertDelivery.objects.update(tries=1, next_try_ms=T0 + 3 * day + 10_000)
    judge.look(lags(a=11), T0)
    assert [event for event, _, _ in told()] == ["fired", "reminder"]
    judge.look(lags(a=11), T0 + MINUTE)
    assert len(told()) == 2
    sender = AlertSender(lambda target, notice: None)
    while sender.send_next(T0 + MINUTE):
        pass
    assert set(AlertDelivery.objects.values_list("state", flat=True)) == {"sent"}


def test_a_settings_database_that_cannot_be_read_is_one_line_of_the_thread_that_sends(monkeypatch, caplog):
    sender = AlertSender()
    tries = []

    def unreadable(at_ms):
        tries.append(at_ms)
        if len(tries) == 3:
            sender.request_stop()
        raise DatabaseError("file is not a database")

    monkeypatch.setattr(watch, "SENDING_S", 0)
    monkeypatch.setattr(watch, "connection", SimpleNamespace(close=lambda: None))  # of this thread, as tests need it
    monkeypatch.setattr(sender, "send_next", unreadable)
    sender.run()
    assert [one.getMessage() for one in caplog.records] == ["alerts: notices are sent later: file is not a database"]


def test_the_notice_of_a_deleted_channel_does_not_wait_for_ever(rule, channel):
    Judge(TELLER).look(lags(a=11), T0)
    channel.delete()
    assert AlertSender().send_next(T0)
    assert AlertDelivery.objects.get().state == "failed"


def test_the_language_is_the_channels(rule, channel):
    channel.language = "zh-hans"
    channel.save()
    Judge(TELLER).look({"group_lag_ms": {"orders-消费": 11 * MINUTE}}, T0)
    assert "orders-消费" in AlertDelivery.objects.get().notice["title"]


class Recorded:
    """Figures of two groups, minute by minute."""

    def labels(self, metric, from_ms, to_ms):
        assert metric == "group_lag_ms"
        return ["billing", "orders-a", "orders-b"]

    def figures(self, metric, label, from_ms, to_ms):
        high = {"orders-a": 11, "orders-b": 3}[label]
        return [(at, (high if (at // MINUTE) % 60 > 30 else 1) * MINUTE) for at in range(from_ms, to_ms, MINUTE)]


def test_a_dry_run_says_what_would_have_been_and_tells_nobody(rule):
    rule.for_minutes = 5
    day = 86_400_000
    found = dry_run(rule, Recorded(), T0 - T0 % day, T0 - T0 % day + day, lambda: False)
    assert (found.seen, found.subjects, found.measured, found.truncated) == (2, 2, True, False)
    assert len(found.periods) == 24
    assert {period.subject for period in found.periods} == {"orders-a"}
    assert found.periods[-1].fired_ms - (T0 - T0 % day) == 36 * MINUTE
    assert not Alert.objects.exists()
    assert not AlertDelivery.objects.exists()
    assert dry_run(rule, Recorded(), T0, T0 + day, lambda: True).truncated


def test_old_alerts_go_and_those_that_are_on_stay(rule, monkeypatch):
    judge = Judge(TELLER)
    judge.look(lags(a=11, b=11), T0)
    judge.look(lags(a=1, b=11), T0 + MINUTE)
    book.clean(T0 + MINUTE + book.KEPT_MS)
    assert Alert.objects.count() == 2
    book.clean(T0 + 2 * MINUTE + book.KEPT_MS)
    assert [alert.subject for alert in Alert.objects.all()] == ["orders-b"]
    monkeypatch.setattr(book, "KEPT", 3)
    for number in range(6):
        judge.look(lags(**{f"x{number}": 11}), T0)
        judge.look(lags(**{f"x{number}": 1}), T0)
    book.clean(T0)
    assert Alert.objects.exclude(ended_ms=None).count() == 3
    assert Alert.objects.filter(ended_ms=None).count() == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_forward_for_a_while_deletes_no_alert(rule, monkeypatch, is_restarted):
    clock = FakeClock(T0)
    monkeypatch.setattr(watch, "now_ms", clock.wall_ms)
    samples = iter([lags(a=11), lags(a=1), lags(b=11), lags(b=1), lags(b=11)])

    def process():
        made = watch.AlertWatch(lambda: (clock.wall_ms(), next(samples)), lambda: TELLER, lambda: None)
        made.clock = clock
        return made

    watching = process()
    for _ in range(2):
        watching._look()
        clock.advance(MINUTE)
    clock.jump(2 * book.KEPT_MS)
    watching = process() if is_restarted else watching
    watching._look()
    assert {alert.subject for alert in Alert.objects.all()} == {"orders-a", "orders-b"}
    clock.advance(59 * MINUTE)
    watching._look()
    clock.advance(61 * MINUTE)
    watching._look()
    assert "orders-a" not in {alert.subject for alert in Alert.objects.all()}, "it has stayed so"


def test_what_is_over_at_the_first_look_after_a_restart_is_told(rule):
    Judge(TELLER).look(lags(a=11), T0)
    again = Judge(TELLER)
    again.begin(T0 + MINUTE)
    again.look(lags(a=1), T0 + MINUTE)
    assert [event for event, _, _ in told()] == ["fired", "resolved"]
