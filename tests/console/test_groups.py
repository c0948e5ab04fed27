"""Consumer groups and clients: the lists, one group, members that subscribe differently, hostile client ids."""

import json
import re

import pytest

from tests.support.engine import Peer

HEARTBEAT, UPDATE_OFFSET = 34, 15


def heartbeat(client_id: str, group: str, topic: str, expression: str) -> bytes:
    """The body of a heartbeat as Java's client sends it."""
    subscription = {
        "topic": topic, "subString": expression, "subVersion": 1, "expressionType": "TAG", "classFilterMode": False,
        "tagsSet": [] if expression == "*" else expression.split("||"),
        "codeSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription],
    }  # fmt: skip
    document = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "p<b>"}]}
    return json.dumps(document).encode()


@pytest.fixture
def peers(broker):
    opened = []

    def connect(client_id, group, topic, expression="*") -> Peer:
        peer = Peer(broker.system().broker_address)
        opened.append(peer)
        assert peer.ask(HEARTBEAT, body=heartbeat(client_id, group, topic, expression)).code == 0
        return peer

    yield connect
    for peer in opened:
        peer.close()


def test_a_group_shows_its_lag_in_messages_and_time(client_as, broker, topic, peers):
    group = f"g-{topic}"[:100]
    peer = peers("one@10.0.0.9", group, topic)
    for _ in range(3):
        broker.sender.send(topic, b"x", queue_id=0)
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
    assert peer.ask(UPDATE_OFFSET, fields).code == 0
    client = client_as("viewer")
    page = client.get(f"/groups/{group}/").content.decode()
    assert "2 messages behind" in page
    assert "one@10.0.0.9" in client.get(f"/groups/{group}/?tab=clients").content.decode()
    assert "clustering" in page
    rows = client.get(f"/groups/{group}/", {"format": "csv"}).content.decode()
    assert f"{topic},0,1,0,3,2," in rows
    assert f'href="/groups/{group}/"' in client.get("/groups/", {"q": group, "sort": "-lag"}).content.decode()
    assert client.get("/groups/no-such-group/").status_code == 404
    asked = {"format": "csv", "sort": "-lag", "q": topic.upper(), "tab": "lag"}
    rows = client.get(f"/groups/{group}/", asked).content.decode().splitlines()
    assert [row.split(",")[0] for row in rows] == ["topic", *[topic] * (len(rows) - 1)], "the file holds what is shown"
    assert rows[1].split(",")[5] == "2"
    assert client.get(f"/groups/{group}/", asked | {"q": "no-such"}).content.decode().splitlines() == rows[:1]


def test_a_lag_without_some_queues_is_shown_as_the_least_that_it_can_be(client_as, broker, topic, peers):
    group = f"g-{topic}"[:100]
    peer = peers("one@10.0.0.9", group, topic)
    for queue in (0, 0, 0, 1):
        broker.sender.send(topic, b"x", queue_id=queue)
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
    assert peer.ask(UPDATE_OFFSET, fields).code == 0
    client = client_as("operator")
    why = "1 queue has messages but no committed offset yet and is not counted."
    broker.group_commands.edit(group, consume_enable=False)
    for address in (f"/groups/?q={group}", f"/topics/{topic}/", f"/groups/{group}/", f"/groups/{group}/pause/"):
        page = client.get(address).content.decode()
        assert f'<span title="{why}">≥ 2</span>' in page, address
    page = client.get(f"/groups/{group}/").content.decode()
    assert "committed offsets of other queues here, but none of queue 1." in page
    # RocketMQ's own request counts such a queue from its first offset on, docs/troubleshooting.md says so.
    table = peer.ask(208, {"consumerGroup": group, "topic": topic}).body.decode()
    pairs = re.findall(r'"brokerOffset":(\d+),"consumerOffset":(\d+)', table)
    assert sum(int(end) - int(offset) for end, offset in pairs) == 3


def test_members_that_subscribe_differently_stand_side_by_side(client_as, broker, topic, peers):
    group = f"g-{topic}"[:100]
    peers("first", group, topic, "red")
    peers("second", group, topic, "blue")
    page = client_as("viewer").get(f"/groups/{group}/").content.decode()
    assert "Clients of this group subscribe differently" in page
    assert page.index("<code>blue</code>") != page.index("<code>red</code>")
    assert "subscriptions differ" in client_as("viewer").get("/groups/", {"q": group}).content.decode()


def test_a_hostile_client_is_shown_as_text(client_as, broker, topic, peers):
    group = f"g-{topic}"[:100]
    peers("<script>alert(1)</script>", group, topic, "<img src=x>")
    client = client_as("viewer")
    for address in ("/clients/", f"/groups/{group}/", f"/topics/{topic}/", "/groups/", "/"):
        page = client.get(address).content.decode()
        assert "<script>alert" not in page, address
        assert "<img" not in page, address
    assert "&lt;script&gt;alert" in client.get("/clients/").content.decode()


def test_what_is_not_known_is_said_with_its_reason(client_as, broker, topic, peers):
    group = f"g-{topic}"[:100]
    peers("one", group, topic)
    broker.sender.send(topic, b"x")
    page = client_as("viewer").get(f"/groups/{group}/").content.decode()
    assert "not known" in page
    assert "The group has not committed an offset yet." in page
    assert ">-1<" not in page
