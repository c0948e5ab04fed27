"""Every setting that the engine declares has its field in the console's form."""

import pytest

from appliance.console.views.groups import GroupForm
from appliance.console.views.topics import TopicForm
from appliance.engine.broker.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS


@pytest.mark.parametrize(("form", "declared"), [(TopicForm, TOPIC_SETTINGS), (GroupForm, GROUP_SETTINGS)])
def test_a_form_has_a_field_for_every_setting(form, declared):
    assert set(form.base_fields) - {"name"} == {setting.name for setting in declared}
