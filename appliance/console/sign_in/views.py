"""Signing in and out, confirming the password, setting one by a link; and the user's language and time zone."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ... import runtime
from ..audit.log import Actor, audit, record
from ..audit.refused_sign_ins import entry_log
from ..models import User
from ..pages.changes import form_status
from ..pages.time_zones import is_zone
from ..users import tokens
from . import known_browsers, password_links, second_factor, sessions, set_up
from .forms import CodeForm, ConfirmForm, SetPasswordForm, SignInForm
from .identity import authenticate, confirm, present, sign_in, sign_out, way_of
from .lockout import Try, lockout

logger = logging.getLogger(__name__)

# Key in the session of a user who has given the password but not yet the code: [user, hash, until when in seconds].
_WAITING = "waiting_for_code"
_WAITING_S = 300


def login(request: HttpRequest) -> HttpResponse:
    """Ask for name and password. A wrong name and a wrong password get the same words after the same time."""
    next_page = safe_next(request)
    if request.user.is_authenticated and request.method != "POST":
        return HttpResponseRedirect(next_page)
    if not User.objects.exists():
        return render(request, "login.html", {"not_set_up": True})
    form = SignInForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = _checked(request, form, form.cleaned_data["username"])
        if user is not None and user.has_second_factor:
            return _ask_for_code(request, user, next_page)
        if user is not None:
            return entered(request, user, "password", next_page)
    context = {"form": form, "next": next_page, "oidc": runtime.place().sign_in.oidc}
    return render(request, "login.html", context, status=form_status(form))


def login_code(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor after the right password: a code or a recovery code."""
    next_page = safe_next(request)
    user = _waiting(request)
    if user is None:
        return HttpResponseRedirect(reverse("login"))
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _checked_code(request, form, user):
        lockout.succeeded(user.username, request.client_address, known_browsers.known_as(request, user))
        return entered(request, user, "password", next_page)
    return render(request, "login_code.html", {"form": form, "next": next_page}, status=form_status(form))


def entered(request: HttpRequest, user: User, way: str, next_page: str) -> HttpResponse:
    """Sign the user in, write that to the audit log, and redirect to the page they wanted, or to an open step of the
    set-up."""
    sign_in(request, user, way)
    audit(request, "user.sign_in", user.username, after={"way": way})
    open_step = set_up.is_open() and user.is_admin and set_up.next_step() in ("address", "message")
    response = HttpResponseRedirect(reverse(f"setup_{set_up.next_step()}") if open_step else next_page)
    known_browsers.remember(request, response, user)
    return response


def confirm_password(request: HttpRequest) -> HttpResponse:
    """Ask for the password again before some acts; see `recent_login`. Users who signed in through a provider
    are sent there again. For users of a proxy, which vouches for each request, a click is enough."""
    next_page = safe_next(request)
    user: Any = request.user
    way = way_of(request)
    form = ConfirmForm(request.POST or None) if user.has_usable_password() and way != "proxy" else None
    if request.method == "POST":
        if form is None and way == "proxy":
            confirm(request)
            return HttpResponseRedirect(next_page)
        known = f"session {present(request)}"
        if form is not None and form.is_valid() and _checked(request, form, user.username, known) is not None:
            lockout.succeeded(user.username, request.client_address, known)
            confirm(request)
            return HttpResponseRedirect(next_page)
    context = {"form": form, "next": next_page, "way": way, "oidc": runtime.place().sign_in.oidc}
    return render(request, "confirm_password.html", context, status=422 if form is None else form_status(form))


def logout(request: HttpRequest) -> HttpResponse:
    """End the session."""
    if request.user.is_authenticated:
        audit(request, "user.sign_out", request.user.username)
    sign_out(request)
    return HttpResponseRedirect(reverse("login"))


def set_password(request: HttpRequest, secret: str) -> HttpResponse:
    """Set a user's own password through a link that an administrator made; the link works once."""
    link = password_links.find(secret)
    if link is None or not password_links.is_good(link):
        return render(request, "set_password.html", {"used": True}, status=404)
    form = SetPasswordForm(link.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = link.user
        with transaction.atomic():
            if not password_links.use(link):
                return render(request, "set_password.html", {"used": True}, status=404)
            user.set_password(form.cleaned_data["password"])
            user.must_change_password = False
            user.save(update_fields=["password", "must_change_password"])
            note = partial(record, by=Actor.of(request, user.username, "user"))
            note("user.set_password", user.username, None, {"way": "link"})
            tokens.revoke_all(user, note)
            sessions.end_all(user)
        messages.success(request, _("Password set. Sign in with it."))
        return HttpResponseRedirect(reverse("login"))
    return render(request, "set_password.html", {"form": form, "person": link.user}, status=form_status(form))


def set_language(request: HttpRequest) -> HttpResponse:
    """Store the language in a cookie, and for a signed-in user in the database."""
    response = HttpResponseRedirect(safe_next(request))
    language = request.POST.get("language", "")
    if language in dict(settings.LANGUAGES):
        user: Any = request.user
        if user.kind == "user":
            User.objects.filter(pk=user.pk).update(language=language)
        remember_language(response, language)
        translation.activate(language)
    return response


def set_time_zone(request: HttpRequest) -> HttpResponse:
    """Store the zone in which the user reads and types times."""
    zone = request.POST.get("time_zone", "").strip()
    user: Any = request.user
    if zone in ("", "UTC") or is_zone(zone):
        User.objects.filter(pk=user.pk).update(time_zone="" if zone == "UTC" else zone)
        messages.success(request, _("Saved."))
    else:
        messages.error(request, _("There is no time zone %(name)s.") % {"name": zone[:64]})
    return HttpResponseRedirect(reverse("account"))


def remember_language(response: HttpResponse, language: str) -> None:
    """Set the cookie that keeps the language of callers who have not signed in."""
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
    """Return the address to go to afterwards: a page of this console, else the overview."""
    return safe_page(request.POST.get("next") or request.GET.get("next") or "")


def safe_page(wanted: str) -> str:
    """Return the address if it is a page of this console, else the overview's."""
    if wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None):
        return wanted
    return reverse("overview")


def _ask_for_code(request: HttpRequest, user: User, next_page: str) -> HttpResponse:
    request.session.cycle_key()
    request.session[_WAITING] = [user.pk, user.get_session_auth_hash(), int(time.time()) + _WAITING_S]
    from urllib.parse import urlencode

    return HttpResponseRedirect(reverse("login_code") + "?" + urlencode({"next": next_page}))


def _waiting(request: HttpRequest) -> User | None:
    """Return the user whose password was given in this session a moment ago, and who has to give a code now; else
    None."""
    pk, known, until = request.session.get(_WAITING) or (None, "", 0)
    if pk is None or until < time.time():
        return None
    user = User.objects.filter(pk=pk, is_active=True).first()
    return user if user is not None and user.get_session_auth_hash() == known and user.has_second_factor else None


def _checked_code(request: HttpRequest, form: Any, user: User) -> bool:
    """True if the code is right. If not, the form has the reason."""
    known = known_browsers.known_as(request, user)
    one = second_factor.lockout.begin(user.username, request.client_address, known)
    if _is_shut(form, one, _too_many_codes):
        return False
    how = second_factor.check(user, form.cleaned_data["code"])
    if how is not None:
        second_factor.lockout.was_right(one)
        second_factor.lockout.succeeded(user.username, request.client_address, known)
        if how == "recovery code":
            left = second_factor.recovery_codes_left(user)
            _note(request, "second_factor.recovery_code", user.username, "done", {"left": left})
        return True
    _note(request, "second_factor.refused", user.username, "refused", None)
    form.add_error("code", _("This code is wrong, or was used. Wait for the next one."))
    return False


def _checked(request: HttpRequest, form: Any, username: str, session: str = "") -> User | None:
    """Return the user if the password is right; else None, and the form has the reason. Earlier wrong tries of a user
    with a second factor stay counted until the code was right. session: identifies the session that is to confirm."""
    address = request.client_address
    named = User.objects.named(username)
    browser = session or known_browsers.known_as(request, named)
    one = lockout.begin(username, address, browser)
    if _is_shut(form, one, _too_many_passwords):
        return None
    user = authenticate(username, form.cleaned_data["password"])
    if user is not None:
        lockout.was_right(one)
        if not user.has_second_factor:
            lockout.succeeded(username, address, browser)
        return user
    if one.shuts:
        _note(request, "user.locked_out", username, "refused", None)
    elif entry_log.may_note():
        # A name that no user has is not logged: it may be a password, typed into the wrong field.
        _note(request, "user.sign_in", named.username if named else "-", "refused", entry_log.left_out())
    form.add_error(None, _("Wrong name or password.") if "username" in form.fields else _("Wrong password."))
    return None


def _note(request: HttpRequest, action: str, target: str, result: str, after: Any) -> None:
    by = Actor.of(request, "-" if result == "refused" else target, "user")
    record(action, target, after=after, by=by, result=result)


def _is_shut(form: Any, one: Try, sentence: Any) -> bool:
    if one.wait_s > 0:
        minutes = math.ceil(one.wait_s / 60)
        form.add_error(None, sentence(minutes) % {"minutes": minutes})
    return one.wait_s > 0


def _too_many_passwords(minutes: int) -> str:
    return ngettext(
        "Too many wrong passwords. Try again in %(minutes)d minute.",
        "Too many wrong passwords. Try again in %(minutes)d minutes.",
        minutes,
    )


def _too_many_codes(minutes: int) -> str:
    return ngettext(
        "Too many wrong codes. Try again in %(minutes)d minute.",
        "Too many wrong codes. Try again in %(minutes)d minutes.",
        minutes,
    )
