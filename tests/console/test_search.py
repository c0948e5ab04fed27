"""One box for whatever a message is called by, over all topics."""

import time

import pytest

from appliance.console.models import AuditEntry
from tests.support.peer import Peer, send_fields


@pytest.fixture
def put(broker):
    peer = Peer(broker.system().broker_address)
    yield lambda topic, properties: peer.ask(310, send_fields(topic, 0, properties), b"x")
    peer.close()


@pytest.fixture
def found(client_as, broker):
    """found(text, ...): the page that a search shows, once the index has caught up with the log."""
    client = client_as("viewer")

    def search(text: str, **asked):
        deadline = time.monotonic() + 60
        while broker.search.page("-").index_behind_bytes and time.monotonic() < deadline:
            time.sleep(0.01)
        return client.get("/search/", {"q": text} | asked)

    return search


def test_what_names_one_message_leads_to_it(broker, topic, found):
    sent = broker.sender.send(topic, b"x")
    place = f"{topic}/{sent.queue_id}/{sent.queue_offset}"
    for text in (sent.offset_id, sent.offset_id.lower(), place, sent.unique_id, f"  {place} "):
        assert found(text).headers["Location"] == f"/messages/{sent.offset_id}/", text


def test_a_key_is_found_in_every_topic_and_in_one(broker, topic, found):
    other = f"{topic}-2"
    broker.topic_commands.create(other)
    ids = [broker.sender.send(name, b"x", keys=("the-key",)).offset_id for name in (topic, other)]
    page = found("the-key").content.decode()
    assert all(f"/messages/{one}/" in page for one in ids)
    assert "2 messages" in page
    page = found("the-key", topic=other).content.decode()
    assert f"/messages/{ids[1]}/" in page
    assert f"/messages/{ids[0]}/" not in page
    assert "Nothing found" in found("the-ke").content.decode()


def test_bodies_are_shown_to_those_who_may_read_them(broker, topic, found, client_as):
    key = f"{topic}-seen"
    for body in (b'{"city": "Gent"}', b"<b>bold</b> " + b"x" * 300):
        broker.sender.send(topic, body, keys=(key,))
    page = found(key, bodies="on").content.decode()
    assert "Gent" not in page, "they may not"
    assert "with bodies" not in page
    reader = client_as("operator", "may_read_bodies")
    assert "Gent" not in reader.get("/search/", {"q": key}).content.decode()
    assert not AuditEntry.objects.filter(action="message.read").exists()
    page = reader.get("/search/", {"q": key, "bodies": "on"}).content.decode()
    assert "{&quot;city&quot;: &quot;Gent&quot;}" in page
    assert "&lt;b&gt;bold" in page
    assert "<b>bold" not in page
    assert "x…" in page
    assert page.count("x") < 300, "and no more"
    noted = AuditEntry.objects.get(action="message.read")
    assert (noted.target, noted.after) == (key, {"messages": 2, "topics": [topic]})
    assert "Nothing found" in reader.get("/search/", {"q": "nothing-has-it", "bodies": "on"}).content.decode()
    assert AuditEntry.objects.filter(action="message.read").count() == 1


def test_pages_of_a_key_go_on_in_their_snapshot(broker, topic, found):
    for _ in range(60):
        broker.sender.send(topic, b"x", keys=(f"{topic}-key",))
    first = found(f"{topic}-key")
    shown = [hit.message.offset_id for hit in first.context["page"].hits]
    assert len(shown) == 50
    broker.sender.send(topic, b"x", keys=(f"{topic}-key",))
    second = found(f"{topic}-key", cursor=first.context["page"].next_cursor)
    rest = [hit.message.offset_id for hit in second.context["page"].hits]
    assert (len(rest), set(rest) & set(shown)) == (10, set())


def test_a_message_is_one_row_that_says_what_became_of_it(broker, topic, found, put):
    key, unique = f"{topic}-copied", "7F0000016AB14E0E2F2A69208FBA%04X"
    text = f"KEYS\x01{key}\x02RETRY_TOPIC\x01{topic}\x02UNIQ_KEY\x01{unique}\x02"
    put(topic, text % 1)
    put("%DLQ%unlucky", text % 1)
    put("%DLQ%unlucky", text % 2)
    response = found(key)
    shown, page = response.context["page"].hits, response.content.decode()
    assert [(hit.message.topic, hit.for_topic) for hit in shown] == [("%DLQ%unlucky", topic), (topic, topic)]
    assert "2 messages" in page
    assert page.count("dead letter of unlucky") == 2
    assert f'<a href="/topics/{topic}/">' in page
    assert "%DLQ%" not in page
    assert found(unique % 1).headers["Location"] == f"/messages/{shown[1].message.offset_id}/"
    page = found(key, copies="yes").content.decode()
    assert "3 records" in page
    assert "%DLQ%unlucky" in page
    assert 'value="yes" checked' in page
    assert found(unique % 1, copies="yes").status_code == 200


def test_a_page_that_ended_early_says_so(broker, topic, found, monkeypatch):
    for _ in range(3):
        broker.sender.send(topic, b"x", keys=(f"{topic}-cut",))
    assert "ended early" not in found(f"{topic}-cut").content.decode()
    monkeypatch.setattr("appliance.engine.window.messages.search.MOST_RECORDS", 2)
    page = found(f"{topic}-cut").content.decode()
    assert "This page ended early" in page
    assert "2 messages, and there may be more" in page


def test_times_narrow_keys_down(broker, topic, found):
    broker.sender.send(topic, b"x", keys=(f"{topic}-key",))
    assert "Nothing found" in found(f"{topic}-key", **{"from": "2100-01-01T00:00:00"}).content.decode()
    assert "1 message" in found(f"{topic}-key", to="2100-01-01T00:00:00").content.decode()


def test_a_topic_and_times_without_a_text_are_its_messages(broker, topic, found):
    response = found("", topic=topic, **{"from": "2026-01-01T00:00:00"})
    assert response.headers["Location"] == f"/messages/?topic={topic}&from=2026-01-01T00%3A00%3A00&to="


@pytest.mark.parametrize(
    ("asked", "status"),
    [({"from": "soon"}, 400), ({"cursor": "00"}, 400), ({"from": "2026-02-01", "to": "2026-01-01"}, 400)],
)
def test_what_is_asked_wrongly_is_said_on_the_page(found, asked, status):
    response = found("text", **asked)
    assert response.status_code == status
    assert 'role="alert"' in response.content.decode()


def test_what_was_typed_is_text(broker, topic, found):
    hostile = "<script>alert(1)</script>"
    broker.sender.send(topic, b"x", keys=(hostile,))
    page = found(hostile).content.decode()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert found("").status_code == 200


def test_every_page_has_the_box(client_as, broker):
    for address in ("/", "/topics/", "/system/", "/account/"):
        assert 'action="/search/"' in client_as("viewer").get(address).content.decode()


def test_topics_and_groups_are_found_by_their_names(client_as, broker, topic):
    broker.group_commands.create(f"{topic}-group")
    client = client_as("viewer")
    page = client.get("/search/", {"q": topic.upper()}).content.decode()
    assert f'href="/topics/{topic}/"' in page
    assert f'href="/groups/{topic}-group/"' in page
    assert "Nothing found" not in page
    broker.group_commands.delete(f"{topic}-group", force=True)


def test_a_place_behind_the_end_is_explained(client_as, broker, topic):
    broker.sender.send(topic, b"x", queue_id=1)
    page = client_as("viewer").get("/search/", {"q": f"{topic}/1/99999"}).content.decode()
    assert f"Queue 1 of {topic} ends at 1." in page


def test_the_page_of_a_message_takes_its_unique_id(client_as, broker, topic):
    sent = broker.sender.send(topic, b"x")
    client = client_as("viewer")
    for text in (sent.unique_id, sent.unique_id.lower()):
        page = client.get(f"/messages/{text}/")
        assert page.status_code == 200
        assert sent.offset_id in page.content.decode()
