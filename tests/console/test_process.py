"""The console changes nothing of the engine's process: what holds without it holds with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import DatabaseError

from appliance.console import act_journal, audit, start
from appliance.engine.errors import StartError

LOOK = """
import json, locale, logging, os, signal, sys, time, warnings
from pathlib import Path
from appliance import runtime

def look():
    mask = os.umask(0)
    os.umask(mask)
    return {
        "zone": (os.environ.get("TZ"), time.tzname, time.localtime(0)[:5]),
        "locale": [locale.setlocale(number) for number in (locale.LC_ALL, locale.LC_CTYPE, locale.LC_NUMERIC)],
        "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
        "umask": mask,
        "warnings": [str(one) for one in warnings.filters],
        "logging": (logging.root.level, [str(one) for one in logging.root.handlers], logging.raiseExceptions),
        "hooks": (str(sys.excepthook), str(sys.unraisablehook), sys.getrecursionlimit(), sys.getswitchinterval()),
        "environment": dict(os.environ),
    }

before = look()
place = runtime.Place(Path(sys.argv[1]))
place.directory.mkdir(parents=True, exist_ok=True)
runtime.set_place(place)
from appliance.asgi import application
from appliance.console.start import prepare
prepare({})
import appliance.api.urls, appliance.console.web_sockets
after = look()
after["environment"].pop("DJANGO_SETTINGS_MODULE")
for name, value in before.items():
    assert after[name] == value, (name, value, after[name])
from django.utils import timezone
assert str(timezone.get_default_timezone()) == "UTC"
"""


def test_the_console_changes_nothing_of_the_process(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETBOX_", "DJANGO_"))}
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path / "data")],
        env=environment | {"TZ": "Asia/Tokyo"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.django_db
def test_a_settings_database_that_is_damaged_is_a_sentence_and_a_way_out(monkeypatch):
    def malformed() -> None:
        raise DatabaseError("database disk image is malformed")

    for broken in ("begin", "take_over_late"):
        monkeypatch.setattr(audit, "begin", lambda: None)
        monkeypatch.setattr(audit, broken, malformed)
        monkeypatch.setattr(act_journal, "use", lambda directory: None)
        with pytest.raises(StartError, match=r"malformed.*rocketbox restore BACKUP"):
            start.prepare({})
