"""Sentences with a number that may be 1: no noun stays in its plural, and Chinese has a text for both forms."""

from types import SimpleNamespace

import pytest
from django.utils.translation import override

from appliance.console.alerts import texts
from appliance.console.alerts.figures import FIGURES
from appliance.console.reports import sentences as report_sentences
from appliance.console.templatetags.pages import reset_target, translated
from appliance.engine.window.sentences import say

SAID = {
    "queues_stuck": (
        {"group": "billing", "idle_span": 300_000, "queues": "orders/1", "lag": 12},
        "count",
        "1 queue of billing has not moved for 5 min, with a backlog of 12: orders/1.",
        "2 queues of billing have not moved for 5 min, with a backlog of 12: orders/1.",
        "billing 有 1 个队列已 5 分钟没有前进，共堆积 12 条消息：orders/1。",
    ),
    "queues_unreadable": (
        {"topic": "orders", "write": 4},
        "read",
        "orders has 4 write queues and 1 read queue: messages sent to the others cannot be read.",
        "orders has 4 write queues and 2 read queues: messages sent to the others cannot be read.",
        "orders 有 4 个写队列和 1 个读队列：发送到其余队列的消息无人可读。",
    ),
    "queue_not_readable": (
        {"queue": 3},
        "count",
        "Queue 3 is not read: the topic has 1 read queue.",
        "Queue 3 is not read: the topic has 2 read queues.",
        "队列 3 不会被读取：该主题有 1 个读队列。",
    ),
    "slaves_missing": (
        {"count": 0},
        "needed",
        "Sends time out, and consumers see no new messages: a SYNC_MASTER waits for 1 slave, and has 0.",
        "Sends time out, and consumers see no new messages: a SYNC_MASTER waits for 2 slaves, and has 0.",
        "发送超时，消费者看不到新消息：SYNC_MASTER 需要 1 个从节点，目前连接了 0 个。",
    ),
    "diag_idle_consumers": (
        {"topic": "orders", "queues": 1, "clients": 2},
        "idle",
        "orders has fewer queues (1) than the group has consumers (2), so 1 of them has none.",
        "orders has fewer queues (1) than the group has consumers (2), so 2 of them have none.",
        "orders 的队列（1 个）少于该组的消费者（2 个），因此其中 1 个没有分到队列。",
    ),
}


@pytest.mark.parametrize("code", SAID)
def test_what_needs_a_person_says_one_and_many(code):
    values, number, one, many, chinese = SAID[code]
    assert str(translated(say(code, **values, **{number: 1}))) == one
    assert str(translated(say(code, **values, **{number: 2}))) == many
    with override("zh-hans"):
        assert str(translated(say(code, **values, **{number: 1}))) == chinese


@pytest.mark.parametrize(
    ("code", "value", "said"),
    [
        ("dead_letters", 1.0, "Group g has 1 dead letter (limit 0)"),
        ("dead_letters", 2.0, "Group g has 2 dead letters (limit 0)"),
        ("lag_minutes", 1.04, "Group g is 1 minute behind (limit 0)"),
        ("lag_minutes", 1.5, "Group g is 1.5 minutes behind (limit 0)"),
        ("lag_messages", 1.0, "Group g is 1 message behind (limit 0)"),
        ("open_halves", 1.0, "1 transaction is open (limit 0)"),
        ("disk_percent", 1.0, "The disk of the message log is 1 % full (limit 0 %)"),
    ],
)
def test_alerts_say_one_and_many(code, value, said):
    period = SimpleNamespace(subject="g", worst=value)
    assert texts.past_title(SimpleNamespace(figure=FIGURES[code].code, above=0.0), period) == said


def test_reports_say_one_day():
    said = report_sentences.note("days_missing", {"of": "14", "days": "1"}, {"of": 14, "days": 1})
    assert said == "Of the last 14 days, 1 has no facts and is missing in the sums."


@pytest.mark.parametrize(
    ("by", "said"), [(1, "by +1 message"), (-1, "by -1 message"), (-1200, "by -1\u202f200 messages")]
)
def test_a_shift_says_one_message(by, said):
    assert reset_target(SimpleNamespace(kind="reset", asked=f"shift {by}", moves=[])) == said
