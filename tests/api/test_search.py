"""GET /search: messages by their ids and keys, in the topics that the caller may access."""

from __future__ import annotations

import pytest

from appliance.console.models import AuditEntry

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db
UNIQUE = "7F0000016AB14E0E2F2A69208FBA%04X"


def put(running, topic, key, number):
    running.put(topic, b"x", properties=f"KEYS\x01{key} more\x02UNIQ_KEY\x01{UNIQUE % number}\x02")


def test_a_message_is_found_by_all_its_names(viewer, running, topic):
    put(running, topic, "api-order-1", 7)
    found = answer_of(viewer.get("/search?q=api-order-1"))
    [hit] = found["items"]
    assert (hit["matched"], hit["message"]["topic"]) == ("key", topic)
    assert (found["kinds"], found["truncated"], found["next_cursor"]) == (["key"], False, None)
    assert found["index_enabled"] is True
    message = hit["message"]
    for text, matched in (
        (UNIQUE % 7, "unique_id"),
        (message["offset_id"], "offset_id"),
        (f"{topic}%2F0%2F{message['queue_offset']}", "place"),
    ):
        [again] = answer_of(viewer.get(f"/search?q={text}&topic={topic}"))["items"]
        assert (again["matched"], again["message"]) == (matched, message)
    assert answer_of(viewer.get(f"/search?q=api-order-1&to={message['stored_at_ms'] - 1}"))["items"] == []


def test_copies_are_told_with_their_message_unless_they_are_asked_for(viewer, by_token, running, topic):
    put(running, topic, "api-copied", 11)
    text = f"RETRY_TOPIC\x01{topic}\x02"
    running.put("%DLQ%api-gone", b"x", properties=f"KEYS\x01api-copied more\x02UNIQ_KEY\x01{UNIQUE % 11}\x02{text}")
    running.put("%DLQ%api-gone", b"x", properties=f"KEYS\x01api-copied\x02UNIQ_KEY\x01{UNIQUE % 12}\x02{text}")
    alone, whole = answer_of(viewer.get("/search?q=api-copied"))["items"]
    assert (whole["state"], whole["dead_letter_of"], whole["copies"]) == ("dead", ["api-gone"], 1)
    assert (whole["for_topic"], whole["message"]["topic"], whole["due_at_ms"]) == (topic, topic, None)
    assert (alone["for_topic"], alone["message"]["topic"], alone["copies"]) == (topic, "%DLQ%api-gone", 0)
    each = answer_of(viewer.get("/search?q=api-copied&copies=yes"))["items"]
    assert [hit["message"]["topic"] for hit in each] == ["%DLQ%api-gone", "%DLQ%api-gone", topic]
    own = by_token("viewer", pattern=topic)
    [hit] = answer_of(own.get("/search?q=api-copied"))["items"]
    assert (hit["state"], hit["dead_letter_of"], hit["copies"]) == ("stored", [], 0)


def test_bodies_are_shown_to_those_who_may_read_them(viewer, by_token, running, topic):
    for body in (b'{"city": "Gent"}', b"\xff" * 100):
        running.put(topic, body, properties="KEYS\x01api-seen\x02")
    reader = by_token("viewer", "may_read_bodies")
    problem_of(viewer.get("/search?q=api-seen&body_chars=20"), 403, "forbidden")
    problem_of(reader.get("/search?q=api-seen&body_chars=1001"), 422, "invalid_input")
    plain = answer_of(reader.get("/search?q=api-seen"))["items"]
    assert "glance" not in plain[0]["message"]
    assert not AuditEntry.objects.filter(action="message.read").exists()
    found = answer_of(reader.get("/search?q=api-seen&body_chars=10"))["items"]
    assert [tuple(hit["message"].pop(name) for name in ("glance", "binary", "cut")) for hit in found] == [
        ("ff ff ff", True, True),
        ('{"city": "', False, True),
    ]
    assert found == plain
    noted = AuditEntry.objects.get(action="message.read")
    assert (noted.target, noted.after) == ("api-seen", {"messages": 2, "topics": [topic]})
    [named] = answer_of(reader.get(f"/search?q={topic}/0/0&body_chars=4"))["items"]
    assert (named["matched"], named["message"]["glance"]) == ("place", '{"ci')
    elsewhere = by_token("viewer", "may_read_bodies", pattern="no-such*")
    assert answer_of(elsewhere.get("/search?q=api-seen&body_chars=10"))["items"] == []


def test_pages_follow_each_other(viewer, running, topic):
    for number in range(5):
        put(running, topic, "api-many", number)
    found, cursor = [], ""
    while cursor is not None:
        page = answer_of(viewer.get(f"/search?q=api-many&limit=2{cursor and f'&cursor={cursor}'}"))
        found += [hit["message"]["queue_offset"] for hit in page["items"]]
        cursor = page["next_cursor"]
    assert found == sorted(found, reverse=True)
    assert len(found) == 5


def test_a_token_finds_what_its_pattern_reaches(by_token, running, topic):
    put(running, topic, "api-reach", 1)
    put(running, "SearchElsewhere", "api-reach", 2)
    limited = by_token("viewer", pattern="SearchElse*")
    assert [hit["message"]["topic"] for hit in answer_of(limited.get("/search?q=api-reach"))["items"]] == [
        "SearchElsewhere"
    ]
    assert answer_of(limited.get(f"/search?q={topic}%2F0%2F0"))["items"] == []
    problem_of(limited.get(f"/search?q=api-reach&topic={topic}"), 403, "outside_pattern")


def test_wrong_questions_are_refused(viewer):
    problem_of(viewer.get("/search"), 422, "invalid_input")
    problem_of(viewer.get("/search?q=x&cursor=zz"), 422, "invalid_input")
    problem_of(viewer.get("/search?q=x&from=2&to=1"), 422, "invalid_input")
    problem_of(viewer.get(f"/search?q={'x' * 1025}"), 422, "invalid_input")
    problem_of(viewer.get("/search?q=x&topic=Nowhere"), 404, "topic_not_found")
    assert answer_of(viewer.get("/search?q="))["items"] == []


def test_names_places_and_unique_ids(viewer, running, topic):
    sent = running.window.sender.send(topic, b"x", queue_id=1)
    found = answer_of(viewer.get(f"/search?q={topic}"))
    assert topic in found["topic_names"]
    assert found["place_note"] is None
    assert answer_of(viewer.get(f"/search?q={topic}/1/99"))["place_note"]["code"] == "place_behind_end"
    assert answer_of(viewer.get(f"/messages/{sent.unique_id.lower()}"))["offset_id"] == sent.offset_id
