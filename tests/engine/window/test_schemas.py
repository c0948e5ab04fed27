"""The schemas of topics: kept over a restart, gone with their topic, and used wherever a body is shown."""

from __future__ import annotations

import base64
import errno
import json

import pytest
from msgspec import structs

from appliance.engine.errors import InvalidInput, NotFound, Unavailable
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.window.messages.tail import Wanted
from appliance.engine.window.topics import schemas as schemas_module
from tests.support.engine import RunningEngine, start_engine
from tests.support.golden import GOLDEN

RECORD = b'{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}'
DELETE_TOPIC = 215


def shown(running, topic, offset=0):
    return running.window.messages.body(f"{topic}/0/{offset}")


def test_a_body_is_shown_by_its_topics_schema_beside_the_raw_one(running):
    running.put("Orders", b"\x54", b"\x80")
    assert (shown(running, "Orders").decoded, shown(running, "Orders").schema) == (None, None)
    change = running.window.schemas.put("Orders", kind="avro", data=RECORD, by="anna", dry_run=True)
    assert running.window.schemas.find("Orders") is None
    change = running.window.schemas.put("Orders", kind="avro", data=RECORD, by="anna")
    assert {one.field: one.after for one in change.differences}["name"] == "shop.Order"
    view = shown(running, "Orders")
    assert (json.loads(view.decoded), view.schema, view.hex[:16]) == ({"id": 42}, "Avro shop.Order", "00000000  54    ")
    view = shown(running, "Orders", 1)
    assert (view.decoded, view.notes[0].code) == (None, "body_unfit")
    assert "ends too early" in str(view.notes[0])


def test_a_schema_is_there_that_is_set_before_the_log_has_the_place_of_the_last_deletion(running, monkeypatch):
    """As at a slave, which hears of deletions first."""
    running.put("Orders", b"x")
    schemas = running.window.schemas
    deleted_to = running.engine.broker.store.log.written + 1000
    monkeypatch.setattr(schemas._deleted, "below", lambda topic: deleted_to)
    schemas.put("Orders", kind="avro", data=RECORD)
    assert schemas.find("Orders").name == "shop.Order"
    monkeypatch.setattr(schemas._deleted, "below", lambda topic: deleted_to + 1)
    assert schemas.find("Orders") is None


def test_a_schema_is_gone_with_its_topic_in_a_process_that_no_console_has_asked_yet(tmp_path):
    """A deletion leaves no note if the topic had no queue, and one only for as long as the log has its messages."""
    running = RunningEngine(tmp_path)
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    running.stop()
    again = RunningEngine.of(start_engine(tmp_path))
    try:
        own = again.engine.broker.store.paths.own
        assert again.peer().ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
        assert json.loads((own / schemas_module.FILE).read_text()) == {"schemas": {}}
    finally:
        again.stop()


def test_copies_of_a_message_are_shown_by_the_schema_of_its_own_topic(running):
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    running.put("%DLQ%billing", b"\x54", properties=encode_properties({"RETRY_TOPIC": "Orders"}))
    assert json.loads(shown(running, "%DLQ%billing").decoded) == {"id": 42}


def test_filters_read_the_decoded_body(running):
    running.put("Orders", b"\x54", b"\x56", b"\x80", b'{"id": 42}')
    running.put("%DLQ%billing", b"\x54", properties=encode_properties({"RETRY_TOPIC": "Orders"}))

    def found(expression, topic="Orders"):
        page = running.window.messages.page(topic, filter_text=expression)
        return sorted(row.queue_offset for row in page.rows), page.undecided

    assert found("body('$.id') = 42") == ([3], 0)
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    assert found("body('$.id') = 42") == ([0, 3], 0), "one that does not fit is read as JSON"
    assert found("body('$.id') > 42") == ([1], 0)
    assert found("body('$.id') = 42", "%DLQ%billing") == ([0], 0)
    running.window.schemas.put("Orders", kind="avro", data=b'{"type": "array", "items": "null"}')
    running.put("Orders", b"\xa0\x1f\0")  # two thousand values
    assert found("body('$[0]') IS NOT NULL")[1] == 1, "that many are not decoded for a filter"
    running.window.schemas.put("Orders", kind="protobuf", data=b"message A { repeated bool a = 2; }")
    running.put("Orders", b"\0\0\0\0\x07\0" + b"\x12\xd0\x0f" + b"\1" * 2000)
    assert found("body('$.a') IS NOT NULL")[1] == 1, "nor behind the header of a serializer"


def test_a_message_cannot_choose_the_schema_of_another_topic(running):
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    running.put("Other", b"\x54", properties=encode_properties({"REAL_TOPIC": "Orders"}))
    assert (shown(running, "Other").schema, shown(running, "Other").decoded) == (None, None)


def test_a_tail_shows_decoded_bodies_on_one_line(running):
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    tail = running.window.tails.begin(Wanted("Orders", body_chars=200))
    running.put("Orders", b"\x54", b"\xff")
    rows = tail.look().rows
    tail.close()
    assert [(row.glance, row.binary) for row in rows] == [('{"id":42}', False), ("ff", True)]


def test_a_schema_survives_a_restart_and_goes_with_its_topic(tmp_path):
    running = RunningEngine(tmp_path)
    running.put("Orders", b"\x54")
    running.put("Gone", b"\x54")
    for topic in ("Orders", "Gone"):
        running.window.schemas.put(topic, kind="avro", data=RECORD, by="anna")
    assert running.peers[-1].ask(DELETE_TOPIC, {"topic": "Gone"}).code == 0
    running.put("Gone", b"\x54")
    [row] = running.window.messages.page("Gone").rows
    assert running.window.messages.body(row.offset_id).schema is None, "a new topic of that name has no schema"
    running.stop()
    again = RunningEngine(tmp_path)
    try:
        assert again.window.schemas.get("Orders").by == "anna"
        assert json.loads(shown(again, "Orders").decoded) == {"id": 42}
        assert again.window.schemas.find("Gone") is None
        again.window.schemas.remove("Orders")
        with pytest.raises(NotFound):
            again.window.schemas.get("Orders")
        assert shown(again, "Orders").schema is None
    finally:
        again.stop()


def test_what_may_not_be_kept_is_refused(running, monkeypatch):
    put = running.window.schemas.put
    running.put("Orders", b"x")
    with pytest.raises(NotFound):
        put("None", kind="avro", data=RECORD)
    with pytest.raises(InvalidInput, match="it is not JSON"):
        put("Orders", kind="avro", data=b"{")
    with pytest.raises(InvalidInput, match="one of"):
        put("Orders", kind="pickle", data=b"{")
    with pytest.raises(InvalidInput, match="too long"):
        put("Orders", kind="avro", data=RECORD, message="m" * 1001)
    monkeypatch.setattr(schemas_module, "MOST_TOPICS", 0)
    with pytest.raises(InvalidInput, match="at most 0 topics"):
        put("Orders", kind="avro", data=RECORD)
    assert running.window.schemas.find("Orders") is None


def test_a_damaged_file_hides_no_body(tmp_path):
    own = tmp_path / "rocketbox"
    running = RunningEngine(tmp_path)
    try:
        running.put("Orders", b"\x54")
        (own / schemas_module.FILE).write_text("{")
        assert shown(running, "Orders").text == "T"
        with pytest.raises(Unavailable, match="cannot be read"):
            running.window.schemas.find("Orders")
        with pytest.raises(Unavailable, match="cannot be read"):
            running.window.schemas.put("Orders", kind="avro", data=RECORD)
        assert (own / schemas_module.FILE).read_text() == "{"
        assert running.peers[-1].ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
    finally:
        running.stop()


def test_a_protobuf_body_is_shown_by_the_message_that_was_named(running):
    recorded = json.loads((GOLDEN / "bodies" / "protobuf.json").read_text())
    running.put("Orders", bytes.fromhex(recorded["cases"][0]["body"]))
    put, described = running.window.schemas.put, base64.b64decode(recorded["shop"])
    with pytest.raises(InvalidInput, match="name a message in it"):
        put("Orders", kind="protobuf", data=described)
    put("Orders", kind="protobuf", data=described, message="shop.v1.Order")
    view = shown(running, "Orders")
    assert (json.loads(view.decoded), view.schema) == (recorded["cases"][0]["shown"], "Protobuf shop.v1.Order")
    assert running.window.schemas.get("Orders").data == described


def test_a_topic_is_gone_only_with_its_schema(running, monkeypatch):
    """A new topic of that name had the schema of the one before."""
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)

    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(schemas_module, "save_json_atomically", full)
        answer = running.peers[-1].ask(DELETE_TOPIC, {"topic": "Orders"})
        assert (answer.code, "try again" in answer.remark) == (1, True)
    assert running.peers[-1].ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
    running.put("Orders", b"\x54")
    assert running.window.schemas.find("Orders") is None


def test_a_kept_schema_that_cannot_be_read_is_tried_once(running, caplog):
    running.put("Orders", b"\x54")
    running.window.schemas.put("Orders", kind="avro", data=RECORD)
    schemas = running.window.schemas
    kept = schemas._kept["Orders"]
    schemas._kept = {"Orders": structs.replace(kept, data="e30=")}  # {}
    assert [schemas.reader("Orders") for _ in range(3)] == [None] * 3
    assert sum("cannot be read" in line for line in caplog.messages) == 1
    schemas._kept = {"Orders": structs.replace(kept, data="e30")}  # as an editor may leave it
    with pytest.raises(Unavailable, match="cannot be read"):
        schemas.find("Orders")
    schemas.put("Orders", kind="avro", data=RECORD)
    assert schemas.reader("Orders") is not None
