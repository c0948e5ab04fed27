"""Connect a client: the addresses, complete programs with them for each client, and a connection that is tried."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import InvalidInput
from ..pages.changes import add_refusal, form_status
from ..pages.engine_pages import topic_names
from ..sign_in.forms import Form
from ..users.access import allows
from .snippets import ANY_USER, GROUP, LANGUAGES, TOPIC, Door, Project, projects, shell_of

#: Shown instead of the name server's address if none runs here.
ELSEWHERE = "name-server:9876"
#: Clients as the programs name them.
CLIENTS = {project.key: project.name for project in projects(ELSEWHERE)}
_TYPED = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class TrialForm(Form):
    """The connection to try. tls: on where this server serves it."""

    client = forms.ChoiceField(label=gettext_lazy("Client"), choices=list(CLIENTS.items()), initial="python")
    host = forms.CharField(
        label=gettext_lazy("Host of the name server"),
        max_length=253,
        required=False,
        widget=forms.TextInput(attrs=_TYPED),
        help_text=gettext_lazy("As the client writes it; empty for the address that clients are told."),
    )
    tls = forms.BooleanField(label=gettext_lazy("It encrypts (TLS)"), required=False)
    topic = forms.CharField(
        label=gettext_lazy("Topic"), max_length=127, widget=forms.TextInput(attrs=_TYPED | {"list": "topics"})
    )
    group = forms.CharField(
        label=gettext_lazy("Consumer group"), max_length=255, initial=GROUP, widget=forms.TextInput(attrs=_TYPED)
    )
    user = forms.CharField(
        label=gettext_lazy("Wire user"), max_length=64, required=False, widget=forms.TextInput(attrs=_TYPED)
    )
    address = forms.CharField(
        label=gettext_lazy("Address of the client"),
        max_length=60,
        required=False,
        initial="127.0.0.1",
        widget=forms.TextInput(attrs=_TYPED),
        help_text=gettext_lazy("Entries of users may name where requests come from."),
    )


def connect(request: HttpRequest) -> HttpResponse:
    """Show the programs. ?topic=, ?user= and ?tls= (yes, no) choose what they say, ?language= the one that is shown
    first."""
    admin = runtime.window()
    broker, namesrv = admin.addresses()
    topic = request.GET.get("topic", "").strip() or TOPIC
    user, language = request.GET.get("user", "").strip(), request.GET.get("language", "")
    shown = admin.client_door()
    encrypts = request.GET.get("tls") != "no"
    context: dict[str, Any] = {
        "broker": broker,
        "namesrv": namesrv,
        "topic": topic,
        "wire_user": user,
        "door": shown,
        "encrypts": encrypts,
        "topics": topic_names() if broker else [],
        "chosen": language if language in LANGUAGES else LANGUAGES[0],
        "warnings": [
            check for check in admin.checks() if check.name == "address" and check.sentence.code != "advertised"
        ],
    }
    try:
        context["projects"] = with_shell(projects(namesrv or ELSEWHERE, topic, door_of(user, encrypts)))
    except ValueError as error:
        is_user = error.args == (user,) and user != topic
        context["wrong"] = "user" if is_user else "topic"
        context["error"] = (
            _("No wire user can have this name.") if is_user else _("Clients cannot send to a topic of this name.")
        )
    return render(request, "connect.html", context, status=422 if "error" in context else 200)


def connect_try(request: HttpRequest) -> HttpResponse:
    """Try a connection as a client would make it, and say what is wrong with it."""
    admin = runtime.window()
    initial = {"topic": TOPIC, "tls": admin.client_door().tls != "disabled"}
    form = TrialForm(request.GET if "client" in request.GET else None, initial=initial)
    may_ask = may_ask_of_users(request.user)
    if not may_ask:
        del form.fields["user"], form.fields["address"]
    context: dict[str, Any] = {
        "form": form,
        "checks": None,
        "topics": topic_names() if admin.addresses().broker else [],
    }
    if form.is_valid():
        try:
            asked = {name: value for name, value in form.cleaned_data.items() if value != ""}
            if not may_ask:
                asked["user"] = None
            context["checks"] = admin.try_connection(**asked)
        except InvalidInput as error:
            add_refusal(form, error)
    return render(request, "connect_try.html", context, status=form_status(form))


def may_ask_of_users(user: Any) -> bool:
    """True for who may see the users of the wire, and so what one of them may do."""
    return allows(user, "wire_user")


def door_of(user: str, encrypts: bool = True) -> Door:
    """Return how the programs come in: as this user, where access control is on, and encrypted, where TLS is served
    and wanted."""
    door = runtime.window().client_door()
    tls = door.tls == "enforcing" or (door.tls == "permissive" and encrypts)
    signs = door.access != "off" or user
    return Door((user or ANY_USER) if signs else "", tls, door.certificate if tls else "")


def with_shell(found: list[Project]) -> list[tuple[Project, str]]:
    """Return each project with the shell script that creates it."""
    return [(project, shell_of(project)) for project in found]
