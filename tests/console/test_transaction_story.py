"""The page of a message tells of its transaction, in words and in Chinese, hostile names and reasons included."""

import pytest
from django.utils.html import escape

from appliance.engine.window.transactions.snapshots import HalfPlace
from tests.support.waiting import wait_for

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"


@pytest.fixture
def half(broker, topic):
    """A half message that is open; what the window said when it was sent."""
    return broker.sender.send(topic, b"paid", half_of="PG", queue_id=0)


def page_of(client, offset_id, language="en"):
    response = client.get(f"/messages/{offset_id}/", headers={"accept-language": language})
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def test_an_open_one(client_as, broker, topic, half):
    page = page_of(client_as("viewer"), half.offset_id)
    assert f"stored as half message of a transaction for topic {topic}, by a producer of PG" in page
    assert "nobody has decided the transaction yet; checks so far: 0 of 15" in page
    assert "0 producers of PG are connected" in page or "waits until a producer of PG connects" in page


@pytest.mark.parametrize(("action", "words"), [("commit", "committed by"), ("roll_back", "rolled back by")])
def test_decided_by_an_administrator(client_as, broker, topic, half, action, words):
    place = HalfPlace(half.queue_offset)
    broker.transaction_commands.act(action, [place], reason=HOSTILE, by="alice")
    page = page_of(client_as("viewer"), half.offset_id)
    assert f"{words} alice: {escape(HOSTILE)}" in page
    assert HOSTILE not in page


def test_the_committed_message_and_its_half_are_linked(client_as, broker, topic, half):
    broker.transaction_commands.act("commit", [HalfPlace(half.queue_offset)], reason="paid", by="alice")
    client = client_as("viewer")
    copy = wait_for(lambda: broker.messages.page(topic, queue_id=0).rows, "the committed message")[0]
    for one, other in ((half.offset_id, copy.offset_id), (copy.offset_id, half.offset_id)):
        wait_for(lambda one=one, other=other: f'href="/messages/{other}/"' in page_of(client, one), "the link")


def test_in_chinese(client_as, broker, topic, half):
    client = client_as("viewer")
    page = page_of(client, half.offset_id, "zh-hans")
    assert f"作为事务半消息存储，目标主题 {topic}，来自 PG 的生产者" in page
    assert "事务尚无结果；已回查 0 次，共 15 次" in page
    broker.transaction_commands.act("roll_back", [HalfPlace(half.queue_offset)], reason="x", by="alice")
    assert "由 alice 回滚：x" in page_of(client, half.offset_id, "zh-hans")


def test_the_api_tells_the_same(client_as, broker, topic, half):
    client = client_as("viewer")
    told = client.get(f"/api/v1/messages/{half.offset_id}").json()
    found = {line["what"]: line["detail"] for line in told["story"]}
    assert found["half"]["target"] == topic
    assert (found["open"]["checks"], found["open"]["max_checks"], found["open"]["group"]) == (0, 15, "PG")


def test_a_test_message_of_the_api_is_left_open(client_as, broker, topic):
    client = client_as("operator")
    sent = client.post(
        f"/api/v1/topics/{topic}/messages",
        {"body": {"data": "paid"}, "half_of": "PG2"},
        content_type="application/json",
        headers={"idempotency-key": "tw-1"},
    )
    assert sent.status_code == 201, sent.content
    assert sent.json()["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert [one.message.offset_id for one in broker.transactions.open(group="PG2").rows] == [sent.json()["offset_id"]]
