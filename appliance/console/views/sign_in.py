"""Coming, going, and saying it is still you."""

from __future__ import annotations

import math
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from .. import set_up
from ..audit import record
from ..forms import ConfirmForm, SignInForm
from ..identity import authenticate, confirm, sign_in, sign_out
from ..lockout import lockout
from ..models import User


@require_http_methods(["GET", "HEAD", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Ask for name and password; the same words and the same time whether the name or the password was wrong."""
    next_page = safe_next(request)
    if request.user.is_authenticated and request.method != "POST":
        return HttpResponseRedirect(next_page)
    if not User.objects.exists():
        return render(request, "login.html", {"not_set_up": True})
    form = SignInForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = _checked(request, form, form.cleaned_data["username"])
        if user is not None:
            sign_in(request, user)
            open_step = set_up.is_open() and user.is_admin and set_up.next_step() in ("address", "message")
            return HttpResponseRedirect(reverse(f"setup_{set_up.next_step()}") if open_step else next_page)
    return render(request, "login.html", {"form": form, "next": next_page}, status=_status(form))


@require_http_methods(["GET", "HEAD", "POST"])
def confirm_password(request: HttpRequest) -> HttpResponse:
    """Ask for the password again before a destructive act; see `recent_login`."""
    next_page = safe_next(request)
    form = ConfirmForm(request.POST or None)
    user: Any = request.user
    if request.method == "POST" and form.is_valid() and _checked(request, form, user.username) is not None:
        confirm(request)
        return HttpResponseRedirect(next_page)
    return render(request, "confirm_password.html", {"form": form, "next": next_page}, status=_status(form))


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """End the session."""
    sign_out(request)
    return HttpResponseRedirect(reverse("login"))


@require_POST
def set_language(request: HttpRequest) -> HttpResponse:
    """Remember a language: in a cookie, and for a user who is signed in."""
    response = HttpResponseRedirect(safe_next(request))
    language = request.POST.get("language", "")
    if language in dict(settings.LANGUAGES):
        user: Any = request.user
        if user.kind == "user":
            User.objects.filter(pk=user.pk).update(language=language)
        remember_language(response, language)
        translation.activate(language)
    return response


def remember_language(response: HttpResponse, language: str) -> None:
    """Set the cookie that keeps a language for whoever has not signed in."""
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=settings.LANGUAGE_COOKIE_AGE,
        path=settings.LANGUAGE_COOKIE_PATH,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def safe_next(request: HttpRequest) -> str:
    """Where to go afterwards: a page of this console, else the overview."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    if wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None):
        return wanted
    return reverse("overview")


def _checked(request: HttpRequest, form: Any, username: str) -> User | None:
    """The user whose password it is; else None, and the form says why."""
    address = request.client_address
    wait_s = lockout.wait_s(username, address)
    if wait_s > 0:
        minutes = math.ceil(wait_s / 60)
        sentence = ngettext(
            "Too many wrong passwords. Try again in %(minutes)d minute.",
            "Too many wrong passwords. Try again in %(minutes)d minutes.",
            minutes,
        )
        form.add_error(None, sentence % {"minutes": minutes})
        return None
    user = authenticate(username, form.cleaned_data["password"])
    if user is not None:
        lockout.succeeded(username, address)
        return user
    if lockout.failed(username, address):
        record(
            "user.locked_out", username, result="refused", actor="-", actor_kind="user", address=address,
            request_id=request.request_id,
        )  # fmt: skip
    form.add_error(None, _("Wrong name or password.") if "username" in form.fields else _("Wrong password."))
    return None


def _status(form: Any) -> int:
    return 422 if form.is_bound and form.errors else 200
