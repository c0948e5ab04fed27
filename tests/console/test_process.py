"""The console changes nothing of the engine's process: what holds without it holds with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import DatabaseError

from appliance.console import start
from appliance.console.audit import act_journal
from appliance.console.audit import log as audit
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
import appliance.api.urls, appliance.console.live.web_sockets
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


FAILED = """
import logging, sys
from pathlib import Path
from appliance import runtime

logging.basicConfig(stream=sys.stderr)
runtime.set_place(runtime.Place(Path(sys.argv[1])))
from appliance.asgi import application
logging.getLogger("django.request").error("%s: %s", "Internal Server Error", "/password/s3cr3t-of-a-link/")
"""


def test_the_secret_of_a_link_is_in_no_line_that_the_server_logs(tmp_path):
    """An operator who reads the log, or a support bundle, could become an administrator by it."""
    ran = subprocess.run(
        [sys.executable, "-c", FAILED, str(tmp_path / "data")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Internal Server Error: /password/" in ran.stderr
    assert "s3cr3t" not in ran.stderr


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


DAMAGED = """
import os, sqlite3, sys
from pathlib import Path
from appliance import runtime
place = runtime.Place(Path(sys.argv[1]))
place.directory.mkdir(parents=True, exist_ok=True)
runtime.set_place(place)
from appliance.asgi import application
from appliance.console.start import prepare
from appliance.engine.errors import StartError
prepare({"ADMIN_USER": "root", "ADMIN_PASSWORD": "correct horse battery"})
path = place.directory / "console.sqlite3"
with sqlite3.connect(path) as opened:
    opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = opened.execute("PRAGMA page_size").fetchone()[0]
    tables = dict(opened.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall())
opened.close()
good = path.read_bytes()

def flipped(page):
    begin = (page - 1) * size
    return good[:begin] + bytes(one ^ 0x5A for one in good[begin : begin + size]) + good[begin + size :]

def refused(what):
    for beside in ("-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    try:
        prepare({})
    except StartError as error:
        said = str(error)
        assert said.startswith(f"The settings database {path} cannot be used: "), (what, said)
        assert "rocketbox restore BACKUP" in said and chr(10) not in said, (what, said)
    else:
        raise AssertionError(f"{what}: nothing is said")

for table, page in tables.items():
    path.write_bytes(flipped(page))
    refused(table)
for what, left in {"half": good[: len(good) // 2], "some": good[:5000], "noise": os.urandom(len(good))}.items():
    path.write_bytes(left)
    refused(what)
path.unlink()
path.mkdir()
refused("a directory")
path.rmdir()
path.write_bytes(good)
os.chmod(path, 0)
refused("nobody's") if os.geteuid() else prepare({})
os.chmod(path, 0o600)
path.write_bytes(b"")
assert prepare({}), "an empty one: the set-up begins anew"
"""


def test_a_settings_database_with_any_damage_is_a_sentence_and_a_way_out(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETBOX_", "DJANGO_"))}
    ran = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(tmp_path / "data")],
        env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
