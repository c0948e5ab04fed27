"""States that need an operator, as pages show them: folded, muted for a time with a reason, and shown again."""

from __future__ import annotations

import dataclasses
from urllib.parse import quote, urlencode

import pytest

from appliance.console.health import needs
from appliance.console.models import AuditEntry, Setting, User, now_ms
from appliance.engine.window.sentences import say
from appliance.engine.window.snapshots import Need

pytestmark = pytest.mark.django_db


def late(name: str, level: str = "watch") -> Need:
    return Need(level, "group", name, say("nobody_consumes_late", group=name, lag=12_904, late_span=250_000))


@pytest.fixture
def needing(broker, monkeypatch):
    """`needing(need, ...)`: the overview tells of these."""
    real = broker.overview.snapshot()

    def tell(*told: Need) -> None:
        monkeypatch.setattr(type(broker.overview), "snapshot", lambda self: dataclasses.replace(real, needs=told))

    return tell


def page_of(client, address: str = "/") -> str:
    response = client.get(address)
    assert response.status_code == 200, response.content
    return response.content.decode()


def test_tiles_come_first_and_then_what_needs_a_person(client_as, needing):
    needing(late("shipping"))
    page = page_of(client_as("viewer"))
    places = [page.index(words) for words in ("Commit log", "Needs you", "shipping is 4 min 10 s behind", "Last ten")]
    assert places == sorted(places)
    assert "12\u202f904" in page
    assert 'href="/groups/shipping/"' in page
    assert "worth a look" in page


def test_a_fresh_install_is_green_or_says_why_in_the_list(client_as, broker, needing):
    needing()
    page = page_of(client_as("viewer"))
    assert '<span id="health" class="chip good">healthy</span>' in page
    assert "Nothing: no check fails" in page
    needing(Need("act", "system", "disk", say("disk_filling", used_percent=91.0, limit_percent=90.0)))
    page = page_of(client_as("viewer"))
    assert '<span id="health" class="chip bad">needs attention</span>' in page
    assert "Nothing: no check fails" not in page


def test_alike_ones_are_folded_behind_the_first(client_as, needing):
    needing(Need("act", "group", "x", say("subscriptions_differ", group="x")), *(late(f"g{n}") for n in range(12)))
    page = page_of(client_as("viewer"), "/needs/panel/")
    assert "11 more like this" in page
    assert page.index("g0 is") < page.index("<details>") < page.index("g1 is")
    assert "13 things" in page
    needing(*(late(f"g{n}") for n in range(3)))
    assert "<details>" not in page_of(client_as("viewer"), "/needs/panel/")


def test_a_need_is_muted_with_a_reason_and_told_again(client_as, needing):
    needing(late("shipping"), late("mailer"))
    operator = client_as("operator")
    address = f"/needs/mute/?{urlencode({'key': 'lag:group:shipping'})}"
    page = page_of(operator)
    assert f'href="/needs/mute/?key={quote("lag:group:shipping", safe="")}"' in page
    assert "shipping is 4 min 10 s behind" in page_of(operator, address)
    assert operator.post(address, {"hours": 4, "reason": "  "}).status_code == 422
    assert operator.post(address, {"hours": 5, "reason": "x"}).status_code == 422
    before = now_ms()
    assert operator.post(address, {"hours": 4, "reason": "moved on Friday"}).headers["Location"] == "/needs/"
    [mute] = needs.active()
    assert (mute.key, mute.reason, mute.by) == ("lag:group:shipping", "moved on Friday", "the-operator")
    assert before + 4 * 3_600_000 <= mute.until_ms <= now_ms() + 4 * 3_600_000
    page = page_of(operator)
    assert "shipping is" not in page
    assert "mailer is" in page
    assert "1 muted" in page
    page = page_of(client_as("viewer"), "/needs/")
    assert "moved on Friday" in page
    assert "the-operator" in page
    assert "Unmute" not in page
    # It says something else by now, and is about the same.
    needing(Need("stuck", "group", "shipping", say("stuck", group="shipping", lag=1, idle_span=300_000)))
    assert "Nothing: no check fails" in page_of(operator)
    assert operator.post(f"/needs/{mute.id}/unmute/").status_code == 302
    assert "shipping has a backlog" in page_of(operator)
    entries = AuditEntry.objects.filter(action__startswith="need.").order_by("id")
    said = [(one.action, one.target, one.actor) for one in entries]
    assert said == [("need.mute", mute.key, "the-operator"), ("need.unmute", mute.key, "the-operator")]
    assert operator.post(f"/needs/{mute.id}/unmute/").status_code == 404


def test_when_its_time_is_over_it_is_told_again(client_as, needing):
    needing(late("shipping"))
    operator = client_as("operator")
    operator.post("/needs/mute/?key=lag:group:shipping", {"hours": 1, "reason": "x"})
    assert "shipping is" not in page_of(operator)
    kept = Setting.objects.get(key="muted-needs")
    kept.value["mutes"][0]["until_ms"] = now_ms() - 1
    kept.save()
    assert "shipping is" in page_of(operator)
    assert needs.active() == []


def test_what_is_gone_cannot_be_muted_and_a_viewer_cannot_mute(client_as, needing):
    needing(late("shipping"))
    assert client_as("operator").get("/needs/mute/?key=lag:group:gone").status_code == 404
    viewer = client_as("viewer")
    assert "Mute" not in page_of(viewer)
    assert viewer.post("/needs/mute/?key=lag:group:shipping", {"hours": 1, "reason": "x"}).status_code == 403


def test_so_many_are_muted_and_no_more(client_as, needing, monkeypatch):
    monkeypatch.setattr(needs, "MOST_MUTES", 2)
    needing(*(late(f"g{n}") for n in range(3)))
    operator = client_as("operator")
    answers = [
        operator.post(f"/needs/mute/?key=lag:group:g{n}", {"hours": 1, "reason": "x"}).status_code for n in (0, 1, 1, 2)
    ]
    assert answers == [302, 302, 302, 422]
    assert [one.key for one in needs.active()] == ["lag:group:g0", "lag:group:g1"]
    assert len({one.id for one in needs.active()}) == 2


def test_every_need_that_the_engine_tells_has_something_to_do(people):
    from appliance.engine.window.health.needs import _ORDER

    assert set(_ORDER) - set(needs._ACTS) == set()
    admin = User(username="x", role="admin")
    for code in _ORDER:
        kind = {"queues": "topic", "dead_letters": "dead_letters"}.get(needs._ACTS[code][0], "group")
        told = needs._told(Need("act", kind, "a/b", say(code)), admin)
        assert told.address.startswith("/"), code
