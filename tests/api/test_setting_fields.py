"""Every setting that the engine declares has its field in the API, with the engine's default."""

import pytest

from appliance.api.topic_schemas import GroupIn, GroupPatch, TopicIn, TopicPatch
from appliance.engine.broker.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS


@pytest.mark.parametrize(("schema", "declared"), [(TopicPatch, TOPIC_SETTINGS), (GroupPatch, GROUP_SETTINGS)])
def test_every_setting_can_be_changed(schema, declared):
    assert set(schema.model_fields) == {setting.name for setting in declared}


@pytest.mark.parametrize(("schema", "declared"), [(TopicIn, TOPIC_SETTINGS), (GroupIn, GROUP_SETTINGS)])
def test_what_is_new_has_the_engines_defaults(schema, declared):
    defaults = {setting.name: setting.default for setting in declared}
    given = {name: field.default for name, field in schema.model_fields.items() if name != "name"}
    assert given == {name: defaults[name] for name in given}
