"""A user's own second factor and sessions."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from ..audit.log import audit
from ..models import User
from ..users import once, user_acts
from . import second_factor as factor
from . import sessions
from .forms import CodeForm
from .identity import present

# Key in the session for the secret that is shown but not confirmed yet.
_OFFERED = "offered_second_factor"


def second_factor(request: HttpRequest) -> HttpResponse:
    """Turn the second factor on: show a QR code for the authenticator app, and check a code from it. If the page is
    reloaded, it shows the same QR code."""
    user: Any = request.user
    if user.identity or user.has_second_factor:
        return HttpResponseRedirect(reverse("account"))
    secret = request.session.get(_OFFERED) or factor.new_secret()
    request.session[_OFFERED] = secret
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            codes = factor.turn_on(user, secret, form.cleaned_data["code"])
            if codes is not None:
                audit(request, "second_factor.enrol", user.username, {"on": False}, {"on": True})
        if codes is not None:
            del request.session[_OFFERED]
            sessions.end_all(user, but=present(request))
            messages.success(request, _("The second factor is on."))
            return HttpResponseRedirect(reverse("second_factor_codes", args=[once.keep(user.pk, codes)]))
        form.add_error("code", _("This code does not fit. Is the clock of your phone right?"))
    context = {"form": form, "secret": secret, "picture": mark_safe(factor.picture_of(secret, user))}
    context |= {"required": factor.is_missing(user)}
    return render(request, "account/second_factor.html", context, status=422 if form.errors else 200)


def second_factor_codes(request: HttpRequest, ticket: str) -> HttpResponse:
    """Show the recovery codes, once."""
    return render(request, "account/recovery_codes.html", {"codes": once.take(request, ticket)})


def second_factor_off(request: HttpRequest) -> HttpResponse:
    """Turn the user's own second factor off, or (`what=codes`) make new recovery codes."""
    user: Any = request.user
    if not user.has_second_factor:
        return HttpResponseRedirect(reverse("account"))
    if request.POST.get("what") == "codes":
        with transaction.atomic():
            codes = factor.new_recovery_codes(user)
            audit(request, "second_factor.new_codes", user.username)
        return HttpResponseRedirect(reverse("second_factor_codes", args=[once.keep(user.pk, codes)]))
    with transaction.atomic():
        factor.turn_off(user)
        audit(request, "second_factor.remove", user.username, {"on": True}, {"on": False})
    messages.success(request, _("The second factor is off."))
    return HttpResponseRedirect(reverse("account"))


def session_end(request: HttpRequest) -> HttpResponse:
    """End one of the user's own sessions (`session=`), or all others."""
    user: Any = request.user
    text = request.POST.get("session", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if number is None and text != "others":
        return HttpResponseRedirect(reverse("account"))
    count = user_acts.end_sessions(
        request, User.objects.get(pk=user.pk), number, but=present(request) if number is None else None
    )
    messages.success(request, _("Sessions ended: %(count)d.") % {"count": count})
    return HttpResponseRedirect(reverse("account"))
