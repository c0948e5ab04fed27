"""Signing in through the OpenID provider: the way there, and the way back."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.translation import gettext as _

from ... import runtime
from ...sign_in_options import OidcSignIn
from ..audit.log import Actor, record
from ..audit.refused_sign_ins import entry_log
from ..models import User
from ..pages.errors import base_of
from ..users import tokens
from ..users.user_acts import is_last_admin, rights_of
from . import oidc
from .identity import confirm
from .lockout import network_of
from .views import entered, safe_next, safe_page

logger = logging.getLogger(__name__)
# The cookie that binds the answer to the browser that began the sign-in.
COOKIE = "rocketbox_oidc"


def login_oidc(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    options = _options()
    again = request.user.is_authenticated
    try:
        network = network_of(request.client_address)
        address, flow = oidc.begin(options, _callback(), safe_next(request), again, network)
    except oidc.NotSignedIn as error:
        return _refused(request, options, error)
    response = HttpResponseRedirect(address)
    response.set_cookie(
        COOKIE, flow.binding, max_age=oidc.FLOW_S, path=settings.SESSION_COOKIE_PATH, httponly=True, samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )  # fmt: skip
    return response


def login_oidc_back(request: HttpRequest) -> HttpResponse:
    """Handle the provider's answer: sign the user in, or confirm a user who was to sign in again. The flow is good for
    one answer."""
    options = _options()
    query = {name: request.GET[name] for name in ("state", "code", "iss", "error") if name in request.GET}
    try:
        flow = oidc.recall(query.get("state", ""), request.COOKIES.get(COOKIE, ""))
        person = oidc.finish(options, _callback(), flow, query)
        caller: Any = request.user
        if flow.again:
            if not caller.is_authenticated or caller.identity != person.identity:
                raise oidc.NotSignedIn("another", "the provider sent another user back")
            confirm(request)
            return HttpResponseRedirect(safe_page(flow.next_page))
        return entered(request, _user(request, person), "oidc", safe_page(flow.next_page))
    except oidc.NotSignedIn as error:
        return _refused(request, options, error)


def _options() -> OidcSignIn:
    options = runtime.place().sign_in.oidc
    if options is None:
        raise Http404
    return options


def _callback() -> str:
    """Return the address to which the provider sends browsers back: below the public one, whatever the request's Host
    is."""
    return f"{runtime.place().public_url}/login/oidc/back/"


def _user(request: HttpRequest, person: oidc.Person) -> User:
    """Return the user for the provider's person, found by the subject there and never by the name; created at the first
    sign-in. The role is updated from the provider each time. Raises NotSignedIn."""
    with transaction.atomic():
        user = User.objects.filter(identity=person.identity).first()
        if user is None:
            if User.objects.named(person.name) is not None:
                raise oidc.NotSignedIn("name_taken", f"there is another user of the name {person.name!r}")
            user = User(username=person.name, role=person.role, identity=person.identity)
            user.set_unusable_password()
            try:
                user.full_clean(exclude=["password"])
            except ValidationError:
                raise oidc.NotSignedIn("name", f"{person.name!r} cannot be a user's name") from None
            user.save()
            _note(request, "user.create", user, None)
        if not user.is_active:
            raise oidc.NotSignedIn("disabled", "the user is disabled here")
        if user.role != person.role and not (is_last_admin(user) and person.role != "admin"):
            before = rights_of(user)
            user.role = person.role
            user.save(update_fields=["role"])
            _note(request, "user.change", user, before)
            tokens.limit_to_owner(user, lambda *line: _line(request, user, *line))
    return user


def _note(request: HttpRequest, action: str, user: User, before: Any) -> None:
    _line(request, user, action, user.username, before, rights_of(user) | {"by": "oidc"})


def _line(request: HttpRequest, user: User, action: str, target: str, before: Any = None, after: Any = None) -> None:
    record(action, target, before, after, by=Actor.of(request, user.username, "oidc"))


def _refused(request: HttpRequest, options: OidcSignIn, error: oidc.NotSignedIn) -> HttpResponse:
    logger.warning("console: a sign-in by OpenID Connect was refused: %s request=%s", error, request.request_id)
    if entry_log.may_note():
        record(
            "user.sign_in", "-", after={"way": "oidc", "why": error.code} | (entry_log.left_out() or {}),
            by=Actor.of(request, "-", "oidc"), result="refused",
        )  # fmt: skip
    reasons = {
        "state": _("This sign-in was not begun here, or took too long. Begin it again."),
        "refused": _("%(name)s did not let you in."),
        "domain": _("Your mail address at %(name)s is not verified, or not of an allowed domain."),
        "no_role": _("None of your groups at %(name)s has a role here. An administrator can change that."),
        "unreachable": _("%(name)s does not answer as it should. The log has the details."),
        "disabled": _("This user is disabled here."),
        "name_taken": _("There is another user with your name here."),
        "another": _("%(name)s sent back another user than you."),
    }
    sentence = reasons.get(error.code, _("The answer of %(name)s is not good. The log has the details."))
    status = 503 if error.code == "unreachable" else 403
    context = {"heading": _("Not signed in"), "sentence": sentence % {"name": options.label}, "base": base_of(request)}
    return render(request, "error.html", context, status=status)
