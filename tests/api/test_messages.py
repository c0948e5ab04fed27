"""Messages: pages over a fixed snapshot, one message, bodies for callers with the right, sends that may be repeated."""

from __future__ import annotations

import base64
from uuid import uuid4

import pytest

from appliance.console.models import AuditEntry, IdempotentAnswer, now_ms
from appliance.engine.cursors import encode_cursor
from appliance.engine.errors import Unavailable

from .conftest import answer_of, encoded, problem_of

pytestmark = pytest.mark.django_db


def walk(caller, address: str, between=lambda: None) -> list[dict]:
    """Return the items of every page; `between` runs after each."""
    found, cursor = [], ""
    while cursor is not None:
        page = answer_of(caller.get(f"{address}{cursor and f'&cursor={cursor}'}"))
        found += page["items"]
        cursor = page["next_cursor"]
        between()
    assert page["scanned"]["seen"] == page["scanned"]["total"]
    assert not page["truncated"]
    return found


@pytest.mark.parametrize("newest_first", ["true", "false"])
def test_pages_are_of_one_snapshot_while_messages_come(viewer, running, topic, newest_first):
    for number in range(7):
        running.put(topic, b"old %d" % number, queue=number % 3)
    rows = walk(
        viewer, f"/topics/{topic}/messages?limit=2&newest_first={newest_first}", lambda: running.put(topic, b"new")
    )
    assert len(rows) == 7
    offsets = [row["physical_offset"] for row in rows]
    assert len(set(offsets)) == 7
    assert offsets == sorted(offsets, reverse=newest_first == "true")


def test_messages_of_a_queue_and_of_a_time(viewer, running, topic):
    running.put(topic, b"a", queue=0)
    running.put(topic, b"b", queue=1)
    rows = walk(viewer, f"/topics/{topic}/messages?limit=10&queue_id=1")
    assert [row["queue_id"] for row in rows] == [1]
    assert walk(viewer, f"/topics/{topic}/messages?limit=10&to={rows[0]['stored_at_ms'] - 60_000}") == []
    assert len(walk(viewer, f"/topics/{topic}/messages?limit=10&from={rows[0]['stored_at_ms'] - 60_000}")) == 2


def test_a_cursor_of_another_topic_or_none_is_refused(viewer, running, topic):
    running.put(topic, b"a", b"b")
    running.put("Another", b"a")
    cursor = answer_of(viewer.get(f"/topics/{topic}/messages?limit=1"))["next_cursor"]
    for address in (f"/topics/Another/messages?cursor={cursor}", f"/topics/{topic}/messages?cursor={cursor}00"):
        problem = problem_of(viewer.get(address), 422, "invalid_input")
        assert problem["errors"][0]["field"] == "cursor"
    problem_of(viewer.get(f"/topics/{topic}/messages?from=2&to=1"), 422, "invalid_input")
    problem_of(viewer.get(f"/topics/{topic}/messages?from=-1"), 422, "invalid_input")


def test_one_message_by_either_reference_without_its_body(viewer, running, topic):
    running.put(topic, b"the secret", queue=3)
    row = answer_of(viewer.get(f"/topics/{topic}/messages"))["items"][0]
    for ref in (row["offset_id"], f"{topic}/3/0"):
        response = viewer.get(f"/messages/{ref}")
        assert answer_of(response)["physical_offset"] == row["physical_offset"]
        assert b"the secret" not in response.content
        assert base64.b64encode(b"the secret") not in response.content
    for ref in (f"{topic}/3/1", f"{topic}/9/0", uuid4().hex):
        assert viewer.get(f"/messages/{ref}").status_code == 404
    problem_of(viewer.get("/messages/what?"), 422, "invalid_input")


def test_a_body_is_read_with_the_grant_and_that_is_written_down(by_token, viewer, running, topic):
    running.put(topic, b'{"total": 12}', b"\xff\x00binary")
    problem_of(viewer.get(f"/messages/{topic}/0/0/body"), 403, "forbidden")
    problem_of(viewer.get(f"/messages/{topic}/0/0/record"), 403, "forbidden")
    assert not AuditEntry.objects.exists()
    reader = by_token("viewer", "may_read_bodies")
    body = answer_of(reader.get(f"/messages/{topic}/0/0/body"))
    assert (body["kind"], body["encoding"], body["stored_bytes"], body["truncated"]) == ("json", "text", 13, False)
    assert '"total": 12' in body["data"]
    binary = answer_of(reader.get(f"/messages/{topic}/0/1/body"))
    assert (binary["encoding"], base64.b64decode(binary["data"])) == ("base64", b"\xff\x00binary")
    record = answer_of(reader.get(f"/messages/{topic}/0/0/record"))
    assert record["size_bytes"] == sum(field["size_bytes"] for field in record["fields"])
    assert record["dump"][0].startswith("00000000")
    read = [(entry.action, entry.target) for entry in AuditEntry.objects.order_by("id")]
    looks = ("message.read", 0), ("message.read", 1), ("message.read_raw", 0)
    assert read == [(action, f"{topic}/0/{offset}") for action, offset in looks]
    assert "total" not in str([(entry.before, entry.after) for entry in AuditEntry.objects.all()])


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "=1+1", "\u202egnp.exe", "键", "a\u0000b"], ids=ascii)
def test_hostile_keys_tags_and_properties_are_only_text(viewer, running, topic, text):
    running.put(topic, b"x", properties=f"KEYS\x01{text}\x02TAGS\x01{text}\x02colour\x01{text}\x02")
    row = answer_of(viewer.get(f"/topics/{topic}/messages"))["items"][0]
    assert (row["tags"], row["keys"]) == (text, [text])
    assert answer_of(viewer.get(f"/messages/{topic}/0/0"))["properties"]["colour"] == text


# --- sending


def test_a_test_message_is_sent_and_found(operator, by_token, topic):
    sent = answer_of(
        operator.post(
            f"/topics/{topic}/messages",
            {
                "body": {"data": "héllo"}, "tags": "paid", "keys": ["k1", "k2"], "properties": {"colour": "red"},
                "queue_id": 2,
            },
        ),
        201,
    )  # fmt: skip
    assert (sent["status"], sent["queue_id"], sent["queue_offset"]) == ("SEND_OK", 2, 0)
    reader = by_token("viewer", "may_read_bodies")
    message = answer_of(reader.get(f"/messages/{sent['offset_id']}"))
    assert (message["tags"], message["keys"]) == ("paid", ["k1", "k2"])
    assert message["properties"]["colour"] == "red"
    assert answer_of(reader.get(f"/messages/{topic}/2/0/body"))["data"] == "héllo"
    entry = AuditEntry.objects.get(action="message.send")
    assert (entry.target, entry.after["offset_id"]) == (topic, sent["offset_id"])


def test_a_list_has_bodies_for_those_who_may_read_them(by_token, viewer, running, topic):
    running.window.sender.send(topic, b'{"city": "Gent"}')
    running.window.sender.send(topic, b"\xff" * 100)
    path = f"/topics/{topic}/messages"
    reader = by_token("viewer", "may_read_bodies")
    plain = answer_of(reader.get(path))["items"]
    assert "glance" not in plain[0]
    problem_of(viewer.get(f"{path}?body_chars=20"), 403, "forbidden")
    problem_of(reader.get(f"{path}?body_chars=1001"), 422, "invalid_input")
    assert not AuditEntry.objects.filter(action="message.read").exists()
    found = answer_of(reader.get(f"{path}?body_chars=10&newest_first=false"))["items"]
    assert [(row.pop("glance"), row.pop("binary"), row.pop("cut")) for row in found] == [
        ('{"city": "', False, True),
        ("ff ff ff", True, True),
    ]
    assert found == plain[::-1]
    noted = AuditEntry.objects.get(action="message.read")
    assert (noted.target, noted.after) == (topic, {"messages": 2})


def test_a_made_up_cursor_of_a_tail_is_refused(viewer, running, topic):
    running.put(topic, b"x")
    problem = problem_of(
        viewer.get(f"/topics/{topic}/tail?cursor={encode_cursor((0, (1 << 64) - 1))}"), 422, "invalid_input"
    )
    assert problem["errors"][0]["field"] == "cursor"


def test_each_answer_of_a_tail_with_bodies_is_in_the_audit_log(by_token, viewer, running, topic):
    """The cursor is the caller's to give: it is no sign that the first answer was noted."""
    reader, path = by_token("viewer", "may_read_bodies"), f"/topics/{topic}/tail"
    cursor = answer_of(viewer.get(path))["next_cursor"]
    running.window.sender.send(topic, b"secret")
    problem_of(viewer.get(f"{path}?body_chars=20&cursor={cursor}"), 403, "forbidden")
    [row] = answer_of(reader.get(f"{path}?body_chars=20&cursor={cursor}"))["items"]
    assert "secret" in str(row)
    noted = AuditEntry.objects.get(action="message.read")
    assert (noted.target, noted.after) == (topic, {"messages": 1})
    problem_of(reader.get(f"{path}?cursor=x"), 422, "invalid_input")


def test_a_binary_body_travels_as_base64(operator, by_token, topic):
    body = {"encoding": "base64", "data": base64.b64encode(bytes(range(256))).decode()}
    answer_of(operator.post(f"/topics/{topic}/messages", {"body": body, "queue_id": 0}), 201)
    back = answer_of(by_token("viewer", "may_read_bodies").get(f"/messages/{topic}/0/0/body"))
    assert base64.b64decode(back["data"]) == bytes(range(256))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"body": "text"},
        {"body": {"data": ""}},
        {"body": {"encoding": "base64", "data": "***"}},
        {"body": {"data": "x"}, "queue_id": 4},
        {"body": {"data": "x"}, "queue_id": -1},
        {"body": {"data": "x"}, "tags": "a b"},
        {"body": {"data": "x"}, "properties": {"UNIQ_KEY": "mine"}},
        {"body": {"data": "x"}, "properties": {"a\u0001b": "c"}},
        {"body": {"data": "x"}, "delay": 3},
    ],
)
def test_a_wrong_message_is_not_sent(operator, viewer, topic, body):
    problem_of(operator.post(f"/topics/{topic}/messages", body, idempotency_key="again"), 422, "invalid_input")
    assert answer_of(viewer.get(f"/topics/{topic}/messages"))["items"] == []
    assert not IdempotentAnswer.objects.exists(), "a refused request leaves its key free"


def send(caller, topic, key, data="once"):
    return caller.post(f"/topics/{topic}/messages", {"body": {"data": data}}, idempotency_key=key)


def test_a_repeated_send_sends_once(operator, viewer, topic):
    first = send(operator, topic, "key-1")
    again = send(operator, topic, "key-1")
    assert answer_of(first, 201) == answer_of(again, 201)
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(answer_of(viewer.get(f"/topics/{topic}/messages"))["items"]) == 1
    assert AuditEntry.objects.count() == 1
    problem_of(send(operator, topic, "key-1", "other"), 422, "idempotency_key_reused")
    answer_of(send(operator, topic, "key-2"), 201)
    assert len(answer_of(viewer.get(f"/topics/{topic}/messages"))["items"]) == 2


def test_keys_of_two_callers_never_meet(by_token, topic):
    first = answer_of(send(by_token("operator"), topic, "key"), 201)
    second = answer_of(send(by_token("operator"), topic, "key"), 201)
    assert first["offset_id"] != second["offset_id"]


def test_a_key_is_forgotten_after_a_day(operator, topic):
    first = answer_of(send(operator, topic, "key"), 201)
    IdempotentAnswer.objects.update(created_at_ms=now_ms() - 24 * 3600 * 1000 - 1)
    assert answer_of(send(operator, topic, "key"), 201)["offset_id"] != first["offset_id"]


def test_of_a_send_without_an_end_nobody_knows_and_the_key_is_refused(operator, topic, running, monkeypatch):
    def too_slow(*_args, **_options):
        raise Unavailable("There was no answer within 10 s; the message may have been stored.")

    monkeypatch.setattr(type(running.window.sender), "send", too_slow)
    response = send(operator, topic, "key")
    assert problem_of(response, 503, "unavailable")["rocketmq_code"] == 14
    assert response.headers["Retry-After"]
    monkeypatch.undo()
    assert problem_of(send(operator, topic, "key"), 409, "idempotency_outcome_unknown")["hint"]
    assert AuditEntry.objects.get().result == "failed"
    IdempotentAnswer.objects.update(status=0)
    problem_of(send(operator, topic, "key"), 409, "idempotency_in_progress")
    IdempotentAnswer.objects.update(created_at_ms=now_ms() - 61_000)
    problem_of(send(operator, topic, "key"), 409, "idempotency_outcome_unknown")


@pytest.mark.parametrize("key", ["", "x" * 201, "a b", "ключ"], ids=ascii)
def test_a_key_is_printable_and_short(operator, topic, key):
    problem = problem_of(send(operator, topic, key), 422, "invalid_input")
    assert problem["errors"][0]["field"].lower() == "idempotency-key"


def test_a_message_needs_its_topic(operator):
    assert problem_of(send(operator, "NoSuchTopic", "k"), 404, "topic_not_found")["rocketmq_code"] == 17
    problem_of(send(operator, encoded("a/b"), "k"), 404, "not_found")
