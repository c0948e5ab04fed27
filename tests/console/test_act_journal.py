"""No act without a line: it is written down before it is done, and what the database does not take comes late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, OperationalError, connection
from django.test import Client

from appliance import runtime
from appliance.api.api import operations
from appliance.console import middleware
from appliance.console.audit import act_journal
from appliance.console.audit import log as audit
from appliance.console.audit.act_journal import ActJournal
from appliance.console.models import AuditEntry
from appliance.console.users import tokens
from appliance.console.users.access import ACCESS
from appliance.engine.errors import NotFound
from appliance.request_bodies import TAKES
from tests.support.audit_chain import first_broken

from .test_access import PAGES, address_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def journal() -> Iterator[ActJournal]:
    act_journal.use(runtime.place().directory)
    kept = act_journal.journal()
    assert kept is not None
    yield kept
    act_journal.use(None)


@pytest.fixture
def held() -> Iterator:
    """`held()`: from then on the database takes no entry of the audit log; what it returns ends that."""

    def let_go() -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER IF EXISTS held")

    def hold():
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE TRIGGER held BEFORE INSERT ON console_auditentry "
                "BEGIN SELECT RAISE(ABORT, 'database is locked'); END"
            )
        return let_go

    yield hold
    let_go()


@pytest.fixture
def operator(people) -> Client:
    _, secret = tokens.create(people["operator"], "ci", "operator")
    return Client(headers={"Authorization": f"Bearer {secret}"})


def make(client: Client, name: str) -> int:
    return client.post("/api/v1/topics", {"name": name}, content_type="application/json").status_code


def is_there(broker, name: str) -> bool:
    try:
        broker.topics.detail(name)
    except NotFound:
        return False
    return True


def entries(action: str = "topic.create") -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.filter(action=action).values_list("actor", "target", "result"))


def test_an_act_whose_entry_the_database_does_not_take_is_answered_and_has_its_line_later(
    broker, journal, held, operator
):
    let_go = held()
    assert make(operator, "t-late") == 201
    assert entries() == []
    with pytest.raises(DatabaseError):
        audit.take_over_late()
    let_go()
    assert audit.take_over_late() == 1
    assert audit.take_over_late() == 0
    assert entries() == [("the-operator/ci", "t-late", "done")]
    assert first_broken() is None


def test_what_waits_survives_the_end_of_the_process(broker, journal, held, operator):
    let_go = held()
    make(operator, "t-kept")
    let_go()
    act_journal.use(runtime.place().directory)
    assert audit.take_over_late() == 1
    assert entries() == [("the-operator/ci", "t-kept", "done")]


def test_nothing_is_done_while_the_database_is_held(broker, journal, operator, monkeypatch):
    def locked(*arguments, **named):
        raise OperationalError("database is locked")

    monkeypatch.setattr(middleware.transaction, "atomic", locked)
    assert make(operator, "t-held") == 503
    monkeypatch.undo()
    assert not is_there(broker, "t-held")
    assert entries() == []


def test_no_address_changes_anything_that_cannot_be_written_down(client_as, engine, journal, monkeypatch):
    """Of pages and of the API: each is refused before its view, whatever it would have done."""

    def no_room(*arguments):
        raise act_journal.NoRoom

    monkeypatch.setattr(ActJournal, "begin", no_room)
    admin = client_as("admin", "may_read_bodies", "may_export")
    changes = [("POST", route) for name, route in PAGES if name in TAKES and ACCESS[name].door != "setup"]
    changes += [(one.method, one.route) for one in operations() if one.method != "GET"]
    assert len(changes) > 100
    answers = {f"{method} {route}": admin.generic(method, address_of(route)).status_code for method, route in changes}
    assert not {change: status for change, status in answers.items() if status != 503}
    assert not AuditEntry.objects.exists()


def test_nothing_is_done_when_too_many_entries_wait(broker, journal, operator, monkeypatch):
    for number in range(act_journal.SLOTS):
        journal.keep(audit_fields(f"r-{number}"))
    with pytest.raises(act_journal.NoRoom):
        journal.keep(audit_fields("one-more"))
    assert make(operator, "t-full") == 503
    assert not is_there(broker, "t-full")
    assert audit.take_over_late() == act_journal.SLOTS
    assert make(operator, "t-room") == 201


def audit_fields(request_id: str, **more) -> dict:
    return {
        "at_ms": 1, "actor": "a", "actor_kind": "user", "address": "", "action": "x.y", "target": "t", "before": None,
        "after": None, "result": "done", "request_id": request_id,
    } | more  # fmt: skip


def test_a_request_that_a_crash_cut_off_has_a_line_and_one_that_was_written_down_has_no_second(journal):
    journal.begin(audit_fields("cut", action="request.cut_off", result="failed"))
    journal.begin(audit_fields("done", action="request.cut_off", result="failed"))
    audit.record("topic.create", "t", by=audit.Actor("a", "user", request_id="done"))
    act_journal.use(runtime.place().directory)
    assert audit.take_over_late() == 1
    assert entries("request.cut_off") == [("a", "t", "failed")]


def test_a_request_that_ended_leaves_nothing(broker, journal, operator):
    assert make(operator, "t-well") == 201
    assert make(operator, "no good") == 422
    act_journal.use(runtime.place().directory)
    assert audit.take_over_late() == 0
    assert entries() == [("the-operator/ci", "t-well", "done")]


def test_an_entry_that_is_long_keeps_who_did_what(journal):
    journal.keep(audit_fields("long", after={"names": ["x" * 100] * 100}))
    act_journal.use(runtime.place().directory)
    audit.take_over_late()
    assert AuditEntry.objects.get(request_id="long").after == {"left_out": True}
