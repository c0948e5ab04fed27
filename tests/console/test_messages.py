"""Messages: by time, one by one, their content; and sending one. Hostile ones everywhere."""

import base64
import gzip
import re
import time
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
        broker.sender.send(topic, b"x", keys=(f"k{number}",))
    client = client_as("viewer")
    first = client.get("/messages/", {"topic": topic, "order": "oldest"})
    assert "50 of 60" in first.content.decode()
    broker.sender.send(topic, b"x", keys=("behind-the-snapshot",))
    cursor = first.context["page"].next_cursor
    second = client.get("/messages/", {"topic": topic, "order": "oldest", "cursor": cursor})
    page = second.content.decode()
    assert "60 of 60" in page
    assert "behind-the-snapshot" not in page
    keys = [key for page in (first, second) for row in page.context["page"].rows for key in row.keys]
    assert keys == [f"k{number}" for number in range(60)]


def test_a_list_shows_bodies_to_those_who_may_read_them(client_as, broker, topic):
    broker.sender.send(topic, b'{"city": "Gent"}')
    broker.sender.send(topic, HOSTILE.encode() + b"x" * 300)
    asked = {"topic": topic, "bodies": "on"}
    assert "Gent" not in client_as("viewer").get("/messages/", asked).content.decode()
    reader = client_as("operator", "may_read_bodies")
    assert "Gent" not in reader.get("/messages/", {"topic": topic}).content.decode()
    assert AuditEntry.objects.filter(action="message.read", target=topic).count() == 0
    page = reader.get("/messages/", asked).content.decode()
    assert "{&quot;city&quot;: &quot;Gent&quot;}" in page
    assert f"/topics/{topic}/messages?body_chars=160" in page, "as curl"
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    assert "x…" in page
    assert (entry().action, entry().target, entry().after) == ("message.read", topic, {"messages": 2})
    assert b"Gent" not in reader.get("/messages/", asked | {"format": "csv"}).content, "a file is an export"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"topic": "no-such-topic"}, 404),
        ({"from": "soon"}, 400),
        ({"cursor": "00"}, 400),
        ({"queue": "-1"}, 400),
        ({"queue": "99"}, 404),
    ],
)
def test_what_is_asked_wrongly_is_said_on_the_page(client_as, broker, topic, asked, status):
    response = client_as("viewer").get("/messages/", {"topic": topic} | asked)
    assert response.status_code == status
    assert 'role="alert"' in response.content.decode()


def test_what_is_wrong_with_a_filter_is_marked_as_english(client_as, broker, topic):
    """The rest of the sentence is in the reader's language; what the filter says is no markup."""
    response = client_as("viewer").get("/messages/", {"topic": topic, "filter": "tag = <b>"})
    assert response.status_code == 400
    page = response.content.decode()
    assert '<span lang="en">' in page
    assert "<b>" not in page.partition('role="alert"')[2].partition("</p>")[0]


def test_the_story_is_there_without_the_right_to_bodies_and_the_body_is_not(client_as, broker, topic):
    sent = broker.sender.send(topic, b"the-secret-body")
    client = client_as("admin")
    page = client.get(f"/messages/{sent.offset_id}/").content.decode()
    assert "You may not read message bodies" in page
    assert "the-secret-body" not in page
    for part in ("content", "raw", "download"):
        response = client.get(f"/messages/{sent.offset_id}/{part}/")
        assert response.status_code == 403
        assert b"the-secret-body" not in response.content


def test_who_has_it_is_told_with_the_reason(client_as, broker, topic, monkeypatch):
    sent = broker.sender.send(topic, b"x")
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
    sent = broker.sender.send(topic, body)
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
    sent = broker.sender.send(topic, b"<b>bytes</b>")
    client = client_as("viewer", "may_read_bodies", "may_export")
    page = client.get(f"/messages/{sent.offset_id}/raw/").content.decode()
    assert "<b>bytes</b>" not in page
    response = client.get(f"/messages/{sent.offset_id}/download/")
    assert response.content == b"<b>bytes</b>"
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("attachment")
    assert entry().action == "message.export"


def test_nothing_hostile_becomes_markup(client_as, broker, topic):
    sent = broker.sender.send(
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
    row = broker.messages.page(topic).rows[0]
    assert response.headers["Location"] == f"/messages/{row.offset_id}/"
    assert broker.messages.body_bytes(row.offset_id) == b"hello\nthere"
    assert (row.tags, row.keys) == ("t", ("a", "b"))
    assert broker.messages.detail(row.offset_id).properties["color"] == "red"
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
    assert broker.messages.page(topic).total == 0
    assert "/messages/send/" not in client.get(f"/topics/{topic}/").content.decode()


def sent_row(broker, response):
    """The message that a form's answer leads to."""
    assert response.status_code == 302, response.content.decode()
    return broker.messages.detail(response.headers["Location"].split("/")[2])


def test_every_kind_of_message_is_sent_and_audited(client_as, broker, topic):
    client = client_as("operator")
    form = {"topic": topic, "body": "x", "tags": "t"}
    by_key = [
        sent_row(broker, client.post("/messages/send/", form | {"kind": "ordered", "sharding_key": "order-4711"}))
        for _ in range(5)
    ]
    # Java's "order-4711".hashCode() % 4, without its sign.
    assert {row.queue_id for row in by_key} == {2}
    assert broker.messages.detail(by_key[0].offset_id).properties["__SHARDINGKEY"] == "order-4711"
    chosen = sent_row(broker, client.post("/messages/send/", form | {"kind": "ordered", "queue_id": "2"}))
    assert chosen.queue_id == 2
    level = sent_row(broker, client.post("/messages/send/", form | {"kind": "level", "delay_level": "16"}))
    assert (level.topic, level.properties["REAL_TOPIC"]) == ("SCHEDULE_TOPIC_XXXX", topic)
    assert entry().after["delay_level"] == 16
    tomorrow = int(time.time()) + 86_400
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(tomorrow))
    later = sent_row(broker, client.post("/messages/send/", form | {"kind": "time", "deliver_at": at}))
    assert later.topic == "rmq_sys_wheel_timer"
    assert 0 <= tomorrow * 1000 - int(later.properties["TIMER_OUT_MS"]) <= 1
    said = sent_row(broker, client.post("/messages/send/", form | {"kind": "time", "deliver_at": "in 2 h"}))
    assert int(said.properties["TIMER_OUT_MS"]) // 1000 >= int(time.time()) + 7100
    half = sent_row(broker, client.post("/messages/send/", form | {"kind": "half", "half_of": "PG"}))
    assert half.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert entry().after["kind"] == "half"
    assert any(one.half_offset == half.queue_offset for one in broker.transactions.open().rows)


def test_a_span_of_times_is_typed_as_people_say_it(client_as, broker, topic):
    broker.sender.send(topic, b"x")
    client = client_as("viewer")
    for name, text, count in (("from", "1 h ago", 1), ("to", "1 小时前", 0), ("from", "2 days ago 10:00", 1)):
        page = client.get("/messages/", {"topic": topic, name: text})
        assert len(page.context["page"].rows) == count, text
        # Written out, so that the next page and a link in a chat mean the same.
        assert re.search(rf'name="{name}"[^>]* value="\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"', page.content.decode())
    page = client.get(f"/messages/?topic={topic}&from=soon")
    assert "“soon” is not a date and time like" in page.content.decode()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"kind": "level"}, "delay_level"), ({"kind": "time"}, "deliver_at"), ({"kind": "half"}, "half_of"),
        ({"kind": "ordered"}, "sharding_key"),
        ({"kind": "ordered", "queue_id": "1", "sharding_key": "k"}, "sharding_key"),
        ({"body_is": "base64", "body": "no base64!"}, "body"), ({"kind": "level", "delay_level": "77"}, "delay_level"),
        ({"kind": "time", "deliver_at": "soon"}, "deliver_at"),
        ({"kind": "time", "deliver_at": "2199-01-01T00:00:00"}, "deliver_at"),
        ({"kind": "half", "half_of": "a b"}, "half_of"),
    ],
)  # fmt: skip
def test_what_a_kind_lacks_is_said_at_its_field(client_as, broker, topic, wrong, field):
    response = client_as("operator").post("/messages/send/", {"topic": topic, "body": "x"} | wrong)
    assert response.status_code == 422
    assert response.context["form"].errors.keys() == {field}
    assert broker.messages.page(topic).total == 0


def resend(client, ref: str) -> dict[str, str]:
    """The form as it comes filled in, as a browser would send it."""
    form = client.get("/messages/send/", {"from": ref}).context["form"]
    return {name: str(form[name].value() or "") for name in form.fields}


@pytest.mark.parametrize("body", ["täglich 中文\nzwei".encode(), bytes(range(256)), b"a\r\nb", b"\nfirst", b"{}"])
def test_a_message_is_sent_again_as_it_was(client_as, broker, topic, body):
    sent = broker.sender.send(
        topic, body, tags="paid", keys=("k1", "k2"), properties={"color": "red", "n": "1"}, sharding_key="s"
    )
    client = client_as("operator", "may_read_bodies")
    form = resend(client, sent.offset_id)
    assert entry().action == "message.read"
    again = sent_row(broker, client.post("/messages/send/", form))
    assert again.offset_id != sent.offset_id
    assert broker.messages.body_bytes(again.offset_id) == body
    assert (again.topic, again.tags, again.keys) == (topic, "paid", ("k1", "k2"))
    assert again.queue_id == sent.queue_id
    first = broker.messages.detail(sent.offset_id).properties
    assert {name: value for name, value in again.properties.items() if name != "UNIQ_KEY"} == {
        name: value for name, value in first.items() if name != "UNIQ_KEY"
    }


def test_what_a_client_compressed_is_sent_again_as_it_was_meant(client_as, broker, topic):
    peer = Peer(broker.system().broker_address)
    answer = peer.ask(310, send_fields(topic, 0, "", f=1), zlib.compress(b"meant"))
    peer.close()
    client = client_as("operator", "may_read_bodies")
    again = sent_row(broker, client.post("/messages/send/", resend(client, answer.ext_fields["msgId"])))
    assert broker.messages.body_bytes(again.offset_id) == b"meant"


def test_a_copy_on_its_way_is_sent_to_where_it_was_meant(client_as, broker, topic):
    waits = broker.sender.send(topic, b"x", delay_level=16)
    assert resend(client_as("operator", "may_read_bodies"), waits.offset_id)["topic"] == topic


def test_without_the_right_to_bodies_the_form_has_none_and_says_so(client_as, broker, topic):
    sent = broker.sender.send(topic, b"the-secret-body", keys=("k",), properties={"odd": "two\nlines"})
    page = client_as("operator").get("/messages/send/", {"from": sent.offset_id}).content.decode()
    assert "the-secret-body" not in page
    assert "you may not read message bodies" in page
    assert "<code>odd</code>" in page
    assert AuditEntry.objects.filter(action="message.read").count() == 0
