"""The console while its database takes nothing: whoever comes to look at a full disk sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connection
from django.test import Client

from appliance.console.audit import wire_entries
from appliance.console.models import ApiToken, AuditEntry
from appliance.console.users import tokens

pytestmark = pytest.mark.django_db(transaction=True)

WRITTEN_TO = ("django_session", "console_apitoken", "console_auditentry")


@pytest.fixture
def fill() -> Iterator:
    """`fill()`: from then on the database refuses every change of these tables, as a full disk does."""

    def make() -> None:
        with connection.cursor() as cursor:
            for table in WRITTEN_TO:
                for what in ("UPDATE", "INSERT"):
                    cursor.execute(
                        f"CREATE TRIGGER full_{table}_{what} BEFORE {what} ON {table} "
                        "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
                    )

    yield make
    with connection.cursor() as cursor:
        for table in WRITTEN_TO:
            for what in ("UPDATE", "INSERT"):
                cursor.execute(f"DROP TRIGGER IF EXISTS full_{table}_{what}")


def test_who_is_signed_in_goes_on_reading_though_the_session_cannot_be_renewed(client_as, engine, fill):
    client = client_as("admin")
    session = client.session
    session["seen_at"] -= 3600  # due to be renewed
    session.save()
    fill()
    assert client.get("/account/").status_code == 200
    assert client.get("/account/").status_code == 200


def test_a_token_is_good_though_its_use_cannot_be_noted(people, fill):
    _, secret = tokens.create(people["viewer"], "ci", "viewer")
    fill()
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/me").json()["username"] == "the-viewer"
    assert ApiToken.objects.get().last_used_at_ms is None


@pytest.mark.parametrize("address", ["/system/audit/", "/api/v1/audit"])
def test_the_audit_log_is_shown_though_what_came_over_the_wire_cannot_be_taken_over(
    client_as, engine, monkeypatch, address
):
    AuditEntry(at_ms=1, actor="old", actor_kind="user", action="topic.create", target="Kept").save()
    client = client_as("admin")

    def full() -> int:
        raise DatabaseError("database or disk is full")

    monkeypatch.setattr(wire_entries, "take_over", full)
    page = client.get(address)
    assert page.status_code == 200
    assert "Kept" in page.content.decode()
