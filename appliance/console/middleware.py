"""What surrounds every request, outermost first: headers and turns, the caller, the language, and access."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable
from datetime import UTC
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.sessions.middleware import SessionMiddleware
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.urls import reverse
from django.utils import timezone, translation

from .. import runtime
from . import asked, proxy_sign_in, scope, second_factor, set_up, time_zones, tokens
from .access import ACCESS, Rule, methods_of, rule_for
from .audit import audit
from .identity import AnonymousUser, Bearer, names_for, sign_in, sign_out, user_of, way_of
from .views import errors

logger = logging.getLogger(__name__)

# Nothing inline and nothing from elsewhere: a message body that finds its way into a page cannot run.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
API_PREFIX = "/api/"

# Pages rendered at the same time (decision D10): more would take the interpreter from the engine's threads.
PAGES_AT_ONCE = 2
# An act (sending a message, making a topic) mostly waits for the engine, 15 s at the worst; pages do not wait for it.
ACTS_AT_ONCE = 8
_READING = ("GET", "HEAD", "OPTIONS")
_WITHOUT_A_TURN = ("/healthz", "/readyz", "/static/")


class Outermost:
    """Gives each request a number and a turn, and each answer its headers. A stream's turn ends when it begins."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        # Gates for pages and for acts, for each event loop: the server has one, tests have many.
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, asyncio.Semaphore]]
        self._gates = WeakKeyDictionary()
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        request.request_id = secrets.token_hex(8)
        if iscoroutinefunction(self):
            return self._answer(request)
        return self.finished(request, self.get_response(request))

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(_WITHOUT_A_TURN):
            return self.finished(request, await self.get_response(request))
        loop = asyncio.get_running_loop()
        if loop not in self._gates:
            self._gates[loop] = asyncio.Semaphore(PAGES_AT_ONCE), asyncio.Semaphore(ACTS_AT_ONCE)
        pages, acts = self._gates[loop]
        async with pages if request.method in _READING else acts:
            return self.finished(request, await self.get_response(request))

    @staticmethod
    def finished(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """The answer with the headers that all have."""
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Request-Id", request.request_id)
        return response


class Sessions(SessionMiddleware):
    """Django's. While the database takes nothing (a full disk), whoever is signed in goes on reading: a session that
    cannot be renewed is as good as it was."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        try:
            return super().process_response(request, response)
        except DatabaseError:
            if request.method not in _READING:
                raise
            return response


class Identity:
    """Sets request.user and request.client_address.

    An Authorization header decides alone: after a bad token the caller is AnonymousUser, whatever session comes along.
    Elsewhere than below /api/ the header means nothing.
    """

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.client_address = client_address(request)
        request.user = AnonymousUser() if request.path_info.startswith(_WITHOUT_A_TURN) else caller_of(request)
        if not request.user.is_authenticated and not request.path_info.startswith(_WITHOUT_A_TURN):
            _come_in_by_proxy(request)
        return self.get_response(request)


def caller_of(request: HttpRequest) -> Any:
    """The user of the request's session, the bearer of its token, or AnonymousUser."""
    header = request.headers.get("authorization")
    if header is None or not request.path_info.startswith((API_PREFIX, "/metrics")):
        return _unless_a_proxy_says_otherwise(request, user_of(request))
    scheme, _, secret = header.partition(" ")
    token = tokens.authenticate(secret.strip()) if scheme.lower() == "bearer" else None
    return Bearer(token) if token else AnonymousUser()


def _unless_a_proxy_says_otherwise(request: HttpRequest, user: Any) -> Any:
    """The session's user, unless a trusted proxy names another one, or no longer names whom it brought in."""
    name = proxy_sign_in.name_in(request)
    if not user.is_authenticated:
        return user
    is_theirs = way_of(request) != "proxy" if name is None else user.username.casefold() == name.casefold()
    return user if is_theirs else AnonymousUser()


def _come_in_by_proxy(request: HttpRequest) -> None:
    """Begin a session of the user whom a trusted proxy names; end one that it does not vouch for any more."""
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
    """The caller's IP address: the peer's, or behind a declared proxy the last one in X-Forwarded-For, which is what
    that proxy saw. Where the settings name the addresses of proxies, others' word for it counts nothing."""
    peer = str(request.META.get("REMOTE_ADDR") or "")
    forwarded = request.headers.get("x-forwarded-for")
    proxy = runtime.place().sign_in.proxy
    if runtime.place().public_url and forwarded and (proxy is None or proxy.trusts(peer)):
        return forwarded.rpartition(",")[2].strip()[:64]
    return peer


class Language:
    """The user's language, else the browser's cookie, else what the browser prefers; and the user's time zone, else
    UTC. Stored values are never translated."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        chosen = request.user.language
        language = chosen or translation.get_language_from_request(request)
        zone = time_zones.zone(request.user.time_zone) or UTC
        with translation.override(language), timezone.override(zone):
            request.LANGUAGE_CODE = translation.get_language()
            response = self.get_response(request)
            response.headers.setdefault("Content-Language", translation.get_language() or "en")
        return response


class Access:
    """Asks the table before every view; see `access`."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._csrf = CsrfViewMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.headers.get("Content-Type", "").startswith("text/csv") and (names := asked.unread(request)):
            return errors.unknown_parameters(request, names)
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        match = request.resolver_match
        assert match is not None, "Django resolves before it asks"
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
            if request.path_info.startswith(API_PREFIX):
                return errors.forbidden(request, comes_first=first)
            return HttpResponseRedirect(reverse(first))
        if user.is_authenticated and not match.route.startswith("api/") and not scope.admits(
            user, match.view_name, kwargs.get("name")
        ):  # fmt: skip
            if match.view_name == "overview" and request.method in ("GET", "HEAD"):
                return HttpResponseRedirect(reverse("topics"))
            return errors.outside_pattern(request, str(names_for(user)))
        if not request.path_info.startswith(API_PREFIX):
            asked.watch(request)
        # Frameworks exempt their views from the check of forms; a session is only ever used with it.
        if getattr(view, "csrf_exempt", False) and user.kind == "user":
            return self._csrf.process_view(request, _not_exempt, (), {})
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Pages that look at the engine need not ask whether there is one."""
        if isinstance(exception, runtime.EngineNotRunning):
            return errors.engine_not_running(request)
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


# What users may do before what comes first.
_MEANWHILE = ("confirm_password", "second_factor_codes", "set_time_zone")


def comes_first(request: HttpRequest, user: Any) -> str:
    """The page a user has to deal with before any other: a password of their own, a second factor; "" for none."""
    by_password = way_of(request) not in ("proxy", "oidc")
    if user.must_change_password and by_password:
        return "account"
    if user.kind == "user" and by_password and second_factor.is_missing(user):
        return "second_factor"
    return ""


def is_this_machine(request: HttpRequest) -> bool:
    """Whether the caller sits on this machine, without a proxy that might carry a stranger."""
    if runtime.place().public_url or "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    return runtime.is_loopback(str(request.META.get("REMOTE_ADDR") or ""))


def _not_exempt() -> None: ...
