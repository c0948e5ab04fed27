"""Messages: by time, one by one, their content; and sending one. Hostile ones everywhere."""

import base64
import gzip
import re
import zlib

import pytest
from django.utils.html import escape

from appliance.console.models import AuditEntry
from appliance.engine.protocol.command import decode_frame
from tests.support.engine import Peer, send_fields
from tests.support.golden import GOLDEN, frames

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"


def entry() -> AuditEntry:
    return AuditEntry.objects.first()


def test_pages_walk_a_snapshot_that_new_messages_do_not_move(client_as, broker, topic):
    for number in range(60):
        broker.send_test_message(topic, b"x", keys=(f"k{number}",))
    client = client_as("viewer")
    first = client.get("/messages/", {"topic": topic, "order": "oldest"})
    assert "50 of 60" in first.content.decode()
    broker.send_test_message(topic, b"x", keys=("late",))
    cursor = first.context["page"].next_cursor
    second = client.get("/messages/", {"topic": topic, "order": "oldest", "cursor": cursor})
    page = second.content.decode()
    assert "60 of 60" in page
    assert "late" not in page
    keys = [key for page in (first, second) for row in page.context["page"].rows for key in row.keys]
    assert keys == [f"k{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"topic": "no-such-topic"}, 404),
        ({"from": "yesterday"}, 400),
        ({"cursor": "00"}, 400),
        ({"queue": "-1"}, 400),
        ({"queue": "99"}, 404),
    ],
)
def test_what_is_asked_wrongly_is_said_on_the_page(client_as, broker, topic, asked, status):
    response = client_as("viewer").get("/messages/", {"topic": topic} | asked)
    assert response.status_code == status
    assert 'role="alert"' in response.content.decode()


def test_the_story_is_there_without_the_right_to_bodies_and_the_body_is_not(client_as, broker, topic):
    sent = broker.send_test_message(topic, b"the-secret-body")
    client = client_as("admin")
    page = client.get(f"/messages/{sent.offset_id}/").content.decode()
    assert "You may not read message bodies" in page
    assert "the-secret-body" not in page
    for part in ("content", "raw", "download"):
        response = client.get(f"/messages/{sent.offset_id}/{part}/")
        assert response.status_code == 403
        assert b"the-secret-body" not in response.content


def test_who_has_it_is_told_with_the_reason(client_as, broker, topic, monkeypatch):
    sent = broker.send_test_message(topic, b"x")
    page = client_as("viewer").get(f"/messages/{sent.offset_id}/").content.decode()
    assert "No group consumes this topic" in page


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        (b'{"a": [1, 2]}', "json", "&quot;a&quot;"),
        ("täglich 中文".encode(), "text", "täglich 中文"),
        (b"\x00\x01\xff", "hex", "00 01 ff"),
        (b"\x00\x01\xff", "base64", "AAH/"),
        (gzip.compress(b"packed words"), "text", "packed words"),
        (zlib.compress(b"other packed words"), "text", "other packed words"),
    ],
)
def test_a_body_is_shown_decoded_and_the_look_is_audited(client_as, broker, topic, body, form, shown):
    sent = broker.send_test_message(topic, body)
    client = client_as("viewer", "may_read_bodies")
    page = client.get(f"/messages/{sent.offset_id}/content/", {"as": form}).content.decode()
    assert shown in page
    assert entry().action == "message.read"
    assert entry().target == f"{topic}/{sent.queue_id}/{sent.queue_offset}"


def recorded_compressed_sends() -> list[tuple[str, bytes]]:
    """(kind, request frame) of what RocketMQ's own client compressed when it was recorded."""
    found = []
    for line, frame in frames(GOLDEN / "wire" / "5.3.3" / "compression.jsonl.gz"):
        if line["code"] == 310 and line["dir"] == "request":
            found.append((re.search(r"KEYS\x01k(\w+)", line["header"]["extFields"]["i"])[1], frame))
    return found


def test_bodies_that_the_java_client_compressed_are_read_in_every_form(client_as, broker):
    client = client_as("viewer", "may_read_bodies")
    peer = Peer(broker.system().broker_address)
    kinds = []
    for kind, frame in recorded_compressed_sends():
        command = decode_frame(frame)
        answer = peer.ask(310, command.ext_fields, command.body)
        assert answer.code == 0
        page = f"/messages/{answer.ext_fields['msgId']}/content/"
        packing = {"LZ4": "lz4", "ZSTD": "zstd", "ZLIB": "zlib"}[kind]
        text = client.get(page, {"as": "text"})
        plain = text.context["body"]
        assert plain.layers == (packing,)
        assert plain.stored_bytes == len(command.body) < plain.decoded_bytes == len(plain.text)
        assert escape(plain.text[:40]) in text.content.decode()
        assert packing in text.content.decode()
        hexed = client.get(page, {"as": "hex"}).content.decode()
        assert plain.text[:8].encode().hex(" ") in hexed
        packed = client.get(page, {"as": "base64"}).context["shown"]
        assert base64.b64decode(packed) == plain.text.encode()
        kinds.append(kind)
    assert sorted(kinds) == ["LZ4", "ZLIB", "ZSTD"]
    peer.close()


def test_compressed_json_is_indented(client_as, broker, topic):
    peer = Peer(broker.system().broker_address)
    answer = peer.ask(310, send_fields(topic, 0, "", f=1), zlib.compress(b'{"order":[1,2]}'))
    peer.close()
    client = client_as("viewer", "may_read_bodies")
    page = client.get(f"/messages/{answer.ext_fields['msgId']}/content/")
    assert page.context["form"] == "json", "what it is is recognised"
    assert "{\n  &quot;order&quot;: [\n    1," in page.content.decode()


def test_the_raw_record_and_the_download(client_as, broker, topic):
    sent = broker.send_test_message(topic, b"<b>bytes</b>")
    client = client_as("viewer", "may_read_bodies", "may_export")
    page = client.get(f"/messages/{sent.offset_id}/raw/").content.decode()
    assert "<b>bytes</b>" not in page
    response = client.get(f"/messages/{sent.offset_id}/download/")
    assert response.content == b"<b>bytes</b>"
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("attachment")
    assert entry().action == "message.export"


def test_nothing_hostile_becomes_markup(client_as, broker, topic):
    sent = broker.send_test_message(
        topic, HOSTILE.encode(), tags="tag<script>", keys=("key<script>",), properties={"p<script>": HOSTILE}
    )
    client = client_as("viewer", "may_read_bodies")
    at = f"/messages/{sent.offset_id}/"
    for address in (at, f"{at}content/", f"{at}raw/", f"/messages/?topic={topic}", "/"):
        page = client.get(address).content.decode()
        assert "<script>" not in page, address
    for address in ("/topics/", "/groups/", "/clients/", "/messages/", "/system/config/"):
        page = client.get(address, {"q": HOSTILE, "find": HOSTILE, "topic": HOSTILE}).content.decode()
        assert "<script>" not in page, address
        assert "alert(1)" in page, f"{address} shows what was asked for"


def test_a_test_message_is_sent_audited_and_shown(client_as, broker, topic):
    form = {"topic": topic, "body": "hello\r\nthere", "tags": "t", "keys": "a b", "properties": "color=red"}
    response = client_as("operator").post("/messages/send/", form)
    assert response.status_code == 302
    row = broker.messages(topic).rows[0]
    assert response.headers["Location"] == f"/messages/{row.offset_id}/"
    assert broker.message_bytes(row.offset_id) == b"hello\nthere"
    assert (row.tags, row.keys) == ("t", ("a", "b"))
    assert broker.message(row.offset_id).properties["color"] == "red"
    assert entry().action == "message.send"
    assert "hello" not in str(entry().after), "bodies do not go into the audit log"


@pytest.mark.parametrize(
    "wrong", [{"topic": "no-such-topic"}, {"topic": ""}, {"queue_id": "77"}, {"properties": "no equals sign"}]
)
def test_what_cannot_be_sent_is_said_in_the_form(client_as, broker, topic, wrong):
    response = client_as("operator").post("/messages/send/", {"topic": topic, "body": "x"} | wrong)
    assert response.status_code == 422
    assert "error" in response.content.decode()


def test_a_viewer_sends_nothing(client_as, broker, topic):
    client = client_as("viewer")
    assert client.get("/messages/send/").status_code == 403
    assert client.post("/messages/send/", {"topic": topic, "body": "x"}).status_code == 403
    assert broker.messages(topic).total == 0
    assert "/messages/send/" not in client.get(f"/topics/{topic}/").content.decode()
