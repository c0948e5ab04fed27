"""Jobs of a real server that is stopped or killed while one runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server
from tests.support.waiting import wait_for

ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "Vogel-Nest-42-Kran"}
ENTRIES = 30_000

FILL = """
import os, sys
from pathlib import Path
from appliance import runtime
runtime.set_place(runtime.Place(Path(sys.argv[1])))
os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
import django; django.setup()
from appliance.console.audit import log as audit
from appliance.console.models import AuditEntry, now_ms
for _ in range(int(sys.argv[2]) // 1500):
    audit.append([AuditEntry(at_ms=now_ms(), actor="x", actor_kind="user", action="x.y") for _ in range(1500)])
"""


@pytest.fixture
def server(tmp_path: Path):
    with Server(tmp_path / "data", "--http-port", "0", roles="broker,namesrv,console", environment=ADMIN) as running:
        subprocess.run([sys.executable, "-c", FILL, str(tmp_path / "data"), str(ENTRIES)], cwd=ROOT, check=True)
        yield running


def ask(server: Server, method: str, path: str, token: str) -> dict:
    from urllib.request import Request, urlopen

    request = Request(f"http://{server.ready['http']}/api/v1{path}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    with urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def token_of(server: Server) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    done = subprocess.run(
        [sys.executable, "-m", "appliance.main", "token", "create", "t", "--role", "admin", "--json",
         "--data-dir", str(server.data_dir)],
        cwd=ROOT, env=clean, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)["secret"]


def running_check(server: Server, token: str) -> str:
    """Return the job of a check that has begun to read. One that ends between two looks is followed by another one."""
    jobs = [ask(server, "POST", "/audit/checks", token)["id"]]

    def is_running() -> bool:
        found = ask(server, "GET", f"/jobs/{jobs[-1]}", token)
        if found["state"] == "done":
            jobs.append(ask(server, "POST", "/audit/checks", token)["id"])
            return False
        assert found["state"] in ("waiting", "running"), found
        return found["state"] == "running" and found["done"]

    wait_for(is_running, "a check runs")
    return str(jobs[-1])


def ended_while_it_ran(server: Server, token: str, end: Callable[[], None]) -> dict:
    """End the server by `end` while a check runs, and start it; return the job. Once more if the check was done first,
    as on a machine that was busy between the look at it and the end."""

    def interrupted() -> dict | None:
        job = running_check(server, token)
        end()
        server.start()
        found = ask(server, "GET", f"/jobs/{job}", token)
        return None if found["state"] == "done" else found

    return wait_for(interrupted, "a check that ran when the server ended", 240)


def test_a_job_that_was_killed_or_stopped_is_interrupted_and_told(server):
    token = token_of(server)
    found = ended_while_it_ran(server, token, server.kill)
    assert (found["state"], found["why"]["text"]) == (
        "interrupted", "RocketBox ended while it ran. Start it again."
    )  # fmt: skip

    def stop() -> None:
        server.stop()
        said = server.log_path.read_text()
        assert not re.search("threads still running.*jobs-", said), "the job's thread ends with the server"

    assert ended_while_it_ran(server, token, stop)["state"] == "interrupted"
    again = running_check(server, token)
    found = wait_for(
        lambda: (one := ask(server, "GET", f"/jobs/{again}", token))["state"] != "running" and one, "it ends", every=0.1
    )
    assert (found["state"], found["result"]["intact"]) == ("done", True)
    ends = [one["after"]["state"] for one in ask(server, "GET", "/audit?action=job.end", token)["items"]]
    assert ends[0] == "done"
    assert ends.count("interrupted") == 1, "a killed one has no end in the log, only its start"
