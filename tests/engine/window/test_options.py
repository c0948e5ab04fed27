"""The configuration in force, and options that are changed while the broker runs."""

import json
import re
from pathlib import Path

import pytest

from appliance.engine.config import SECTIONS, options_of
from appliance.engine.errors import Conflict, InvalidInput, NotFound, StartError
from appliance.engine.window.options import ACCESS, HOT
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.waiting import wait_for

NAME = "autoCreateTopicEnable"


def option(running, name=NAME):
    return next(row for row in running.window.options.listing().options if row.name == name)


def test_every_option_is_listed(running):
    rows = {(row.section, row.name): row for row in running.window.options.listing().options}
    assert set(rows) == {(section, name) for section in SECTIONS for name in options_of(section)}
    assert rows["store", "flushDiskType"].value == "ASYNC_FLUSH"
    assert rows["store", "flushDiskType"].default == "SYNC_FLUSH"
    assert rows["store", "flushDiskType"].choices == ("SYNC_FLUSH", "ASYNC_FLUSH")
    assert {key for key, row in rows.items() if row.hot} == HOT - {ACCESS}  # which is off here


def test_a_hot_option_takes_effect_at_once_and_tools_see_it(running):
    running.window.option_commands.change({NAME: "false"})
    assert running.peer().ask(310, send_fields("Orders"), b"x").code == 17
    assert f"{NAME}=false\n".encode() in running.peer().ask(26).body
    running.window.option_commands.change({NAME: True})
    assert running.peer().ask(310, send_fields("Orders"), b"x").code == 0
    assert f"{NAME}=true\n".encode() in running.peer().ask(26).body


def test_groups_and_long_polling_too(running):
    running.window.option_commands.change({"autoCreateSubscriptionGroup": "false", "longPollingEnable": "false"})
    assert running.engine.broker.groups.find("New") is None
    assert not running.engine.config.broker.long_polling_enable


def test_a_broker_that_may_not_be_written_is_out_of_the_routes_for_producers(running):
    peer = running.peer()
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0

    def permission():
        route = Peer(running.engine.namesrv_address)
        try:
            answer = route.ask(105, {"topic": "Orders"})
            return json.loads(answer.body)["queueDatas"][0]["perm"] if answer.code == 0 else None  # not told yet
        finally:
            route.close()

    for value, wanted in ((4, 4), (6, 6)):
        running.window.option_commands.change({"brokerPermission": str(value)})
        wait_for(lambda wanted=wanted: permission() == wanted, "the route to say so")
    running.window.option_commands.change({"brokerPermission": "2"})
    refused = peer.ask(11, pull_fields("Orders", 0, 0))
    assert (refused.code, refused.ext_fields["forbiddenType"]) == (16, "1")
    running.window.option_commands.change({"brokerPermission": None})
    assert peer.ask(11, pull_fields("Orders", 0, 0)).code == 0


def test_a_change_stays_over_a_restart_and_can_be_taken_back(running):
    running.window.option_commands.change({NAME: "false", "shortPollingTimeMills": "250"})
    row = option(running)
    assert (row.value, row.configured, row.changed_here) == ("false", "true", True)
    running.restart()
    assert running.engine.config.broker.short_polling_time_ms == 250
    assert option(running) == row
    running.window.option_commands.change({NAME: None})
    assert (option(running).value, option(running).changed_here) == ("true", False)
    assert json.loads((running.data_dir / "rocketbox" / "options.json").read_text()) == {
        "broker.shortPollingTimeMills": "250"
    }


def test_switched_on_where_it_was_off_the_template_is_made(make_running):
    running = make_running(broker={"auto_create_topic_enable": False})
    assert running.engine.broker.topics.get("TBW102") is None
    preview = running.window.option_commands.change({NAME: "true"}, dry_run=True)
    assert [str(warning) for warning in preview.warnings] == ["The template topic TBW102 is created as well."]
    assert running.engine.broker.topics.get("TBW102") is None
    running.window.option_commands.change({NAME: "true"})
    assert running.peer().ask(310, send_fields("Orders"), b"x").code == 0


def test_all_or_nothing(running):
    with pytest.raises(InvalidInput) as refused:
        running.window.option_commands.change({NAME: "false", "shortPollingTimeMills": "soon"})
    assert refused.value.field == "shortPollingTimeMills"
    assert option(running).value == "true"
    assert not (running.data_dir / "rocketbox" / "options.json").exists()


def test_what_cannot_be_changed_now(running):
    with pytest.raises(InvalidInput, match="cannot be changed while the broker runs"):
        running.window.option_commands.change({"flushDiskType": "SYNC_FLUSH"})
    with pytest.raises(NotFound):
        running.window.option_commands.change({"__class__": "x"})


def test_a_preview_and_a_revision(running):
    revision = running.window.options.listing().revision
    preview = running.window.option_commands.change({NAME: "false"}, dry_run=True)
    assert [(d.field, d.before, d.after) for d in preview.differences] == [(NAME, "true", "false")]
    assert running.window.options.listing().revision == revision
    done = running.window.option_commands.change({NAME: "false"}, revision=revision)
    assert done.revision == running.window.options.listing().revision != revision
    with pytest.raises(Conflict):
        running.window.option_commands.change({NAME: "true"}, revision=revision)


def test_what_the_file_should_not_hold_is_left_alone(running):
    path = running.data_dir / "rocketbox" / "options.json"
    running.stop()
    path.write_text('{"store.flushDiskType": "SYNC_FLUSH", "broker.shortPollingTimeMills": "x", "a": 1}')
    running.engine = start_engine(running.data_dir)
    assert option(running, "flushDiskType").value == "ASYNC_FLUSH"
    assert option(running, "shortPollingTimeMills").value == "1000"
    running.engine.stop()
    for damaged in ("{", "[]", "null"):
        path.write_text(damaged)
        with pytest.raises(StartError, match=r"options\.json is damaged"):
            start_engine(running.data_dir)
        assert path.read_text() == damaged
    path.unlink()
    running.engine = start_engine(running.data_dir)
    Peer(running.engine.broker_address).close()


def test_a_change_makes_another_configuration_and_touches_none(running):
    before = running.engine.config
    running.window.option_commands.change({NAME: "false", "maxMessageSize": "100"})
    now = running.engine.config
    assert (before.broker.auto_create_topic_enable, now.broker.auto_create_topic_enable) == (True, False)
    assert (before.store.max_message_size, now.store.max_message_size) == (4_194_304, 100)
    assert (before.namesrv, before.data_dir) == (now.namesrv, now.data_dir)


def test_the_format_page_names_the_hot_options():
    text = (Path(__file__).parents[3] / "docs/formats/config.md").read_text(encoding="utf-8")
    assert {f"{section}.{name}" for section, name in HOT} == set(re.findall(r"`((?:broker|store)\.\w+)`", text))
