"""The set-up wizard, one question a step; `set_up` decides when it exists."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.address_check import AddressCheck, own_addresses
from ...engine.errors import StartError
from ...engine.host_port import cannot_reach, host_of, is_host
from ..alerts.acts import first_rule
from ..audit.log import audit
from ..system.connect_views import ELSEWHERE, door_of, with_shell
from ..system.snippets import LANGUAGES, TOPIC, projects
from . import set_up
from .forms import AddressForm, AdministratorForm
from .identity import sign_in
from .views import remember_language


def setup(request: HttpRequest, secret: str) -> HttpResponse:
    """Step 1: choose the language."""
    _require_setup_link(secret)
    chosen = request.POST.get("language", "")
    if request.method == "POST" and chosen in dict(settings.LANGUAGES):
        response = HttpResponseRedirect(reverse("setup_administrator", args=[secret]))
        remember_language(response, chosen)
        return response
    return render(request, "setup/language.html", {"steps": _steps(1)})


def setup_administrator(request: HttpRequest, secret: str) -> HttpResponse:
    """Step 2: create the administrator, which ends the link."""
    _require_setup_link(secret)
    form = AdministratorForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        user = set_up.create_administrator(
            given["username"], given["password"], translation.get_language() or "en", secret, given["time_zone"]
        )
        if user is None:
            raise Http404
        sign_in(request, user, "set-up")
        return HttpResponseRedirect(reverse("setup_address"))
    status = 422 if form.is_bound else 200
    return render(request, "setup/administrator.html", {"form": form, "steps": _steps(2)}, status=status)


def setup_address(request: HttpRequest) -> HttpResponse:
    """Step 3: choose the address that clients get, and check it. `?host=` checks one; htmx gets only the findings."""
    running = runtime.running()
    addresses = runtime.window().addresses()
    advertised = host_of(addresses.broker or addresses.namesrv)
    asked = (request.POST if request.method == "POST" else request.GET).get("host", "").strip().strip("[]")
    host = asked or _suggested(request, advertised)
    check = runtime.window().check_address(host) if is_host(host) else None
    context = {
        "steps": _steps(3),
        "form": AddressForm({"host": host}),
        "host": host,
        "advertised": advertised,
        "fixed_by": running.options.advertise_source,
        "found": own_addresses(),
        "check": check,
        "browser": _browser_says(request, host, check),
        "bind_needed": _bind_needed(host),
    }
    if request.method == "POST":
        if check is None or running.options.advertise_source:
            return render(request, "setup/address.html", context, status=422)
        _keep_address(request, advertised, host)
        set_up.go_to("message")
        return HttpResponseRedirect(reverse("setup_message"))
    template = "setup/_address_findings.html" if "HX-Request" in request.headers else "setup/address.html"
    return render(request, template, context)


def setup_message(request: HttpRequest) -> HttpResponse:
    """Step 4: send a first message with a program that has the right address in it. POST ends the wizard, with alert=on
    after making a first rule of alerts."""
    if request.method == "POST":
        if request.POST.get("alert"):
            first_rule(request)
        set_up.go_to(set_up.DONE)
        audit(request, "set-up.finish")
        return HttpResponseRedirect(reverse("overview"))
    running = runtime.running()
    broker, namesrv = runtime.window().addresses()
    advertised = host_of(broker or namesrv)
    saved = runtime.place().saved_advertise()
    context = {
        "steps": _steps(4),
        "projects": with_shell(projects(namesrv or ELSEWHERE, door=door_of(""))),
        "chosen": LANGUAGES[0],
        "namesrv": namesrv,
        "topic": TOPIC,
        "count": _count(),
        "restart_for": saved if saved and saved != advertised and not running.options.advertise_source else None,
        "advertised": advertised,
        "bind_needed": _bind_needed(saved or advertised),
    }
    return render(request, "setup/message.html", context)


def setup_message_count(request: HttpRequest) -> HttpResponse:
    """Return only the counter, which the page loads once a second until a message has come."""
    return render(request, "setup/_message_count.html", {"count": _count()})


def _require_setup_link(secret: str) -> None:
    if not set_up.is_valid(secret):
        raise Http404


def _bind_needed(host: str) -> str | None:
    """Return the address that the ports listen on, if clients could not connect to it through `host`; else None."""
    bind = runtime.running().options.bind
    return bind if host and cannot_reach(host, bind) else None


def _steps(present: int) -> list[bool]:
    return [number <= present for number in range(1, len(set_up.STEPS) + 1)]


def _count() -> int:
    return int(runtime.window().metrics().get("messages_put_total", 0))


def _suggested(request: HttpRequest, advertised: str) -> str:
    """Return the host to suggest: the one in the browser's address, unless one was saved or fixed, or that one is
    loopback or invalid."""
    saved = runtime.place().saved_advertise()
    browser_host = _browser_host(request)
    if saved or runtime.running().options.advertise_source or runtime.is_loopback(browser_host):
        return saved or advertised
    return browser_host if is_host(browser_host) else advertised


def _browser_host(request: HttpRequest) -> str:
    host = request.get_host()
    return host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]


def _browser_says(request: HttpRequest, host: str, check: AddressCheck | None) -> tuple[str, str]:
    """Return ("good", "warn" or "bad", a sentence) that compares the host with the one in the browser's address."""
    visited_host = _browser_host(request)
    if visited_host.lower() == host.lower():
        return "good", _("same host name")
    if check is not None and check.loopback and not runtime.is_loopback(visited_host):
        return "bad", _("you opened this page through %(host)s; from there, this address leads to your own machine") % {
            "host": visited_host
        }
    return "warn", _("you opened this page through %(host)s") % {"host": visited_host}


def _keep_address(request: HttpRequest, advertised: str, host: str) -> None:
    """Save the address for the next start, unless it is the present one. Raises StartError."""
    place = runtime.place()
    before = place.saved_advertise() or advertised
    if host == before:
        return
    try:
        place.save_advertise(host)
    except OSError as error:
        raise StartError(f"The address cannot be saved: {error.strerror}.") from None
    audit(request, "address.change", "advertise", {"host": before}, {"host": host})
