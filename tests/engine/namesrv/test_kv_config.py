"""Key-values: kept in Apache's file, or refused."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engine.errors import StartError
from appliance.engine.namesrv import kv_config
from appliance.engine.protocol.codes import RequestCode as Code

from .conftest import Desk


def _put(desk: Desk, namespace: str, key: str, value: str) -> int:
    return desk.ask(Code.PUT_KV_CONFIG, namespace=namespace, key=key, value=value).code


def test_the_file_is_apaches_and_survives_a_restart(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    assert _put(desk, "NS", "k", 'v"é;=') == 0
    assert _put(desk, "NS", "k2", "2") == 0
    path = desk.config.namesrv.kv_config_path
    assert path.read_bytes() == '{"configTable":{"NS":{"k":"v\\"é;=","k2":"2"}}}'.encode()
    again = make_desk()
    assert again.ask(Code.GET_KV_CONFIG, namespace="NS", key="k").ext_fields == {"value": 'v"é;='}


def test_a_file_that_apache_wrote_is_read(make_desk: Callable[..., Desk], tmp_path: Path) -> None:
    path = tmp_path / "rocketbox/namesrv/kvConfig.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}\n\t}\n}')
    answer = make_desk().ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
    assert json.loads(answer.body) == {"table": {"T": "broker-a:4"}}


def test_a_damaged_file_gives_way_to_its_backup(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    _put(desk, "NS", "old", "1")
    _put(desk, "NS", "new", "2")
    desk.config.namesrv.kv_config_path.write_text('{"configTable":{"NS')
    assert make_desk().ask(Code.GET_KV_CONFIG, namespace="NS", key="old").code == 0


@pytest.mark.parametrize("text", ['{"configTable":{"NS', '{"configTable":{"NS":{"k":1}}}', "[]", "{}", "null"])
def test_a_file_that_cannot_be_read_stops_the_start_in_one_sentence(
    make_desk: Callable[..., Desk], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "rocketbox/namesrv/kvConfig.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(StartError) as caught:
        make_desk()
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")
    assert not str(caught.value).endswith("..")


def test_a_failed_save_is_the_error_of_the_one_who_asked_and_changes_nothing(
    make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    _put(desk, "NS", "k", "1")

    def full(path: Path, content: object, calls: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(kv_config, "save_json_atomically", full)
        answer = desk.ask(Code.PUT_KV_CONFIG, namespace="NS", key="k", value="2")
        assert answer.code == 1
        assert "No space left" in str(answer.remark)
        assert desk.ask(Code.DELETE_KV_CONFIG, namespace="NS", key="k").code == 1
    assert desk.ask(Code.GET_KV_CONFIG, namespace="NS", key="k").ext_fields == {"value": "1"}
    assert make_desk().ask(Code.GET_KV_CONFIG, namespace="NS", key="k").ext_fields == {"value": "1"}


def test_the_table_is_bounded_and_can_be_emptied_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "MAX_CHARS", 1000)
    assert _put(desk, "NS", "a", "x" * 990) == 0
    assert _put(desk, "NS", "b", "x" * 20) == 1
    assert _put(desk, "NS", "a", "x" * 10) == 0
    assert _put(desk, "NS", "b", "x" * 20) == 0
    monkeypatch.setattr(kv_config, "MAX_CHARS", 10)  # as if the file had come from elsewhere
    assert _put(desk, "NS", "b", "x" * 25) == 1
    assert _put(desk, "NS", "b", "x" * 15) == 0
    assert desk.ask(Code.DELETE_KV_CONFIG, namespace="NS", key="a").code == 0


def test_deleting_what_is_not_there_succeeds_and_writes_nothing(desk: Desk) -> None:
    assert desk.ask(Code.DELETE_KV_CONFIG, namespace="NS", key="a").code == 0
    assert not desk.config.namesrv.kv_config_path.exists()
    assert desk.ask(Code.GET_KVLIST_BY_NAMESPACE, namespace="NS").code == 22
