"""Users of the wire, who sign requests to the broker, and their entries. Users of the console are in `users`.

Each change requires the password again and is audited, under the names that the same change has over the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import Conflict, InvalidInput, NotFound
from ..audit.log import audit
from ..pages.changes import add_refusal, before_and_after, failure_audited, form_status, is_final
from ..pages.engine_pages import PAGE_SIZE, all_rows, csv_answer, csv_of, page_number, refusal_text, wants_csv
from ..pages.words import WORDS
from ..sign_in.forms import Form
from ..system.plain_yaml import LONGEST_BYTES
from . import once
from .wire_imports import take

if TYPE_CHECKING:
    from ...engine.window.access.snapshots import WireUser, WireUserChange

SET, DELETED = "wire-user.set", "wire-user.delete"
ENTRY_SET, ENTRY_DELETED = "wire-acl.set", "wire-acl.delete"
_TYPED = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


@dataclass(frozen=True, slots=True)
class Button:
    """One of `access.acts.USER_ACTS` in words. fits: True for a user that the act would change. gives: it may give a
    right or a secret; the API asks more of a token then."""

    label: Promise
    hint: Promise
    fits: Callable[[WireUser], bool]
    is_danger: bool = False
    gives: bool = False


#: Act -> its button.
BUTTONS = {
    "rotate": Button(
        gettext_lazy("New secret"),
        gettext_lazy(
            "It is shown once. The present secret stays good until you end it, so clients can change one by one."
        ),
        lambda user: user.secrets == 1,
        gives=True,
    ),
    "end-old-secret": Button(
        gettext_lazy("End the old secret"),
        gettext_lazy("Clients that still sign with it are disconnected and refused."),
        lambda user: user.secrets > 1,
        is_danger=True,
    ),
    "make-super": Button(
        gettext_lazy("Make it a Super user"),
        gettext_lazy("A Super user may do everything, whatever the entries say."),
        lambda user: user.user_type == "Normal",
        is_danger=True,
        gives=True,
    ),
    "make-normal": Button(
        gettext_lazy("Make it a Normal user"),
        gettext_lazy("A Normal user may do what the entries allow."),
        lambda user: user.user_type == "Super",
    ),
    "require-tls": Button(
        gettext_lazy("Take it over TLS only"),
        gettext_lazy("What it asks in clear is refused, from this machine, too, and its clients are disconnected."),
        lambda user: not user.requires_tls,
    ),
    "allow-clear": Button(
        gettext_lazy("Take it in clear, too"),
        gettext_lazy("Whoever reads one of its requests on the network can send it again."),
        lambda user: user.requires_tls,
        is_danger=True,
        gives=True,
    ),
    "enable": Button(
        gettext_lazy("Enable"),
        gettext_lazy("Its secrets and entries are as they were."),
        lambda user: not user.enabled,
        gives=True,
    ),
    "disable": Button(
        gettext_lazy("Disable"),
        gettext_lazy("Its clients are disconnected and refused. Secrets and entries stay."),
        lambda user: user.enabled,
        is_danger=True,
    ),
}


class Unshown(forms.Textarea):
    """A field whose text is not in the page that shows the form again."""

    def format_value(self, value: Any) -> str:
        return ""


class WireUserForm(Form):
    """A new user of the wire."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        widget=forms.TextInput(attrs=_TYPED),
        help_text=gettext_lazy("Letters, digits and . _ - only. Clients give it as access key."),
    )
    user_type = forms.ChoiceField(
        label=gettext_lazy("Type"),
        choices=[
            ("Normal", gettext_lazy("Normal: may do what its entries allow, nothing without any")),
            ("Super", gettext_lazy("Super: may do everything")),
        ],
        initial="Normal",
        widget=forms.RadioSelect,
    )
    secret = forms.CharField(
        label=gettext_lazy("Secret of your own"),
        required=False,
        strip=False,
        max_length=256,
        widget=forms.PasswordInput(attrs=_TYPED | {"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least 8 characters. If it is empty, RocketBox makes one and shows it once."),
    )


#: Actions in the order of the form. "List" is asked for by no request.
ACTIONS = ("Pub", "Sub", "Get", "Create", "Update", "Delete", "All")


class EntryForm(Form):
    """An entry of a user."""

    resource = forms.CharField(
        label=gettext_lazy("Resource"),
        max_length=300,
        widget=forms.TextInput(attrs=_TYPED | {"placeholder": "Topic:orders*"}),
        help_text=gettext_lazy(
            "Topic:, Group: or Cluster: and a name; a * at its end stands for the rest. * alone is everything."
        ),
    )
    actions = forms.MultipleChoiceField(
        label=gettext_lazy("Actions"),
        choices=[(action, action) for action in ACTIONS],
        widget=forms.CheckboxSelectMultiple,
    )
    decision = forms.ChoiceField(
        label=gettext_lazy("Decision"),
        choices=[("Allow", WORDS["Allow"]), ("Deny", WORDS["Deny"])],
        initial="Allow",
        widget=forms.RadioSelect,
    )
    sources = forms.CharField(
        label=gettext_lazy("Only from"),
        required=False,
        max_length=5000,
        widget=forms.TextInput(attrs=_TYPED | {"placeholder": "10.0.0.0/8, 192.0.2.7"}),
        help_text=gettext_lazy("Addresses and networks of clients; empty for all."),
    )
    policy = forms.ChoiceField(
        label=gettext_lazy("Counts"),
        choices=[
            ("Custom", gettext_lazy("as an own entry")),
            ("Default", gettext_lazy("as a default, where no own entry fits")),
        ],
        initial="Custom",
    )


class QuotaForm(Form):
    """Quotas of a user. Where a field is empty, the default counts."""

    send_bytes = forms.IntegerField(label=gettext_lazy("Bytes sent a second"), required=False, min_value=0)
    pull_bytes = forms.IntegerField(label=gettext_lazy("Bytes pulled a second"), required=False, min_value=0)
    requests = forms.IntegerField(label=gettext_lazy("Requests a second"), required=False, min_value=0)
    connections = forms.IntegerField(label=gettext_lazy("Connections"), required=False, min_value=0)


class ImportForm(Form):
    """A file of Apache's ACL 1.0. Its text is not shown again."""

    text = forms.CharField(
        label=gettext_lazy("Content of the file, as YAML"),
        max_length=LONGEST_BYTES,
        strip=False,
        widget=Unshown(attrs={"rows": 16, "spellcheck": "false", "autocomplete": "off"}),
    )


class ResourceForm(Form):
    """One topic, group or cluster."""

    resource = forms.CharField(
        label=gettext_lazy("Resource"),
        max_length=300,
        widget=forms.TextInput(attrs=_TYPED | {"placeholder": "Topic:orders"}),
    )


class QuestionForm(ResourceForm):
    """May this user do something?"""

    field_order = ("action", "resource", "address")
    action = forms.ChoiceField(
        label=gettext_lazy("Action"), choices=[(action, action) for action in ACTIONS if action != "All"]
    )
    address = forms.CharField(
        label=gettext_lazy("From address"), max_length=60, widget=forms.TextInput(attrs=_TYPED), initial="127.0.0.1"
    )


def controlled(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a view: while access control is off it leads to the page that says how to switch it on."""

    @wraps(view)
    def controlling(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if runtime.window().access_mode() == "off":
            return redirect("wire_users")
        return view(request, *args, **kwargs)

    return controlling


def wire_users(request: HttpRequest) -> HttpResponse:
    """Show all users, filtered, sorted and in pages; `format=csv` for all of the filter's rows. Without access control
    show how to switch it on."""
    mode = runtime.window().access_mode()
    q, sort = request.GET.get("q", ""), request.GET.get("sort", "name")
    if mode == "off":
        return render(request, "wire_users/off.html")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().users.page(q, sort, page, size)

    if wants_csv(request):
        header = (
            "name",
            "type",
            "enabled",
            "requires_tls",
            "secrets",
            "entries",
            "last_request",
            "last_at_ms",
            "last_address",
            "last_tls",
        )
        return csv_answer("wire-users", header, map(_csv_row, all_rows(fetch)))
    context = {"page": fetch(page_number(request), PAGE_SIZE), "q": q, "sort": sort, "mode": mode}
    context["elsewhere"] = runtime.window().users.changed_elsewhere()
    return render(request, "wire_users/list.html", context)


def _csv_row(one: WireUser) -> tuple[object, ...]:
    last = one.last
    came = (None,) * 4 if last is None else (last.request, last.at_ms, last.address, last.tls)
    return (one.name, one.user_type, one.enabled, one.requires_tls, one.secrets, len(one.entries), *came)


@controlled
def wire_access(request: HttpRequest) -> HttpResponse:
    """Show who may do something on one topic, group or cluster; `format=csv` for all rows."""
    form = ResourceForm(request.GET if "resource" in request.GET else None)
    sort = request.GET.get("sort", "user")
    context: dict[str, Any] = {"form": form, "sort": sort, "page": None}
    if form.is_valid():
        resource = form.cleaned_data["resource"]

        def fetch(page: int, size: int) -> Any:
            return runtime.window().users.who_may(resource, sort, page, size)

        try:
            if wants_csv(request):
                return csv_of("wire-access", "user type=user_type actions some", all_rows(fetch))
            context["page"] = fetch(page_number(request), PAGE_SIZE)
        except InvalidInput as error:
            add_refusal(form, error)
    return render(request, "wire_users/access.html", context, status=form_status(form))


@controlled
def wire_refusals(request: HttpRequest) -> HttpResponse:
    """Show what was refused, or in report mode would be; a row leads to the entry that would allow it. `format=csv` for
    all of the filter's rows."""
    q, sort = request.GET.get("q", ""), request.GET.get("sort", "-last")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().users.refusals(q, sort, page, size)

    if wants_csv(request):
        columns = "user resource actions reason request address count first_at_ms last_at_ms"
        return csv_of("wire-refusals", columns, all_rows(fetch))
    context = {"page": fetch(page_number(request), PAGE_SIZE), "q": q, "sort": sort}
    return render(request, "wire_users/refusals.html", context | {"mode": runtime.window().access_mode()})


@controlled
def wire_user_create(request: HttpRequest) -> HttpResponse:
    """Make a user; its secret is shown once."""
    form = WireUserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        name, user_type, secret = (form.cleaned_data[field] for field in ("name", "user_type", "secret"))
        try:
            change = _done(
                request,
                SET,
                name,
                lambda: runtime.window().users.create(
                    name, user_type=user_type, secret=secret or None, by=request.user.label
                ),
            )
        except InvalidInput as error:
            add_refusal(form, error)
        except Conflict as error:
            form.add_error("name", refusal_text(error))
        else:
            if change.secret is not None:
                return _show_once(request, name, change)
            messages.success(request, _("Saved."))
            return redirect("wire_user", name)
    return render(request, "wire_users/create.html", {"form": form}, status=form_status(form))


@controlled
def wire_import(request: HttpRequest) -> HttpResponse:
    """Import accounts of Apache's ACL 1.0: a form for the text, a preview, then the result. The preview keeps the text
    in this process, since it has secrets."""
    kept = once.take(request, request.POST["ticket"]) if is_final(request) and "ticket" in request.POST else None
    form = ImportForm(request.POST if kept is None else {"text": kept}) if request.method == "POST" else ImportForm()
    if request.method == "POST" and form.is_valid():
        text = form.cleaned_data["text"]
        try:
            report = take(request, text, dry_run=not is_final(request))
        except (InvalidInput, Conflict) as error:
            form.add_error("text", refusal_text(error))
        else:
            context: dict[str, Any] = {"report": report}
            if not report.applied:
                context["would"] = any(user.outcome == "new" for user in report.users)
                context["ticket"] = once.keep(request.user.pk, text)
            return render(request, "wire_users/imported.html", context)
    return render(request, "wire_users/import.html", {"form": form}, status=form_status(form))


@controlled
def wire_user(request: HttpRequest, name: str) -> HttpResponse:
    """Show one user: entries, acts, and whether the user may do something. `give` and `for`: action and resource with
    which an entry begins. It takes the place of an entry for the same resource, so it has what that one has; and it
    begins as a default where an own entry denies something else, which would be gone."""
    resource, actions = request.GET.get("for", "")[:300], request.GET.getlist("give")[:1]
    given: dict[str, Any] = {"resource": resource}
    known = {one.policy: one for one in runtime.window().users.one(name).entries if one.resource == resource}
    for policy in ("Custom", "Default"):
        entry = known.get(policy)
        if entry is None:
            given |= {"policy": policy, "actions": actions}
            break
        if entry.decision == "Allow":
            given |= {"policy": policy, "actions": [*entry.actions, *actions], "sources": ", ".join(entry.sources)}
            break
    return _page(request, name, EntryForm(initial=given))


@controlled
def wire_user_compare(request: HttpRequest, name: str) -> HttpResponse:
    """Show what RocketMQ 5.3.3 would decide otherwise by a user's entries."""
    return render(
        request, "wire_users/compare.html", {"name": name, "comparison": runtime.window().users.compare(name)}
    )


@controlled
def wire_user_act(request: HttpRequest, name: str) -> HttpResponse:
    """Do one of BUTTONS. A secret that is made is shown once."""
    act, secret = request.POST.get("act", ""), request.POST.get("secret") or None
    try:
        change = _done(
            request, SET, name, lambda: runtime.window().users.act(name, act, secret=secret, **_of_page(request))
        )
    except (Conflict, InvalidInput) as error:
        messages.error(request, refusal_text(error))
    else:
        if change.secret is not None:
            return _show_once(request, name, change)
        messages.success(request, _("Saved."))
    return redirect("wire_user", name)


@controlled
def wire_user_secret(request: HttpRequest, name: str, ticket: str) -> HttpResponse:
    """Show a secret that was made, once: after reloading, the page says that it was shown."""
    return render(request, "wire_users/secret.html", {"name": name, "box": once.take(request, ticket)})


@controlled
def wire_user_delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete a user and its entries, once its name was typed."""
    context: dict[str, Any] = {"name": name, "heading": _("Delete %(name)s?") % {"name": name}}
    try:
        context["change"] = runtime.window().users.delete(name, dry_run=True)
    except Conflict as error:
        messages.error(request, refusal_text(error))
        return redirect("wire_user", name)
    if request.method != "POST":
        return render(request, "wire_users/delete.html", context)
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = _("This is not the user's name.")
        return render(request, "wire_users/delete.html", context, status=422)
    _done(request, DELETED, name, lambda: runtime.window().users.delete(name, **_of_page(request)))
    messages.success(request, _("Wire user %(name)s deleted.") % {"name": name})
    return redirect("wire_users")


@controlled
def wire_user_entry(request: HttpRequest, name: str) -> HttpResponse:
    """Give a user an entry, or put it in the place of the one of the same resource."""
    form = EntryForm(request.POST)
    if form.is_valid():
        given = form.cleaned_data | {"sources": re.split(r"[\s,]+", form.cleaned_data["sources"].strip(", \t"))}
        given["sources"] = [source for source in given["sources"] if source]
        terms = given | _of_page(request)
        if _is_saved(request, form, ENTRY_SET, name, lambda: runtime.window().users.put_entry(name, **terms)):
            return redirect("wire_user", name)
    return _page(request, name, form)


@controlled
def wire_user_entry_remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take an entry from a user."""
    resource, policy = request.POST.get("resource", ""), request.POST.get("policy", "Custom")
    try:
        _done(
            request,
            ENTRY_DELETED,
            name,
            lambda: runtime.window().users.remove_entry(name, resource, policy, **_of_page(request)),
        )
    except (Conflict, InvalidInput) as error:
        messages.error(request, refusal_text(error))
    except NotFound as error:
        if error.kind != "entry":
            raise
        messages.error(request, refusal_text(error))
    else:
        messages.success(request, _("Saved."))
    return redirect("wire_user", name)


@controlled
def wire_user_quotas(request: HttpRequest, name: str) -> HttpResponse:
    """Give a user quotas; an empty field lets the default count."""
    form = QuotaForm(request.POST)
    if form.is_valid():
        quotas, terms = form.cleaned_data, _of_page(request)
        if _is_saved(request, form, SET, name, lambda: runtime.window().users.set_quotas(name, quotas, **terms)):
            return redirect("wire_user", name)
    return _page(request, name, EntryForm(), form)


def _of_page(request: HttpRequest) -> dict[str, Any]:
    """Return who acts, and on which revision of a user: the one that the page showed."""
    return {"revision": request.POST.get("revision") or None, "by": request.user.label}


def _done(request: HttpRequest, action: str, name: str, act: Callable[[], WireUserChange]) -> WireUserChange:
    """Do an act and write it to the audit log; also if it is refused, or fails midway."""
    try:
        with failure_audited(request, action, name):
            change = act()
    except Conflict as error:
        audit(request, action, name, None, {"reason": str(error)}, "refused")
        raise
    before, after = (
        {name: text for name, text in side.items() if text is not None} for side in before_and_after(change)
    )
    audit(request, action, name, before, after)
    return change


def _is_saved(request: HttpRequest, form: Form, action: str, name: str, act: Callable[[], WireUserChange]) -> bool:
    """Make the change of a form on a user's page. False if it is refused: the form then shows why."""
    try:
        _done(request, action, name, act)
    except InvalidInput as error:
        add_refusal(form, error)
    except Conflict as error:
        form.add_error(None, refusal_text(error))
    else:
        messages.success(request, _("Saved."))
        return True
    return False


def _show_once(request: HttpRequest, name: str, change: WireUserChange) -> HttpResponse:
    return redirect("wire_user_secret", name, once.keep(request.user.pk, {"secret": change.secret}))


def _page(request: HttpRequest, name: str, form: EntryForm, quotas: QuotaForm | None = None) -> HttpResponse:
    user = runtime.window().users.one(name)
    if quotas is None:
        quotas = QuotaForm(initial={row.quota: row.own for row in user.quotas})
    for row in user.quotas:
        if row.own is None:
            text = _("no limit by default") if not row.counts else _("%(count)d by default") % {"count": row.counts}
            quotas.fields[row.quota].widget.attrs["placeholder"] = text
    buttons = [(act, button) for act, button in BUTTONS.items() if button.fits(user)]
    context: dict[str, Any] = {"wire_user": user, "buttons": buttons, "form": form, "decision": None}
    context["quotas"], context["shut_out"] = quotas, runtime.window().users.shut_out(name)
    context["mode"] = runtime.window().access_mode()
    question = QuestionForm(request.GET if "action" in request.GET else None, auto_id="ask_%s")
    if question.is_bound and question.is_valid():
        try:
            context["decision"] = runtime.window().users.decide(name, **question.cleaned_data)
        except InvalidInput as error:
            add_refusal(question, error)
    status = max(form_status(form), form_status(question), form_status(quotas))
    return render(request, "wire_users/user.html", context | {"question": question}, status=status)
