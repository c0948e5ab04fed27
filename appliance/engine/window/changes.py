"""Shared by the commands on topics and groups: checks of values by their declaration, and the preview of a change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ..admin_settings import Setting
from ..errors import Blocked, Conflict, InvalidInput
from . import snapshots as s
from .sentences import Sentence, say

C = TypeVar("C")


def revision_of(config: Any) -> str:
    """Return a short text that differs for each configuration."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]


def check_revision(known: Any, revision: str | None) -> None:
    """Raise Conflict if a revision is given and is not the present one."""
    if revision is not None and revision != revision_of(known):
        raise Conflict(say("changed_since"))


def check_value(setting: Setting, value: object) -> None:
    """Raise InvalidInput with the setting's name unless the setting accepts the value."""
    if setting.accepts(value):
        return
    name = setting.name
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        raise InvalidInput(name, say("out_of_range", field=name, low=setting.minimum, high=setting.maximum))
    if not isinstance(setting.default, bool) and not setting.choices:
        raise InvalidInput(name, say("text_refused", field=name, limit=setting.maximum))
    choices = ", ".join(setting.choices or ("true", "false"))
    raise InvalidInput(name, say("one_of", field=name, choices=choices))


def with_defaults(settings: Sequence[Setting], values: Mapping[str, object]) -> dict[str, object]:
    """Return the values for something new: the defaults, overridden by `values`."""
    return {**{setting.name: setting.default for setting in settings}, **values}


def with_values(config: C, settings: Sequence[Setting], values: Mapping[str, Any]) -> C:
    """Return the configuration with these values. None leaves a setting as it is; an unchanged value is not checked.

    Raises TypeError for a name that is not declared, as for any unknown argument.
    """
    unknown = values.keys() - {setting.name for setting in settings}
    if unknown:
        raise TypeError(f"there is no setting {', '.join(sorted(unknown))}")
    for setting in settings:
        value = values.get(setting.name)
        present = setting.read(config)
        if value is None or (type(value) is type(present) and value == present):
            continue
        check_value(setting, value)
        config = setting.write(config, value)
    return config


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[s.Difference, ...]:
    """Return the fields whose values differ, in the order of the fields."""
    names = list(dict.fromkeys([*before, *after]))
    return tuple(
        s.Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def preview(
    name: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    warnings: Sequence[Sentence] = (),
    blockers: Sequence[Sentence] = (),
    revision: str | None = None,
) -> s.Change:
    """Return a change that has not been made (yet)."""
    return s.Change(
        applied=False,
        name=name,
        differences=differences(before, after),
        warnings=tuple(warnings),
        blockers=tuple(blockers),
        revision=revision,
        registered={},
    )


def refuse_if_blocked(change: s.Change, reason: Sentence, force: bool) -> None:
    """Raise Blocked if the change has blockers and is not forced."""
    if change.blockers and not force:
        raise Blocked(reason, change.blockers, change)
