"""Acts that their caller was not allowed, in the audit log."""

from __future__ import annotations

import pytest
from django.db import DatabaseError
from django.test import Client

from appliance.console.audit import log, refused_acts
from appliance.console.models import AuditEntry

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def counts(monkeypatch):
    monkeypatch.setattr(refused_acts, "_logs", {})
    monkeypatch.setattr(refused_acts, "MOST_EACH", 3)


def create(client: Client) -> int:
    return int(client.post("/create/topic/", {"name": "never"}).status_code)


def test_an_act_that_is_refused_is_written_down_and_a_page_that_is_refused_is_not(client_as, people, engine):
    viewer = client_as("viewer")
    assert viewer.get("/system/users/").status_code == 403
    assert create(viewer) == 403
    assert create(Client()) == 302
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.actor_kind, entry.action) == ("the-viewer", "user", "request.refused")
    assert (entry.target, entry.result, entry.after) == ("POST /create/topic/", "refused", None)


def test_a_form_of_another_site_is_written_down(client_as, engine):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client_as("admin").cookies
    assert create(strict) == 403
    assert AuditEntry.objects.get().target == "POST /create/topic/"


def test_one_users_refused_acts_do_not_fill_the_log(client_as, engine):
    viewer = client_as("viewer")
    assert {create(viewer) for _ in range(10)} == {403}
    assert AuditEntry.objects.count() == 3
    assert client_as("operator").post("/system/clean/").status_code == 403
    assert AuditEntry.objects.count() == 4
    refused_acts._logs.popitem()
    log = next(iter(refused_acts._logs.values()))
    log._began -= 1000
    assert create(viewer) == 403
    assert AuditEntry.objects.first().after == {"not_listed": 7}


@pytest.mark.parametrize("error", [DatabaseError("database is locked"), OSError("no key")])
def test_an_entry_that_cannot_be_written_changes_no_answer(client_as, engine, monkeypatch, error):
    viewer = client_as("viewer")

    def held(*_arguments, **_more):
        raise error

    monkeypatch.setattr(log, "append", held)
    assert create(viewer) == 403
