"""API tokens: users make and revoke their own; administrators see and revoke all. The secret is shown once."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..audit.log import audit
from ..models import ApiToken, Role, User, now_ms
from ..pages import errors
from ..pages.changes import form_status
from ..pages.engine_pages import page_number
from ..pages.rows import page_of
from ..sign_in.forms import Form
from . import once
from . import tokens as token_store

_DAY_MS = 86_400_000


class TokenForm(Form):
    """A new token. It cannot have more rights than its owner."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        help_text=gettext_lazy("What it is for. The audit log shows this name."),
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"))
    may_read_bodies = forms.BooleanField(label=gettext_lazy("May read message bodies"), required=False)
    may_export = forms.BooleanField(label=gettext_lazy("May export messages"), required=False)
    topic_pattern = forms.CharField(
        label=gettext_lazy("Topics"),
        initial="*",
        required=False,
        max_length=255,
        help_text=gettext_lazy("A pattern for the names it may access: orders-* for example, or * for all."),
    )
    group_pattern = forms.CharField(label=gettext_lazy("Consumer groups"), initial="*", required=False, max_length=255)
    days = forms.IntegerField(
        label=gettext_lazy("Expires after, in days"),
        required=False,
        min_value=1,
        max_value=3650,
        initial=90,
        help_text=gettext_lazy("Leave empty for a token that never expires."),
    )

    def __init__(self, owner: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ranks = list(Role.values)
        allowed = ranks[: ranks.index(owner.role) + 1]
        self.fields["role"].choices = [choice for choice in Role.choices if choice[0] in allowed]
        for grant in ("may_read_bodies", "may_export"):
            if not getattr(owner, grant):
                del self.fields[grant]


def tokens(request: HttpRequest) -> HttpResponse:
    """Show the user's tokens, or all tokens to an administrator, in pages."""
    page = page_of(_visible(request.user).select_related("owner"), page_number(request))
    return render(request, "tokens/list.html", {"page": page, "now_ms": now_ms(), "yes_no": _("yes,no")})


def token_create(request: HttpRequest) -> HttpResponse:
    """Make a token. The next page shows its secret once; reloading that page does not make another."""
    form = TokenForm(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        days = values["days"]
        try:
            with transaction.atomic():
                token, secret = token_store.create(
                    request.user,
                    values["name"],
                    values["role"],
                    may_read_bodies=values.get("may_read_bodies", False),
                    may_export=values.get("may_export", False),
                    topic_pattern=values["topic_pattern"] or "*",
                    group_pattern=values["group_pattern"] or "*",
                    expires_at_ms=now_ms() + days * _DAY_MS if days else None,
                )
                audit(request, "token.create", token.name, None, token_store.rights_of(token))
        except token_store.OwnerChanged:
            return errors.forbidden(request)
        except token_store.TooMany:
            form.add_error(None, _("You have %(count)d tokens. Revoke some first.") % {"count": token_store.MOST_EACH})
        else:
            ticket = once.keep(request.user.pk, secret)
            return HttpResponseRedirect(reverse("token_created", args=[token.pk, ticket]))
    status = form_status(form)
    return render(request, "tokens/create.html", {"form": form}, status=status)


def token_created(request: HttpRequest, pk: int, ticket: str) -> HttpResponse:
    """Show a new token's secret, once."""
    token = get_object_or_404(_visible(request.user), pk=pk)
    context = {"token": token, "secret": once.take(request, ticket)}
    return render(request, "tokens/created.html", context)


def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Revoke a token: it is rejected from now on."""
    token = get_object_or_404(_visible(request.user), pk=pk)
    if token.revoked_at_ms is None:
        token_store.revoke(token)
        audit(request, "token.revoke", token_store.label_of(token), {"active": True}, {"active": False})
    messages.success(request, _("Token %(name)s revoked.") % {"name": token.name})
    return HttpResponseRedirect(reverse("tokens"))


def _visible(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.all() if user.role == Role.ADMIN else ApiToken.objects.filter(owner=user)
