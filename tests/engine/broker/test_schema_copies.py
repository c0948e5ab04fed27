"""The copy of the schemas of topics, without a network between the two."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.schema_copies import SchemaCopy, piece
from appliance.engine.disk import Disk
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.window.topics.schemas import TopicSchemas

SOME, OTHER = b'{"schemas":{"a":1}}', b'{"schemas":{"b":22}}'


def answer(told: str | None, body: bytes = b"", code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    return RemotingCommand.response(code, None, {} if told is None else {"schemas": told}, body=body)


def test_a_file_that_another_version_replaces_in_between_is_read_from_its_beginning(tmp_path):
    copy = SchemaCopy(tmp_path / "here", Disk())
    answers = [answer("one:19", SOME[:10]), answer("two:20", OTHER[:15]), answer("two:20", OTHER[15:])]
    asked = []

    def ask(request):
        asked.append(request.ext_fields["schemas"])
        return answers.pop(0)

    assert copy.take(ask)
    assert asked == ["0:0", "one:10", "two:15"]
    assert (tmp_path / "here").read_bytes() == OTHER
    assert not copy.take(lambda request: answer("two:20")), "it is known"


@pytest.mark.parametrize(
    "given",
    [answer("one:40", b""), answer("one:3", b"[] "), answer("one:5", b"{\"a\""), answer("one:x", b"{}"),
     answer(f"one:{1 << 40}", SOME), answer("one:0", b"")],
    ids=["nothing comes", "a list", "half of it", "no size", "too long", "an empty file"],
)  # fmt: skip
def test_what_is_no_file_of_schemas_changes_nothing(tmp_path, given):
    path = tmp_path / "here"
    path.write_bytes(SOME)
    with pytest.raises((ValueError, AttributeError)):
        SchemaCopy(path, Disk()).take(lambda request: given)
    assert path.read_bytes() == SOME


def test_what_a_former_master_has_alone_goes_when_it_follows_one_that_has_none(tmp_path):
    path = tmp_path / "here"
    path.write_bytes(SOME)
    copy = SchemaCopy(path, Disk())
    assert copy.take(lambda request: answer("0:0"))
    assert path.read_bytes() == b'{"schemas":{}}'
    assert not copy.take(lambda request: answer("0:0")), "it is known"


def test_brokers_that_have_none_leave_what_is_here(tmp_path):
    path = tmp_path / "here"
    path.write_bytes(SOME)
    copy = SchemaCopy(path, Disk())
    assert not copy.take(lambda request: answer(None, b"topics"))
    assert not copy.take(lambda request: answer(None, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    assert path.read_bytes() == SOME


def test_a_master_without_schemas_takes_them_from_the_slave(tmp_path):
    path, there = tmp_path / "here", tmp_path / "there"

    def ask(request):
        return answer(*piece(there, Disk(), request.ext_fields["schemas"]))

    copy = SchemaCopy(path, Disk())
    assert not copy.take(ask)
    assert not path.exists()
    there.write_bytes(SOME)
    assert copy.take(ask)
    there.unlink()
    assert copy.take(ask)
    assert path.read_bytes() == b'{"schemas":{}}'


def test_a_strange_place_is_the_beginning(tmp_path):
    path = tmp_path / "there"
    path.write_bytes(SOME)
    version = piece(path, Disk(), "0:0")[0].partition(":")[0]
    assert piece(path, Disk(), f"{version}:4")[1] == SOME[4:]
    for asked in ("", ":", f"{version}:-1", f"{version}:{'9' * 30}", f"x{version}:4"):
        assert piece(path, Disk(), asked) == (f"{version}:{len(SOME)}", SOME)


def test_a_copy_that_gets_the_number_of_an_earlier_file_is_read(tmp_path):
    """A file system gives the number of a file that is gone to a later one."""
    path = tmp_path / "schemas.json"

    def give(name: str) -> None:
        one = {"kind": "avro", "data": "", "message": "", "name": name, "set_at_ms": 1, "by": ""}
        path.write_text(json.dumps({"schemas": {"Orders": one}}))

    store: Any = SimpleNamespace(
        paths=SimpleNamespace(own=tmp_path), disk=Disk(), log=None, files=SimpleNamespace(deleted_topics=None)
    )
    topics: Any = SimpleNamespace(get=lambda topic: True)
    unused: Any = None
    schemas = TopicSchemas(topics, store, unused, unused, follows=True)
    give("first")
    number = path.stat().st_ino
    assert schemas.get("Orders").name == "first"
    give("the second")
    assert path.stat().st_ino == number
    assert schemas.get("Orders").name == "the second"
