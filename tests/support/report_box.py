"""A real server that makes reports, and what an administrator does with them over the API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from appliance.engine.broker.deliveries.event_format import EVENT, MOST_COUNT, batches_of
from spark_reports.run import plan as files
from spark_reports.run.processes import members_of
from tests.support.peer import Peer, send_fields
from tests.support.priority import hurry, hurry_run
from tests.support.server import ROOT, Server
from tests.support.waiting import wait_for

SECRET = "Vogel-Nest-42-Kran"
ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": SECRET, "SOME_TOKEN": "t0ps3cret-of-the-environment"}
#: A session takes 7 s where nothing else runs; these run beside other tests.
READY_S = 300


class Box:
    """A server with messages, and what an administrator does with its API."""

    def __init__(self, place: Path, *arguments: str, more: Mapping[str, str] | None = None, **options: Any) -> None:
        """arguments, options: as Server takes them. more: of its environment."""
        roles = "broker,namesrv,console"
        self.server = Server(
            place / "data", "--http-port", "0", *arguments, roles=roles, environment=ADMIN | dict(more or {}), **options
        )
        self.reports = place / "data" / "rocketbox" / "reports"
        self.deliveries = place / "data" / "rocketbox" / "deliveries"
        self.server.start()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
        done = subprocess.run(
            [*options.get("prefix", ()),
             sys.executable, "-m", "appliance.main", "token", "create", "t", "--role", "admin", "--json",
             "--data-dir", str(place / "data")],
            cwd=ROOT, env=clean, capture_output=True, text=True, check=True,
        )  # fmt: skip
        self._token = json.loads(done.stdout)["secret"]

    def put(self, count: int) -> None:
        """So many messages."""
        peer = Peer(self.server.broker)
        for n in range(count):
            assert peer.ask(310, send_fields("Orders", n % 4, ""), b"x" * 100).code == 0
        peer.close()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://{self.server.ready['http']}/api/v1{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None

    def wait_for_deliveries(self, **groups: int) -> None:
        """Until the files tell that so many messages were given to each group: a run takes what they hold."""
        found: Counter[str] = Counter()

        def told() -> bool:
            found.clear()
            for path in sorted(self.deliveries.iterdir()):
                known: dict[int, str] = {}
                for batch in batches_of(path.read_bytes()):
                    known |= {number: one.group for number, one in batch.definitions.items()}
                    for number, _, place in EVENT.iter_unpack(batch.events):
                        found[known[number]] += place & MOST_COUNT
            return all(found[group] >= count for group, count in groups.items())

        wait_for(told, f"deliveries to {groups}, in {found}", every=0.2, not_yet=(FileNotFoundError,))

    def settings(self, **values: Any) -> None:
        self.ask("PATCH", "/reports/settings", values)

    def start_run(self) -> str:
        return str(self.ask("POST", "/reports/runs", {"day": "today"})["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        return self.ask("GET", f"/reports/runs/{run_id}")

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for its end."""

        def look() -> dict[str, Any] | None:
            hurry_run(self.reports / "runs" / run_id)
            found = self.run(run_id)
            return found if found["state"] not in ("waiting", "running") else None

        return wait_for(look, "the run ends", READY_S, every=0.2)

    def log(self, run_id: str) -> str:
        return str(self.ask("GET", f"/reports/runs/{run_id}/log")["text"])

    def session(self, run_id: str) -> int:
        place = self.reports / "runs" / run_id / files.PROCESS
        return int(wait_for(lambda: place.exists() and place.read_text(), "the keeper begins", READY_S).split()[0])

    def java(self, run_id: str) -> int:
        """The JVM's pid, once it counts."""
        session = self.session(run_id)

        def look() -> int | None:
            hurry(session)
            progress = files.read(self.reports / "runs" / run_id / files.PROGRESS, files.Progress)
            if progress is None or progress.step != "counting":
                return None
            return next((one.pid for one in members_of(session) if name_of(one.pid) == "java"), None)

        return wait_for(look, "Java counts", READY_S, every=0.1)

    def is_clean(self, run_id: str) -> bool:
        scratch = self.reports / "scratch"
        return not members_of(self.session(run_id)) and not (scratch.exists() and any(scratch.iterdir()))


def worker_of(keeper: int) -> int | None:
    """The program a keeper has started; None until it is one of its own: before that the keeper waits for it in the
    kernel (vfork), where no signal ends the wait, and who stops the one stops both."""
    for one in members_of(keeper):
        if one.pid != keeper and _command(one.pid) not in (b"", _command(keeper)):
            return one.pid
    return None


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
