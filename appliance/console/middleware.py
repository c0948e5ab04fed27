"""The layers around every view, outermost first: headers, the session, the caller, the language, and access."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib.sessions.middleware import SessionMiddleware
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.urls import reverse
from django.utils import timezone, translation

from .. import runtime
from ..engine.errors import AdminError
from .audit import act_journal, refused_acts
from .audit.log import audit, unfinished
from .pages import asked, errors, time_zones
from .serving.turns import TURN, Turn, caller_address
from .serving.utf8 import is_form_in_utf8
from .sign_in import proxy_sign_in, second_factor, set_up
from .sign_in.identity import AnonymousUser, Bearer, names_for, sign_in, sign_out, user_of, way_of
from .users import rights, scope, tokens
from .users.access import ACCESS, methods_of, rule_for
from .users.roles import Rule

logger = logging.getLogger(__name__)

# Nothing inline and nothing from other hosts: a message body that gets into a page cannot run.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
API_PREFIX = "/api/"
# A year, for the public address alone: on other names of this machine other servers may speak HTTP.
STRICT_TRANSPORT = "max-age=31536000"

_READING = ("GET", "HEAD", "OPTIONS")
_OF_NOBODY = ("/healthz", "/readyz", "/static/")


class _Middleware:
    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response


class Outermost(_Middleware):
    """Gives each request a number, and each answer its headers."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.request_id = secrets.token_hex(8)
        response = self.finished(request, self.get_response(request))
        if (kept := getattr(request, "_messages", None)) is not None:
            kept.request = None  # they refer to each other, and cycles are not collected (D10): the body would stay
        request.__dict__.pop("_upload_handlers", None)  # a cycle, too: they refer to the request and the files
        return response

    @staticmethod
    def finished(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Add the headers that every response has, and return it."""
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Request-Id", request.request_id)
        public = urlsplit(runtime.place().public_url or "")
        if public.scheme == "https" and request.headers.get("host", "").lower() == public.netloc.lower():
            response.headers.setdefault("Strict-Transport-Security", STRICT_TRANSPORT)
        return response


class Sessions(SessionMiddleware):
    """Django's sessions, except that signed-in users can go on reading while the database takes no writes, as on a full
    disk: a session that cannot be renewed stays valid."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        try:
            return super().process_response(request, response)
        except DatabaseError:
            if request.method not in _READING:
                raise
            return response


class Identity(_Middleware):
    """Sets request.user and request.client_address.

    If there is an Authorization header, it alone decides: with a bad token the caller is AnonymousUser, even if the
    request has a session. The header is ignored except below /api/ and at /metrics.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.client_address = client_address(request)
        request.user = AnonymousUser() if request.path_info.startswith(_OF_NOBODY) else caller_of(request)
        if not request.user.is_authenticated and not request.path_info.startswith(_OF_NOBODY):
            _come_in_by_proxy(request)
        if (turn := turn_of(request)) is not None:
            turn.is_of(request.user.pk)
        return self.get_response(request)


def caller_of(request: HttpRequest) -> Any:
    """Return the user of the request's session, the bearer of its token, or AnonymousUser."""
    header = request.headers.get("authorization")
    if header is None or not request.path_info.startswith((API_PREFIX, "/metrics")):
        return _unless_a_proxy_says_otherwise(request, user_of(request))
    scheme, _, secret = header.partition(" ")
    token = tokens.authenticate(secret.strip()) if scheme.lower() == "bearer" else None
    return Bearer(token) if token else AnonymousUser()


def _unless_a_proxy_says_otherwise(request: HttpRequest, user: Any) -> Any:
    """Return the session's user; AnonymousUser if a trusted proxy names another user, or if the session began by a
    proxy's header and the request has none."""
    name = proxy_sign_in.name_in(request)
    if not user.is_authenticated:
        return user
    is_theirs = way_of(request) != "proxy" if name is None else user.username.casefold() == name.casefold()
    return user if is_theirs else AnonymousUser()


def _come_in_by_proxy(request: HttpRequest) -> None:
    """Begin a session for the user whom a trusted proxy names; end a session that began so if the header is missing."""
    name = proxy_sign_in.name_in(request)
    if name is None or ("authorization" in request.headers and request.path_info.startswith((API_PREFIX, "/metrics"))):
        if way_of(request) == "proxy":
            sign_out(request)
        return
    user = proxy_sign_in.user_named(name, request.client_address, request.request_id)
    if user is None:
        return
    sign_in(request, user, "proxy")
    audit(request, "user.sign_in", user.username, after={"way": "proxy"})


def client_address(request: HttpRequest) -> str:
    """Return the caller's IP address, also behind a declared proxy; see `turns.caller_address`."""
    return caller_address(str(request.META.get("REMOTE_ADDR") or ""), request.headers.get("x-forwarded-for"))


class Language(_Middleware):
    """Sets the language and the time zone: the user's language, else that of the browser's cookie, else the one that
    the browser prefers; the user's time zone, else UTC. Stored values are never translated."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        chosen = request.user.language
        language = chosen or translation.get_language_from_request(request)
        zone = time_zones.zone(request.user.time_zone) or UTC
        with translation.override(language), timezone.override(zone):
            request.LANGUAGE_CODE = translation.get_language()
            response = self.get_response(request)
            response.headers.setdefault("Content-Language", translation.get_language() or "en")
        return response


class Access(_Middleware):
    """Checks the access table before every view; see `access`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._csrf = CsrfViewMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.act = None
        if not is_form_in_utf8(request):
            return errors.bad_request(request)
        try:
            response = self.get_response(request)
        finally:
            kept = act_journal.journal()
            if request.act is not None and kept is not None:
                kept.end(request.act)
        if response.status_code == 403 and request.method not in _READING and request.user.is_authenticated:
            refused_acts.note(request)
        if response.headers.get("Content-Type", "").startswith("text/csv") and (names := asked.unread(request)):
            return errors.unknown_parameters(request, names)
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        match = request.resolver_match
        assert match is not None, "Django resolves before it calls"
        rule = rule_for(match.view_name, request.method or "", match.route)
        user: Any = request.user
        if rule is None:
            if methods := methods_of(match.route):
                return errors.method_not_allowed(request, methods)
            logger.error("access: refused, not in the table view=%r route=%r", match.view_name, match.route)
            return errors.forbidden(request)
        if rule.door == "setup" and not set_up.is_open():
            return errors.set_up_is_over(request)
        if not rule.admits(user) and not (rule.door == "local" and is_this_machine(request)):
            return self._refused(request, rule, user)
        if rule.role and (first := comes_first(request, user)) and match.view_name not in (first, *_MEANWHILE):
            if request.path_info.startswith(API_PREFIX) or user.kind == "token":
                return errors.forbidden(request, comes_first=first)
            return HttpResponseRedirect(reverse(first))
        if user.is_authenticated and not match.route.startswith("api/") and not scope.admits(
            user, match.view_name, kwargs.get("name")
        ):  # fmt: skip
            if match.view_name == "overview" and request.method in ("GET", "HEAD"):
                return HttpResponseRedirect(reverse("topics"))
            return errors.outside_pattern(request, str(names_for(user)))
        if request.method not in _READING and user.is_authenticated:
            try:
                request.act = _written_down(request, match.view_name)
            except (DatabaseError, OSError, act_journal.NoRoom) as error:
                logger.error("audit log: an act was refused, since it cannot be written down: %s", error)
                return errors.not_written_down(request)
        if not request.path_info.startswith(API_PREFIX):
            asked.watch(request)
        if user.is_authenticated and (turn := turn_of(request)) is not None:
            turn.may_go_on = partial(rights.goes_on, turn.scope, rights.of(user))
        # Frameworks exempt their views from the CSRF check; a request with a session always needs it.
        if getattr(view, "csrf_exempt", False) and user.kind == "user":
            return self._csrf.process_view(request, _not_exempt, (), {})
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer EngineNotRunning, and errors of the engine that a view does not handle itself, with a page that says
        why."""
        if isinstance(exception, runtime.EngineNotRunning):
            return errors.engine_not_running(request)
        if isinstance(exception, AdminError):
            from .pages.engine_pages import refusal_page  # pages import it, and the start does not

            return refusal_page(request, exception)
        return None

    @staticmethod
    def _refused(request: HttpRequest, rule: Rule, user: Any) -> HttpResponse:
        if user.is_authenticated:
            return errors.forbidden(request, rule)
        is_page = request.resolver_match is not None and request.resolver_match.view_name == "api_docs"
        if (request.path_info.startswith(API_PREFIX) and not is_page) or rule is ACCESS["metrics"]:
            return errors.unauthorized(request)
        address = reverse("login")
        if request.method in ("GET", "HEAD") and request.path_info != "/":
            address += "?" + urlencode({"next": request.get_full_path()})
        if "HX-Request" in request.headers:
            return HttpResponse(status=204, headers={"HX-Redirect": reverse("login")})
        if re.search(r"\bjson\b|event-stream", request.headers.get("accept", "")):
            return JsonResponse({"detail": "sign in first"}, status=401)
        return HttpResponseRedirect(address)


def _written_down(request: HttpRequest, view: str) -> int | None:
    """Write to the journal of acts that the request may change something, before it does; return the number there, None
    without a journal. Raises DatabaseError, OSError or NoRoom if the audit log takes no entries: then the act must not
    be done."""
    kept = act_journal.journal()
    if kept is None:
        return None
    with transaction.atomic():
        pass  # takes the write lock of the settings database: fails now if an entry could not be written
    return kept.begin(unfinished(request, view))


# Views that users may open before they have dealt with the page that comes first.
_MEANWHILE = ("confirm_password", "second_factor_codes", "set_time_zone")


def comes_first(request: HttpRequest, user: Any) -> str:
    """Return the view that a user has to deal with before any other, to set a password or a second factor; "" for
    none."""
    by_password = way_of(request) not in ("proxy", "oidc")
    if user.must_change_password and by_password:
        return "account"
    if user.is_authenticated and by_password and second_factor.is_missing(user):
        return "second_factor"
    return ""


def turn_of(request: HttpRequest) -> Turn | None:
    """Return the request's turn; None if there are no turns, as in tests of a view."""
    found: Turn | None = getattr(request, "scope", {}).get(TURN)
    return found


def is_this_machine(request: HttpRequest) -> bool:
    """True if the request comes from this machine and not through a proxy, behind which a stranger might be."""
    if runtime.place().public_url or "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    return runtime.is_loopback(str(request.META.get("REMOTE_ADDR") or ""))


def _not_exempt() -> None: ...
