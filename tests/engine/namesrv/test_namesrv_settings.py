"""Requests 318 and 319: a few switches change, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engine.config import options_of
from appliance.engine.namesrv.settings import BLACK_LIST, CHANGEABLE
from appliance.engine.protocol.codes import RequestCode as Code
from appliance.engine.upstream_options import NAMESRV

from .conftest import Desk


def _update(desk: Desk, text: str) -> tuple[int, str | None]:
    answer = desk.ask(Code.UPDATE_NAMESRV_CONFIG, text.encode())
    return answer.code, answer.remark


def _shown(desk: Desk) -> dict[str, str]:
    answer = desk.ask(Code.GET_NAMESRV_CONFIG)
    assert answer.code == 0
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


def test_a_switch_takes_effect_at_once_and_stays_after_a_restart(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    desk.register(["A", "B"])
    desk.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:2")
    assert "orderTopicConf" not in (desk.route("A") or {})
    assert _update(desk, "# a comment\norderMessageEnable = true\n") == (0, None)
    assert (desk.route("A") or {})["orderTopicConf"] == "broker-a:2"
    assert _shown(desk)["orderMessageEnable"] == "true"
    again = make_desk()
    assert _shown(again)["orderMessageEnable"] == "true"
    assert again.namesrv.settings.current.order_message_enable


@pytest.mark.parametrize("name", sorted(BLACK_LIST))
def test_the_black_list_answers_16_with_apaches_words(desk: Desk, tmp_path: Path, name: str) -> None:
    text = f"orderMessageEnable=true\n{name}={tmp_path}/evil\n"
    assert _update(desk, text) == (16, "Can not update config in black list.")
    assert _shown(desk)["orderMessageEnable"] == "false"  # all or nothing


def test_every_other_setting_of_apache_or_ours_is_refused() -> None:
    """Settings outside the short list cannot be changed over the wire, now and when settings are added."""
    assert {"kvConfigPath", "productEnvName", "scanNotActiveBrokerInterval"} <= set(options_of("namesrv")) - CHANGEABLE
    for name in CHANGEABLE:
        assert isinstance(options_of("namesrv")[name].default, bool)


@pytest.mark.parametrize("name", sorted((NAMESRV | set(options_of("namesrv")) | {"listenPort"}) - CHANGEABLE))
def test_a_setting_that_is_not_on_the_short_list_stays(desk: Desk, name: str) -> None:
    before = _shown(desk)
    code, remark = _update(desk, f"{name}=1\n")
    assert code == 16
    assert remark == "Can not update config in black list." or name in str(remark)
    assert _shown(desk) == before


def test_wrong_types_and_texts_are_refused(desk: Desk) -> None:
    before = _shown(desk)
    assert _update(desk, "orderMessageEnable=maybe\n")[0] == 1
    assert desk.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=\xff").code == 1
    assert desk.ask(Code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n" * 10_000).code == 1
    assert _shown(desk) == before


def test_unknown_names_and_an_empty_text_change_nothing_and_succeed(desk: Desk) -> None:
    before = _shown(desk)
    assert _update(desk, "noSuchKey=1\n\\u0000=\n") == (0, None)
    assert _update(desk, "") == (0, None)
    assert _shown(desk) == before
    assert not desk.config.namesrv.kv_config_path.with_name("namesrv.properties").exists()


def test_a_kept_file_that_was_edited_badly_is_left_out(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    path = desk.config.namesrv.kv_config_path.with_name("namesrv.properties")
    path.write_bytes(b"orderMessageEnable=true\nenableTopicList=maybe\nkvConfigPath=/etc/passwd\n\xff\xfe\n")
    shown = _shown(make_desk())
    assert shown["orderMessageEnable"] == "true"
    assert shown["enableTopicList"] == "true"
    assert shown["kvConfigPath"] == str(desk.config.namesrv.kv_config_path)


def test_the_text_is_sorted_lines_of_upstreams_names(desk: Desk) -> None:
    text = desk.ask(Code.GET_NAMESRV_CONFIG).body.decode()
    lines = text.splitlines()
    assert lines == sorted(lines)
    assert text.endswith("\n")
    assert {"listenPort", "bindAddress", "kvConfigPath", "configBlackList"} <= {line.split("=")[0] for line in lines}
