"""Every setting that the engine declares has a field in the API, with its default, and an option of the command."""

import pytest

from appliance.api.topic_schemas import GroupIn, GroupPatch, TopicIn, TopicPatch
from appliance.commands.remote.run import fields_of
from appliance.console.acts import CALLS
from appliance.engine.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS


@pytest.mark.parametrize(("schema", "declared"), [(TopicPatch, TOPIC_SETTINGS), (GroupPatch, GROUP_SETTINGS)])
def test_every_setting_can_be_changed(schema, declared):
    assert set(schema.model_fields) == {setting.name for setting in declared}


@pytest.mark.parametrize(("noun", "declared"), [("topic", TOPIC_SETTINGS), ("group", GROUP_SETTINGS)])
def test_every_setting_is_an_option_of_the_command(noun, declared):
    [body] = [call.body for _, call in CALLS if call.words == f"{noun} edit NAME"]
    types = {bool: "bool", int: "int", str: "text"}
    kinds = {one.name: "|".join(one.choices) if one.choices else types[type(one.default)] for one in declared}
    assert fields_of(body) == {name: (name.replace("_", "-"), kind) for name, kind in kinds.items()}


@pytest.mark.parametrize(("schema", "declared"), [(TopicIn, TOPIC_SETTINGS), (GroupIn, GROUP_SETTINGS)])
def test_what_is_new_has_the_engines_defaults(schema, declared):
    defaults = {setting.name: setting.default for setting in declared}
    given = {name: field.default for name, field in schema.model_fields.items() if name != "name"}
    assert given == {name: defaults[name] for name in given}
