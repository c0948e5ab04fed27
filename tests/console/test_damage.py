"""A settings database that becomes damaged while the server runs."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import DatabaseError, connection

from appliance.console.serving.database import DamageOnce
from appliance.console.users import tokens

pytestmark = pytest.mark.django_db


@pytest.fixture
def damage(tmp_path) -> Iterator:
    """`damage(table)`: from then on each statement that names it, "" for all, gets what SQLite says of a file that is
    no database."""
    path = tmp_path / "junk.sqlite3"
    path.write_bytes(b"junk" * 4096)

    def refuse(table, execute, sql, params, many, context):
        if table not in sql:
            return execute(sql, params, many, context)
        junk = sqlite3.connect(path)
        try:
            junk.execute("SELECT * FROM sqlite_master")
        except sqlite3.DatabaseError as error:
            raise DatabaseError(str(error)) from error
        finally:
            junk.close()

    wrappers = list(connection.execute_wrappers)
    yield lambda table="": connection.execute_wrappers.append(partial(refuse, table))
    connection.execute_wrappers[:] = wrappers


@pytest.fixture
def log(caplog) -> Iterator:
    """The log with the filter that the server gives it."""
    once, of = DamageOnce(), logging.getLogger("django.request")
    of.addFilter(once)
    yield caplog
    of.removeFilter(once)


def test_every_page_is_a_sentence_and_the_log_has_one_line(client_as, people, engine, damage, log):
    client = client_as("admin", raise_request_exception=False)
    _, secret = tokens.create(people["admin"], "ci", "admin")
    stranger = client_as("", raise_request_exception=False)
    log.clear()
    damage()
    for _ in range(2):
        for address in ("/", "/topics/", "/account/", "/api/v1/me"):
            answer = client.get(address)
            assert (answer.status_code, b"settings database cannot be read" in answer.content) == (503, True), address
        answer = stranger.post("/login/", {"username": "the-admin", "password": "anything at all"})
        assert (answer.status_code, b"settings database cannot be read" in answer.content) == (503, True)
        answer = stranger.get("/api/v1/me", headers={"authorization": f"Bearer {secret}"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert [record.getMessage().count("rocketbox restore BACKUP") for record in log.records] == [1]
    assert not any(record.exc_info for record in log.records)
    assert stranger.get("/healthz").status_code == 200


@pytest.mark.parametrize("address", ["/system/audit/", "/api/v1/audit"])
def test_one_damaged_table_is_told_by_what_reads_it(client_as, engine, damage, log, address):
    client = client_as("admin", raise_request_exception=False)
    damage("console_auditentry")
    answer = client.get(address)
    assert (answer.status_code, b"settings database cannot be read" in answer.content) == (503, True)
    assert client.get("/account/").status_code == 200
