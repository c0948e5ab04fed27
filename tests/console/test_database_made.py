"""The settings database is made once, whoever comes first: the server's first start, or a command beside it."""

from __future__ import annotations

import subprocess
import sys

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
migrate = database._migrate
others = []

def meet():
    others.append(subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE, text=True))
    others[0].stdout.readline()  # it waits, or is through already
    migrate()

database._migrate = meet
database.bring_up_to_date()
from appliance.console.models import AuditEntry
print("made", others[0].communicate()[0].strip(), others[0].returncode, AuditEntry.objects.count())
"""


def test_two_processes_that_make_it_at_once_make_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OPEN + FIRST, str(tmp_path), OPEN + SECOND], cwd=ROOT, capture_output=True, text=True
    )
    # The first line of the other one was read.
    assert done.stdout.split() == ["made", "made", "0", "0"], done.stdout + done.stderr
