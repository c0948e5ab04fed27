"""The settings database is made once, whoever comes first: the server's first start, or a command beside it."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys

import pytest
from django.db import connection

from tests.support.server import ROOT

OPEN = """
import fcntl, os, subprocess, sys
from pathlib import Path
from appliance import runtime

place = runtime.Place(Path(sys.argv[1]))
place.directory.mkdir(parents=True, exist_ok=True)
runtime.set_place(place)
os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
import django
django.setup()
from appliance.console.serving import database
"""

SECOND = """
flock = fcntl.flock

def say(fd, how):
    print("waits", flush=True)
    flock(fd, how)

fcntl.flock = say
database.bring_up_to_date()
print("made", flush=True)
"""

FIRST = """
make = database._make
others = []

def meet():
    others.append(subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE, text=True))
    others[0].stdout.readline()  # it waits, or is through already
    make()

database._make = meet
database.bring_up_to_date()
from appliance.console.models import AuditEntry
print("made", others[0].communicate()[0].strip(), others[0].returncode, AuditEntry.objects.count())
"""


SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
NOTED = "SELECT app, name, typeof(id), typeof(applied), length(applied) FROM django_migrations ORDER BY app, name"


def in_any_order(rows: list[tuple[str, str, str, str | None]]) -> list[tuple[object, ...]]:
    """Return the rows with the columns of each statement sorted: a migration adds a column behind the others."""
    return [(*row[:3], sorted(re.split(", ", (row[3] or "").removesuffix(")")))) for row in rows]


@pytest.mark.django_db
def test_two_processes_that_make_it_at_once_make_one_as_the_migrations_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OPEN + FIRST, str(tmp_path), OPEN + SECOND], cwd=ROOT, capture_output=True, text=True
    )
    # The first line of the other one was read.
    assert done.stdout.split() == ["made", "made", "0", "0"], done.stdout + done.stderr
    with sqlite3.connect(tmp_path / "rocketbox" / "console.sqlite3") as made, connection.cursor() as migrated:
        for select, as_it_is in ((SCHEMA, in_any_order), (NOTED, list)):
            rows = as_it_is(made.execute(select).fetchall())
            assert rows == as_it_is(migrated.execute(select).fetchall())
        for (table,) in made.execute("SELECT name FROM sqlite_master WHERE name LIKE 'console_%' AND type = 'table'"):
            migrated.execute(f'SELECT * FROM "{table}"')
            assert not migrated.fetchall(), "a migration puts a row there: have `database._make` do so, too"
    made.close()
