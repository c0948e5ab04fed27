"""Every setting that the engine declares has its field in the console's form."""

import re

import pytest

from appliance.console.groups.views import GroupForm
from appliance.console.topics.views import TopicForm
from appliance.engine.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS, Setting


@pytest.mark.parametrize(("form", "declared"), [(TopicForm, TOPIC_SETTINGS), (GroupForm, GROUP_SETTINGS)])
def test_a_form_has_a_field_for_every_setting(form, declared):
    assert set(form(new=False).fields) == {setting.name for setting in declared}


def test_a_text_without_choices_is_a_line_and_not_needed(monkeypatch):
    line = Setting("key", "", attribute="a.line", absent="", maximum=20)
    monkeypatch.setattr(TopicForm, "settings", (line,))
    form = TopicForm({"key": "x" * 20}, new=False)
    assert form.is_valid()
    assert form.cleaned_data == {"key": "x" * 20}
    assert TopicForm({}, new=False).is_valid()
    assert not TopicForm({"key": "x" * 21}, new=False).is_valid()


def shown_value(page: str, name: str) -> object:
    """Return the value of the form's field; for a box, True if it is ticked. LookupError without such a field."""
    fields = [tag for tag in re.findall(r"<input[^>]*>", page) if f'name="{name}"' in tag]
    if not fields:
        raise LookupError(name)
    if 'type="checkbox"' in fields[0]:
        return " checked" in fields[0]
    chosen = [tag for tag in fields if 'type="radio"' not in tag or " checked" in tag]
    return re.findall(r' value="([^"]*)"', chosen[0])[0]


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "declared"), [("topic", TOPIC_SETTINGS), ("group", GROUP_SETTINGS)])
def test_a_form_opens_with_every_setting_as_it_is(client_as, broker, kind, declared):
    """A field that is not shown, or begins empty, would be set back by whoever changes another."""
    name = f"all-of-a-{kind}"
    commands = getattr(broker, f"{kind}_commands")
    commands.create(name)
    values = {one.name: not one.default if isinstance(one.default, bool) else another(one) for one in declared}
    commands.edit(name, **values)
    page = client_as("admin").get(f"/{kind}s/{name}/edit/").content.decode()
    assert {key: shown_value(page, key) for key in values} == {
        key: value if isinstance(value, bool) else str(value) for key, value in values.items()
    }


def another(setting: Setting) -> object:
    """A value that is not the default."""
    if setting.choices:
        return next(one for one in setting.choices if one != setting.default)
    return setting.default + 3
