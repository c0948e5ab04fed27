"""Answers to requests that fail or are refused: as a page, or as problem details (RFC 9457) below /api/."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import Role
from ..serving.database import is_damage
from ..sign_in.identity import AnonymousUser
from ..users.roles import RANKS, Rule


def _answer(request: HttpRequest, status: int, code: str, heading: str, sentence: str) -> HttpResponse:
    if request.path_info.startswith("/api/"):
        # The same form as in `api.errors`, whose table has these codes.
        problem = {"type": f"urn:rocketbox:problem:{code}", "title": heading, "status": status, "detail": sentence}
        problem |= {"instance": request.get_full_path(), "code": code}
        problem["request_id"] = getattr(request, "request_id", "")
        response: HttpResponse = JsonResponse(problem, status=status, content_type="application/problem+json")
    else:
        context = {"heading": heading, "sentence": sentence, "base": base_of(request)}
        response = render(request, "error.html", context, status=status)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


def base_of(request: HttpRequest) -> str:
    """Return the template around a refusal: the one with the menu if the caller is a signed-in user."""
    user = getattr(request, "user", None)
    return "base.html" if user is not None and user.kind == "user" else "card.html"


def unauthorized(request: HttpRequest) -> HttpResponse:
    """401: the caller has not signed in, or the token is invalid."""
    sentence = _("Send a valid API token as “Authorization: Bearer …”, or sign in.")
    return _answer(request, 401, "unauthorized", _("Not signed in"), sentence)


_MISSING_RIGHTS = {
    "may_read_bodies": gettext_lazy("the right to read message bodies"),
    "may_export": gettext_lazy("the right to export messages"),
}
_COMES_FIRST = {
    "account": gettext_lazy("Choose your own password first, on the page of your account."),
    "second_factor": gettext_lazy("Your role needs a second factor: set it up first, on the page of your account."),
}


def forbidden(request: HttpRequest, rule: Rule | None = None, comes_first: str = "") -> HttpResponse:
    """403: signed in, but not allowed. rule: the one that is not met. comes_first: a key of _COMES_FIRST."""
    user = request.user
    sentence = _("Your role or your rights do not include this. An administrator can change that.")
    if comes_first:
        sentence = str(_COMES_FIRST[comes_first])
    elif rule is not None:
        missing = [str(_MISSING_RIGHTS[grant]) for grant in rule.grants if not getattr(user, grant)]
        if RANKS[user.role] < RANKS[rule.role]:
            role = _("the role %(role)s (yours is %(yours)s)")
            missing.insert(0, role % {"role": Role(rule.role).label, "yours": Role(user.role).label})
        if missing:
            needs = _("This needs %(what)s. An administrator can change that.")
            sentence = needs % {"what": _(" and ").join(missing)}
    return _answer(request, 403, "forbidden", _("Not allowed"), sentence)


def outside_pattern(request: HttpRequest, names: str) -> HttpResponse:
    """403: the user may access only some names, and this page is about others, or about the whole broker."""
    sentence = _("You may only access some names (%(names)s), and this page is about others.") % {"names": names}
    return _answer(request, 403, "outside_pattern", _("Not allowed"), sentence)


def set_up_is_over(request: HttpRequest) -> HttpResponse:
    """404: the set-up link was used, or belongs to an earlier start."""
    sentence = _("This set-up link was used, or is of an earlier start. Sign in, or look for a newer link in the log.")
    return _answer(request, 404, "not_found", _("The set-up is done"), sentence)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form came from another site, or is older than the session."""
    sentence = _("This form is out of date, or came from another site. Go back, reload the page and try again.")
    return _answer(request, 403, "csrf", _("The form was not accepted"), sentence)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400: a request that Django itself refused."""
    return _answer(request, 400, "bad_request", _("Invalid request"), _("The request could not be understood."))


def unknown_parameters(request: HttpRequest, names: list[str]) -> HttpResponse:
    """400: a file was requested with filters that do not exist."""
    sentence = _("There is no filter called %(names)s here, so the file would hold more than was asked for.")
    return _answer(request, 400, "bad_request", _("Invalid request"), sentence % {"names": ", ".join(names)})


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404."""
    sentence = _("There is no page at %(path)s.") % {"path": request.path[:200]}
    return _answer(request, 404, "not_found", _("Not found"), sentence)


def method_not_allowed(request: HttpRequest, methods: list[str]) -> HttpResponse:
    """405: an address of the API that does not have this method."""
    response = _answer(request, 405, "method_not_allowed", _("Method not allowed"), ", ".join(methods))
    response.headers["Allow"] = ", ".join(methods)
    return response


def too_large(request: HttpRequest, limit: int) -> HttpResponse:
    """413: the request is larger than this address accepts. limit: in bytes."""
    sentence = _("A request to this address may have at most %(limit)s bytes.") % {"limit": limit}
    return _answer(request, 413, "too_large", _("Too large"), sentence)


def too_slow(request: HttpRequest) -> HttpResponse:
    """408: the request's body did not arrive in time."""
    return _answer(request, 408, "too_slow", _("Too slow"), _("The rest of the request did not arrive in time."))


def busy(request: HttpRequest) -> HttpResponse:
    """503: too many large requests are handled already."""
    return _answer(
        request,
        503,
        "unavailable",
        _("Not available right now"),
        _("Too many large requests at once. Try again in a moment."),
    )


def too_many_streams(request: HttpRequest) -> HttpResponse:
    """429: the user has as many streams open as allowed (`streams`). Async views, too, may call this: it does not
    read the database."""
    sentence = _("Too many live pages and downloads are open. Close one, or wait until one has ended.")
    if request.path_info.startswith("/api/"):
        response = _answer(request, 429, "too_many_streams", _("Too many at a time"), sentence)
    else:
        response = HttpResponse(sentence, status=429, content_type="text/plain; charset=utf-8")
    response.headers["Retry-After"] = "30"
    return response


def not_written_down(request: HttpRequest) -> HttpResponse:
    """503: the audit log takes no entries, so nothing was done."""
    sentence = _("Nothing was done, since it could not be written into the audit log. The log says why.")
    return _answer(request, 503, "unavailable", _("Not available right now"), sentence)


def engine_not_running(request: HttpRequest) -> HttpResponse:
    """503: the engine is starting or stopping."""
    sentence = _("RocketBox is starting or stopping. Try again in a moment.")
    return _answer(request, 503, "engine_not_running", _("Not running"), sentence)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: RocketBox failed; the log has the details under the request's number. 503 if the settings database is
    damaged: then the caller cannot be known, so the page is shown as to a stranger."""
    if is_damage(sys.exc_info()[1]):
        request.user = AnonymousUser()
        request.__dict__.pop("_messages", None)
        sentence = _("The settings database cannot be read. Messages are served all the same. The log says what to do.")
        return _answer(request, 503, "unavailable", _("Not available right now"), sentence)
    sentence = _("The log has the details under the number of this request.")
    return _answer(request, 500, "internal", _("Internal error"), sentence)
