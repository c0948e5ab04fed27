"""The digest on its way to people: by a receiver that really listens, once a day."""

from __future__ import annotations

import dataclasses
import json
import re
from email import message_from_string, policy

import pytest

from appliance import runtime
from appliance.console import reports
from appliance.console.alerts.models import AlertChannel, AlertDelivery
from appliance.console.alerts.watch import AlertSender
from appliance.console.reports import records
from appliance.console.reports.report_settings import ReportSettings
from appliance.console.reports.telling import NAMED, notice_of, tell
from appliance.engine.errors import InvalidInput, NotFound
from spark_reports.reports.digest import COLUMNS, UNREAD_COLUMNS, WORST_COLUMNS
from spark_reports.reports.document import Note, Table
from tests.console.conftest import pretend_running
from tests.support.receivers import http_receiver, mail_server
from tests.support.report_days import DAY, documents


@pytest.fixture
def digest(broker, people):
    """The digest of a day, as a run leaves it."""
    place = records.directory() / "days" / DAY
    place.mkdir(parents=True)
    for document in documents():
        (place / f"{document.report}.json").write_bytes(document.to_json())


@pytest.fixture
def told(digest, request_of):
    """A receiver of the digest, and what it got."""
    with http_receiver() as receiver:
        AlertChannel.objects.create(name="ops", kind="webhook", address=receiver.url(), secret="s3cret-of-ours")
        AlertChannel.objects.create(name="other", kind="webhook", address=receiver.url("/other"))
        reports.save_settings(request_of("admin"), ReportSettings(digest_channels=("ops",)))
        yield receiver


def send_all(tries: int = 1) -> None:
    """Send what is due as the alerts' thread does, without its waits."""
    sender = AlertSender()
    for _ in range(tries):
        due = max(AlertDelivery.objects.values_list("next_try_ms", flat=True), default=0)
        while sender.send_next(due):
            pass


def test_a_webhook_gets_text_and_figures_once_a_day(told):
    assert tell(DAY) == 1
    send_all()
    (received,) = told.received
    body = json.loads(received.body)
    assert (body["event"], body["subject"], body["figures"]) == ("digest", DAY, {"messages": 41_200_000})
    assert body["title"] == "[broker-a] Morning digest: Fri 2026-03-20"
    assert "Messages received: 41\u202f200\u202f000 (the day before: 40\u202f000\u202f000)" in body["text"]
    assert "Furthest behind: 41 min (shipping, 10:20, the day before: 1 min)" in body["text"]
    assert "<" not in body["text"]
    assert body["link"] == ""
    assert received.headers["x-rocketbox-signature"].startswith("sha256=")
    assert tell(DAY) == 0, "it was sent"
    send_all()
    assert len(told.received) == 1


def test_what_was_worst_is_told_beside_what_got_worse(broker, people):
    document = next(one for one in documents() if one.report == "digest")
    worst = Table("worst", WORST_COLUMNS, (("shipping", "dead_letters", 652, "messages"),), (("open-group",),))
    worse = Table("worsened", COLUMNS, (("mail", None, "retries", 4, 300, "messages"),), (("open-group",),))
    text = notice_of(json.loads(dataclasses.replace(document, tables=(worst, worse)).to_json()), "en").text
    assert "What was worst:\n- shipping, dead letters: 652\n" in text
    assert "What got worse the most:\n- mail, retries: 4 → 300\n" in text


def test_what_the_broker_summed_up_has_no_line_of_its_own(broker, people):
    rows = ((None, None, 900, "", 1), *((f"g{number}", "t", 9, "0", 1) for number in range(NAMED + 1)))
    lost = Table("deleted_unread", UNREAD_COLUMNS, rows, ((),) * len(rows))
    text = notice_of(json.loads(dataclasses.replace(documents()[0], tables=(lost,)).to_json()), "en").text
    assert [line for line in text.splitlines() if line.startswith("- ")] == [f"- g{n}, t: 9" for n in range(NAMED)]


def test_links_lead_where_people_reach_the_console(told):
    pretend_running(runtime.running().engine, public_url="https://mq.example.org/box")
    tell(DAY)
    send_all()
    link = json.loads(told.received[0].body)["link"]
    assert link.startswith("https://mq.example.org")
    assert link.endswith(f"/reports/{DAY}/digest/")


def test_a_receiver_that_is_ill_is_tried_again_as_alerts_are(told):
    told.answers[:] = [(500, b"ill"), (500, b"ill"), (200, b"ok")]
    tell(DAY)
    send_all(3)
    assert len(told.received) == 3
    delivery = AlertDelivery.objects.get()
    assert (delivery.state, delivery.tries) == ("sent", 3)


def test_a_person_may_have_it_sent_once_more(told, request_of):
    tell(DAY)
    assert reports.send_digest(request_of("admin"), DAY) == 1
    send_all()
    assert len(told.received) == 2
    with pytest.raises(NotFound):
        reports.send_digest(request_of("admin"), "2026-03-21")
    reports.save_settings(request_of("admin"), ReportSettings())
    with pytest.raises(InvalidInput):
        reports.send_digest(request_of("admin"), DAY)


def test_a_mail_in_the_language_of_the_channel(digest, request_of):
    with mail_server() as server:
        mail = {"host": "127.0.0.1", "port": server.port, "security": "none", "sender": "a@example.org",
                "recipients": ["b@example.org"]}  # fmt: skip
        AlertChannel.objects.create(name="post", kind="mail", mail=mail, language="zh-hans")
        reports.save_settings(request_of("admin"), ReportSettings(digest_channels=("post",)))
        tell(DAY)
        send_all()
        ((recipients, text),) = server.mails
    assert recipients == ["b@example.org"]
    assert DAY in text
    plain, page = (part.get_content() for part in message_from_string(text, policy=policy.default).iter_parts())
    for found in (plain, page):
        assert "41\u202f200\u202f000" in found
        assert "shipping" in found
    assert "<td" in page
    assert "<td" not in plain


def test_names_that_look_like_markup_arrive_as_they_are(broker, people, request_of):
    place = records.directory() / "days" / DAY
    place.mkdir(parents=True)
    name = "<b>&amp;%s</b>"
    document = documents(groups=(name,))[0]
    (place / "digest.json").write_bytes(document.to_json())
    AlertChannel.objects.create(name="ops", kind="slack", address="http://127.0.0.1:9/x")
    reports.save_settings(request_of("admin"), ReportSettings(digest_channels=("ops",)))
    assert tell(DAY) == 1
    notice = AlertDelivery.objects.get().notice
    assert f"({name}, 10:20" in notice["text"]
    assert notice["html"] == "", "only mail shows it"
    page = notice_of(json.loads(document.to_json()), "en", as_page=True).html
    assert "&lt;b&gt;&amp;amp;%s&lt;/b&gt;, 10:20" in page
    assert name not in page


def test_what_was_lost_and_what_happened_come_before_the_figures(broker, people):
    document = documents()[0]
    lost = Note("deleted_unread", (("messages", 9), ("pairs", 2), ("group", "g"), ("topic", "t"), ("most", 8)))
    of_one = Note("deleted_unread_by_one", (("messages", 1), ("group", "g"), ("topic", "t")))
    values = (("refused_sends", 1200), ("forced_deletions", 2), ("starts", 1), ("down", 600_000))
    happened = [Note(key, (("count", count),)) for key, count in (*values[:2], ("role_changes", 2), *values[2:])]
    # The note "incidents" is in the documents of older versions.
    document = dataclasses.replace(
        document, notes=(lost, of_one, *happened, Note("incidents", values), *document.notes)
    )
    found = json.loads(document.to_json())
    lines = notice_of(found, "en").text.splitlines()
    assert lines[:10] == [
        "Retention deleted 9 messages before they were read. The most affected is group g in topic t with 8, of 2 "
        "pairs of group and topic.",
        "Retention deleted 1 message of topic t before group g had read it.",
        "1\u202f200 sends were refused.",
        "The disk was too full: 2 log files were deleted before their retention was over.",
        "There were fail-overs: the broker's role changed 2 times.",
        "The broker was started 1 time.",
        "The broker did not run for 10 min.",
        "Sends that were refused: 1\u202f200. Log files deleted before their retention was "
        "over: 2. Starts of the broker: 1. Time that it did not run: 10 min.",
        "",
        "Messages received: 41\u202f200\u202f000 (the day before: 40\u202f000\u202f000)",
    ]
    chinese = notice_of(found, "zh-hans").text.splitlines()
    assert chinese[1:7] == [
        "保留策略在消费组 g 读取主题 t 的 1 条消息之前就将其删除。",
        "1\u202f200 次发送被拒绝。",
        "磁盘过满：2 个日志文件在保留期结束之前就被删除。",
        "发生了故障转移：Broker 的角色变更了 2 次。",
        "Broker 启动了 1 次。",
        "Broker 有 10 分钟未运行。",
    ]


def test_a_day_without_anything_wrong_says_so_first(broker, people):
    notes = (Note("no_day_before", (("day", DAY),)), Note("nothing_wrong"))
    document = dataclasses.replace(documents()[0], notes=notes)
    notice = notice_of(json.loads(document.to_json()), "en", as_page=True)
    said = "No message was deleted unread, no send was refused, no log file was deleted before its retention was over, "
    assert notice.text.startswith(f"{said}and the broker ran the whole time.\n\nMessages received: ")
    assert notice.html.count(said) == 1
    assert notice.html.index(said) < notice.html.index("Messages received")
    assert "#a00000" not in notice.html


def test_the_page_draws_the_trends_without_pictures(broker, people):
    page = notice_of(json.loads(documents()[0].to_json()), "en", as_page=True).html
    heights = [int(one) for one in re.findall(r"height: ([0-9]+)px; background", page)]
    # Of (1, 2, None, 4, 5, 6, 7), and of (0, 0, 0, 0, 0, 0, 2).
    assert heights == [2 + share * 24 // 100 for share in (14, 28, 57, 71, 85, 100, 0, 0, 0, 0, 0, 0, 100)]
    assert page.count("dashed") == 1
    assert 'aria-label="1 · 2 · not known · 4 · 5 · 6 · 7"' in page
    assert not re.search("<img|<svg|<script", page)


def test_a_damaged_digest_is_told_to_nobody(told, caplog):
    (records.directory() / "days" / DAY / "digest.json").write_text('{"report": "digest"}')
    assert tell(DAY) == 0
    assert "cannot be sent" in caplog.text
