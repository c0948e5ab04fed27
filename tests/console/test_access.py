"""The access table: every address and every operation, for every role."""

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, path
from django.views.decorators.csrf import csrf_exempt

from appliance.console.models import now_ms
from appliance.console.users import tokens
from appliance.console.users.access import ACCESS
from appliance.console.users.roles import Rule

pytestmark = pytest.mark.django_db
ROLES = ["", "viewer", "operator", "admin"]
# They lead back to the sign-in, whoever comes.
_THE_DOOR = ("login", "logout", "login_code")


def every_pattern(patterns=None, prefix="", namespace=""):
    """(name, route) of every view that an address leads to."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = namespace + (f"{pattern.namespace}:" if pattern.namespace else "")
            yield from every_pattern(pattern.url_patterns, route, inner)
        elif isinstance(pattern, URLPattern):
            yield f"{namespace}{pattern.name}" if pattern.name else "", route


PATTERNS = sorted(set(every_pattern()))
PAGES = [(name, route) for name, route in PATTERNS if not route.startswith("api/")]


def address_of(route: str) -> str:
    """Some address that a route matches; what it names need not exist."""
    values = {
        "int": "1",
        "path": "console.css",
        "str": "some-name",
        "uuid": "0" * 8 + ("-" + "0" * 4) * 3 + "-" + "0" * 12,
    }
    out = []
    for part in route.split("<"):
        if ">" in part:
            converter, rest = part.split(">", 1)
            part = values.get(converter.split(":")[0] if ":" in converter else "str", "some-name") + rest
        out.append(part)
    return "/" + "".join(out)


def test_every_page_is_in_the_table():
    missing = [f"{name or '(no name)'} at {route}" for name, route in PAGES if name not in ACCESS]
    assert not missing, "these would be refused for all: add a row to `acts`"


def test_the_table_names_only_what_exists():
    known = {name for name, _ in PATTERNS}
    routes = {route for _, route in PATTERNS}
    stale = [key for key in ACCESS if key not in known and key.partition(" ")[2] not in routes]
    assert not stale


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("name", "route"), PAGES, ids=[name for name, _ in PAGES])
def test_a_page_lets_in_whom_the_table_lets_in(client_as, engine, role, name, route):
    rule = ACCESS[name]
    client = client_as(role)
    address = address_of(route)
    for method in ("get", "post"):
        response = getattr(client, method)(address, REMOTE_ADDR="192.0.2.1")
        location = response.headers.get("Location", "")
        refused = response.status_code in (401, 403) or (role == "" and location.startswith("/login/"))
        if rule.door == "setup":
            assert response.status_code == 404, "the set-up is done"
        elif _may(rule, role):
            assert not refused or name in _THE_DOOR, f"{method} {address}: {response.status_code} {location}"
        else:
            assert refused, f"{method} {address} answered {response.status_code}"


def test_a_grant_is_asked_for_whatever_the_role(client_as, engine):
    client = client_as("admin")
    for name, route in PAGES:
        if ACCESS[name].grants:
            assert client.get(address_of(route)).status_code == 403, name


def _may(rule: Rule, role: str) -> bool:
    """Without a grant: what `client_as(role)` is."""
    return ROLES.index(role) >= ROLES.index(rule.role) and not rule.grants


def listed_nowhere(request):
    return HttpResponse("secret")


class _Urls:
    """The real addresses and one that is missing from the access table."""

    from appliance.urls import handler400, handler404, handler500, urlpatterns

    urlpatterns = [*urlpatterns, path("forgotten/", listed_nowhere, name="forgotten")]  # noqa: RUF012


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_what_is_not_listed_is_refused_even_to_administrators(client_as, settings, role):
    client = client_as(role)
    settings.ROOT_URLCONF = _Urls
    response = client.get("/forgotten/")
    assert response.status_code == 403
    assert b"secret" not in response.content


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_metrics_are_for_this_machine_for_viewers_and_for_tokens(client_as, people, engine):
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 200
    far = Client(REMOTE_ADDR="192.0.2.1")
    assert far.get("/metrics").status_code == 401
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics", headers={"x-forwarded-for": "192.0.2.1"}).status_code == 401
    _, secret = tokens.create(people["viewer"], "prometheus", "viewer")
    assert far.get("/metrics", headers=bearer(secret)).status_code == 200
    assert far.get("/metrics", headers=bearer(secret + "x")).status_code == 401


def test_a_token_is_worth_nothing_on_pages(people, engine):
    _, secret = tokens.create(people["admin"], "ci", "admin")
    assert Client().get("/", headers=bearer(secret)).status_code == 302


def test_a_token_ends_when_revoked_expired_or_its_owner_is_disabled(people):
    token, secret = tokens.create(people["viewer"], "one", "viewer")
    assert tokens.authenticate(secret) == token
    assert secret not in (token.digest, token.prefix)
    tokens.revoke(token)
    assert tokens.authenticate(secret) is None
    _, old = tokens.create(people["viewer"], "two", "viewer", expires_at_ms=now_ms() - 1)
    assert tokens.authenticate(old) is None
    _, orphan = tokens.create(people["viewer"], "three", "viewer")
    people["viewer"].is_active = False
    people["viewer"].save()
    assert tokens.authenticate(orphan) is None


def test_a_token_may_never_do_more_than_its_owner(people):
    from appliance.console.sign_in.identity import Bearer, names_for

    token, _ = tokens.create(people["operator"], "ci", "admin", may_read_bodies=True, topic_pattern="orders-*")
    bearer_of_token = Bearer(token)
    assert (bearer_of_token.role, bearer_of_token.may_read_bodies) == ("operator", False)
    assert names_for(bearer_of_token).has_topic("orders-eu")
    assert not names_for(bearer_of_token).has_topic("payments")
    assert names_for(bearer_of_token).has_group("payments"), "its group pattern is another"


def test_a_bad_token_never_falls_through_to_the_session(client_as, engine):
    client = client_as("admin", REMOTE_ADDR="192.0.2.1")
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", headers=bearer("rbx_wrong")).status_code == 401
    assert client.get("/metrics", headers={"authorization": "Basic YTpi"}).status_code == 401


class _ApiUrls(_Urls):
    """An operation that a framework exempted from the check of forms, as django-ninja does with all of its own."""

    urlpatterns = [*_Urls.urlpatterns, path("api/act", csrf_exempt(listed_nowhere), name="act")]  # noqa: RUF012


def test_a_session_is_checked_for_forgery_where_a_framework_would_not_and_a_token_is_not(
    client_as, people, settings, monkeypatch
):
    monkeypatch.setitem(ACCESS, "act", Rule("admin"))
    client = client_as("admin")
    settings.ROOT_URLCONF = _ApiUrls
    client.handler.enforce_csrf_checks = True
    assert client.get("/api/act").status_code == 200
    assert client.post("/api/act").status_code == 403
    _, secret = tokens.create(people["admin"], "ci", "admin")
    stranger = Client(enforce_csrf_checks=True)
    assert stranger.post("/api/act", headers=bearer(secret)).status_code == 200
    assert stranger.post("/api/act").status_code == 401
