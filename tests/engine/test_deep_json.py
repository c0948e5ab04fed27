"""JSON of peers and in files that is nested 100,000 deep is refused as any other that is wrong: RecursionError would
pass those who wait for ValueError, and end their threads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.client.errors import BadAnswer
from appliance.client.local_offsets import _read as read_offsets
from appliance.client.message import MessageQueue, ReceivedMessage
from appliance.engine import wire_act
from appliance.engine.access import book, unknown_fields
from appliance.engine.backup import manifest
from appliance.engine.broker.offset_resets import records
from appliance.engine.broker.registration import Registration
from appliance.engine.broker.replay import journal
from appliance.engine.broker.transactions import admin_journal
from appliance.engine.config import parse_first_user
from appliance.engine.crc_lines import line_of
from appliance.engine.disk import Disk
from appliance.engine.errors import CorruptFile
from appliance.engine.failover import quarantine, set_state
from appliance.engine.fastjson import MAX_DEPTH, loads_plain
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.store.retention import purged_queues


def deep(depth: int = 100_000) -> bytes:
    return b"[" * depth + b"]" * depth


def object_of(depth: int = 100_000) -> bytes:
    """Return an object in whose only field the depth is; no reader knows that field."""
    return b'{"deep":' + deep(depth) + b"}"


@pytest.mark.parametrize(
    ("read", "refusal"),
    [
        (loads_plain, ValueError),
        (book.decoded, ValueError),
        (manifest.decode, ValueError),
        (purged_queues.decode, ValueError),
        (lambda data: parse_first_user(data.decode()), ValueError),
        (lambda data: set_state.decode_state(object_of(30_000)), CorruptFile),
        (lambda data: set_state.decode_announcement(object_of(30_000)), CorruptFile),
        (lambda data: journal.read_lines(line_of(b"[" + data + b"]")), CorruptFile),
    ],
    ids=["plain", "users", "manifest", "purged", "first user", "set", "member", "replay"],
)
def test_it_is_refused(read: Any, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        read(object_of())


@pytest.mark.parametrize("decode", [admin_journal.decode_line, records.decode_line], ids=["decisions", "resets"])
def test_its_line_counts_as_damaged(decode: Any) -> None:
    assert decode(line_of(object_of()).removesuffix(b"\n")) is None


def test_acts_beside_it_are_read() -> None:
    head = b'{"series":"9f86d081884c7d65","from":17}\n'
    act = b'{"n":17,"at_ms":1700000000000,"host":"10.0.0.5","port":4711,"action":"topic.set","target":"T"}\n'
    found, acts = wire_act.read_acts(head + object_of() + b"\n" + act)
    assert found is not None
    assert [one.n for one in acts] == [17]
    assert wire_act.read_acts(object_of() + b"\n") == (None, [])


def test_files_of_it_count_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(object_of())
    assert quarantine._load_json(Disk(), path) is None
    key = b'{"brokerName":' + deep(500) + b"}"
    path.write_bytes(b'{"offsetTable":{' + key + b":5}}")
    with pytest.raises(BadAnswer):
        read_offsets(path)
    path.write_bytes(b'{"offsetTable":{"' + deep() + b'":5}}')
    with pytest.raises(BadAnswer):
        read_offsets(path)


def test_an_order_configuration_of_it_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    told: list[dict[str, str]] = []
    registration = cast(Registration, SimpleNamespace(_on_orders=told.append))
    Registration._take_answer(registration, RemotingCommand.response(0, None, body=object_of()))
    assert not told
    assert "does not parse" in caplog.text


def test_a_body_of_it_is_no_json() -> None:
    message = ReceivedMessage(cast(Any, None), MessageQueue("T", "b", 0))
    message._body = deep()
    with pytest.raises(ValueError, match="too deeply"):
        message.json()


def test_what_is_kept_for_a_newer_version_can_be_read_from_any_stack() -> None:
    """Read at some depth, it could else be too deep for the next start."""
    account = b'{"name":"a","later":%s}'
    kept = unknown_fields.read(account % deep(MAX_DEPTH - 1), book.Account, {})
    assert unknown_fields.names_of(kept, {}) == {"later"}
    with pytest.raises(ValueError, match="too deeply"):
        unknown_fields.read(account % deep(MAX_DEPTH), book.Account, {})
