"""A group that takes over settings and offsets of another: what that is, and doing it. For the page and the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..engine.errors import InvalidInput, NotFound
from .audit import audit


@dataclass(frozen=True, slots=True)
class Cloned:
    """What was done or would be. created: the group is new. settings: the change, None without one. offsets: the moves,
    None without any."""

    created: bool
    settings: Any
    offsets: Any


class GroupClone:
    """One such act. window: the engine's; may_edit: whether who asks may change settings of a group that exists."""

    def __init__(
        self,
        window: Any,
        source: str,
        target: str,
        *,
        offsets: bool,
        settings: bool,
        topic: str | None,
        may_edit: bool,
        by: str,
    ) -> None:
        self._window = window
        self._source = source
        self._target = target
        self._offsets = offsets
        self._settings = settings
        self._topic = topic
        self._may_edit = may_edit
        self._by = by

    def plan(self) -> Cloned:
        """Nothing changes. NotFound, InvalidInput, Conflict."""
        known = self._target_settings()
        change = moves = None
        if known is None:
            change = self._window.create_group(self._target, **self._values(), dry_run=True, by=self._by)
        elif self._settings:
            change = self._window.edit_group(self._target, **self._edit_values(), dry_run=True, by=self._by)
        if self._offsets:
            moves = self._window.clone_offsets(
                self._source, self._target, self._topic, dry_run=True, new=known is None, by=self._by
            )
        return Cloned(known is None, change, moves)

    def apply(self, revision: str | None) -> Cloned:
        """Settings first: what fails then has moved no offset. revision: of the plan's offsets."""
        known = self._target_settings()
        change = moves = None
        if known is None:
            change = self._window.create_group(self._target, **self._values(), by=self._by)
        elif self._settings:
            change = self._window.edit_group(self._target, **self._edit_values(), by=self._by)
        if self._offsets:
            moves = self._window.clone_offsets(self._source, self._target, self._topic, revision=revision, by=self._by)
        return Cloned(known is None, change, moves)

    def note(self, request: HttpRequest, done: Cloned) -> None:
        """The line in the audit log."""
        before: dict[str, object] = {}
        after: dict[str, object] = {"from": self._source, "created": done.created}
        if done.settings is not None:
            before |= {one.field: one.before for one in done.settings.differences}
            after |= {one.field: one.after for one in done.settings.differences}
        if done.offsets is not None:
            after |= {"reset": done.offsets.id, "queues": len(done.offsets.moves)}
            after |= {"replays": done.offsets.replays, "skips": done.offsets.skips}
        audit(request, "group.clone", self._target, before, after)

    def _target_settings(self) -> Any:
        try:
            return self._window.group(self._target, queues=False).settings
        except NotFound:
            return None

    def _values(self) -> dict[str, Any]:
        """The source's settings; a new group always has them, as far as there are any."""
        found = self._window.group(self._source, queues=False).settings
        return {} if found is None else dict(found.values)

    def _edit_values(self) -> dict[str, Any]:
        if not self._may_edit:
            raise InvalidInput("settings", _("Only an administrator may change the settings of a group that exists."))
        return self._values()
