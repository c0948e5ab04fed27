"""Cloning a group: another group, new or not, takes over its settings and offsets. For the page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ...engine.errors import InvalidInput, NotFound
from ..audit.log import audit


@dataclass(frozen=True, slots=True)
class Cloned:
    """The result of a clone or of its preview. created: the target group is new. settings: its change, or None.
    offsets: the moves of its offsets, or None."""

    created: bool
    settings: Any
    offsets: Any


@dataclass(frozen=True, slots=True)
class GroupClone:
    """One clone. window: the engine's. may_edit: True if the caller may change the settings of a group that exists."""

    window: Any
    source: str
    target: str
    offsets: bool
    settings: bool
    topic: str | None
    may_edit: bool
    by: str

    def plan(self) -> Cloned:
        """Return what the clone would do, without doing it. Raises NotFound, InvalidInput, Conflict."""
        known = self._target_settings()
        change = moves = None
        if known is None:
            change = self.window.group_commands.create(self.target, **self._values(), dry_run=True, by=self.by)
        elif self.settings:
            change = self.window.group_commands.edit(self.target, **self._edit_values(), dry_run=True, by=self.by)
        if self.offsets:
            moves = self.window.offset_commands.clone(
                self.source, self.target, self.topic, dry_run=True, new=known is None, by=self.by
            )
        return Cloned(known is None, change, moves)

    def apply(self, revision: str | None) -> Cloned:
        """Clone the group. Settings come first: if they fail, no offset has moved. revision: that of the plan's
        offsets."""
        known = self._target_settings()
        change = moves = None
        if known is None:
            change = self.window.group_commands.create(self.target, **self._values(), by=self.by)
        elif self.settings:
            change = self.window.group_commands.edit(self.target, **self._edit_values(), by=self.by)
        if self.offsets:
            moves = self.window.offset_commands.clone(
                self.source, self.target, self.topic, revision=revision, by=self.by
            )
        return Cloned(known is None, change, moves)

    def note(self, request: HttpRequest, done: Cloned) -> None:
        """Write the entry in the audit log."""
        before: dict[str, object] = {}
        after: dict[str, object] = {"from": self.source, "created": done.created}
        if done.settings is not None:
            before |= {one.field: one.before for one in done.settings.differences}
            after |= {one.field: one.after for one in done.settings.differences}
        if done.offsets is not None:
            after |= {"reset": done.offsets.id, "queues": len(done.offsets.moves)}
            after |= {"replays": done.offsets.replays, "skips": done.offsets.skips}
        audit(request, "group.clone", self.target, before, after)

    def _target_settings(self) -> Any:
        try:
            return self.window.groups.detail(self.target, queues=False).settings
        except NotFound:
            return None

    def _values(self) -> dict[str, Any]:
        """Return the source's settings, which a new group always gets; {} if the source has none."""
        found = self.window.groups.detail(self.source, queues=False).settings
        return {} if found is None else dict(found.values)

    def _edit_values(self) -> dict[str, Any]:
        if not self.may_edit:
            raise InvalidInput("settings", _("Only an administrator may change the settings of a group that exists."))
        return self._values()
