"""Shared parts of the views that create, edit and delete topics and groups: forms, entries in the audit log, refusals.

Each of these views has three steps: a form, a page with the difference and its consequences, then the act. `step` in
the form is "preview" to show what would happen, "apply" to do it, "back" to return to the form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.http import HttpRequest

from ...engine.admin_settings import Setting
from ...engine.errors import Conflict, InvalidInput, StoreBroken, Unavailable
from ..audit.log import audit
from ..sign_in.forms import Form
from .engine_pages import refusal_text
from .words import HINTS, WORDS

if TYPE_CHECKING:
    from ...engine.window.snapshots import Change


class SettingsForm(Form):
    """The settings of a topic or group, with its `name` only if it is new."""

    name: forms.Field
    settings: ClassVar[tuple[Setting, ...]]

    def __init__(self, *args: Any, new: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not new:
            del self.fields["name"]
        self.fields |= {one.name: _field_of(one) for one in self.settings if not (new and one.later)}
        self.order_fields(self.field_order)


def _field_of(setting: Setting) -> forms.Field:
    """Return the setting's field, which begins with the default. The engine checks the upper bounds."""
    about = {"label": WORDS[setting.name], "help_text": HINTS.get(setting.name, ""), "initial": setting.default}
    if setting.choices:
        return forms.ChoiceField(choices=[(one, WORDS[one]) for one in setting.choices], **about)
    if isinstance(setting.default, bool):
        return forms.BooleanField(required=False, **about)
    if isinstance(setting.default, int):
        return forms.IntegerField(min_value=setting.minimum, **about)
    return forms.CharField(required=False, max_length=setting.maximum, **about)


def is_submitted(request: HttpRequest) -> bool:
    """True if the form was sent for a preview or to be applied; "Back to the form" only shows it again."""
    return request.method == "POST" and request.POST.get("step") != "back"


def is_final(request: HttpRequest) -> bool:
    """True if the preview was seen and confirmed."""
    return request.POST.get("step") == "apply"


def is_forced(request: HttpRequest) -> bool:
    """True if the act is to be done despite its blockers."""
    return request.POST.get("force") == "yes"


def form_status(form: forms.Form) -> int:
    """Return 422 if the page shows errors of the form, else 200."""
    return 422 if form.is_bound and form.errors else 200


def add_refusal(form: forms.Form, error: InvalidInput | Conflict) -> None:
    """Show a refusal of the engine at the field it is about, or above the form."""
    field = error.field if isinstance(error, InvalidInput) else None
    form.add_error(field if field in form.fields else None, refusal_text(error))


@contextmanager
def failure_audited(request: HttpRequest, action: str, target: str) -> Iterator[None]:
    """Write to the audit log if an act fails midway: part of it may have been done."""
    try:
        yield
    except (Unavailable, StoreBroken) as error:
        audit(request, action, target, None, {"reason": str(error)}, "failed")
        raise


def before_and_after(change: Change) -> tuple[dict[str, object], dict[str, object]]:
    """Return the two sides of a change's differences, for the audit log."""
    before: dict[str, object] = {one.field: one.before for one in change.differences}
    return before, {one.field: one.after for one in change.differences}
