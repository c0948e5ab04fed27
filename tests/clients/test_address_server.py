"""Official clients without a name server's address ask `GET /rocketmq/nsaddr` of the domain they were given."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from appliance.console.system.snippets import projects
from tests.clients import programs
from tests.support.directories import shared_directory
from tests.support.server import Server

RUN_LIMIT_S = 120


@pytest.fixture(scope="module")
def server(request):
    data = shared_directory(request, "server") / "data"
    with Server(data, "--http-port", "0", roles="broker,namesrv,console") as running:
        # Java waits 3 s for the answer, and the first request of a server loads its views.
        with urlopen(f"http://{running.ready['http']}/rocketmq/nsaddr", timeout=RUN_LIMIT_S) as answer:
            assert answer.status == 200
        yield running


@pytest.mark.parametrize(
    ("version", "unit"),
    [
        *((version, "") for version in programs.JAVA_VERSIONS),
        (programs.JAVA_VERSIONS[-1], "unit7"),
        pytest.param(programs.JAVA_VERSIONS[0], "unit7", marks=pytest.mark.nightly),
    ],
)
def test_a_java_producer_finds_the_name_server(server: Server, tmp_path: Path, version: str, unit: str):
    code = next(one.file("src/main/java/Producer.java") for one in projects("nowhere:1") if one.key == "java")
    named = f'producer.setUnitName("{unit}");' if unit else ""
    code, count = re.subn(r"producer\.setNamesrvAddr\(.*\);", named, code)
    assert count == 1
    (tmp_path / "Hello.java").write_text(code)
    done = subprocess.run(
        [
            programs.java(), f"-Duser.home={tmp_path}", f"-Drocketmq.namesrv.domain={server.ready['http']}",
            "-cp", programs.java_agent(version)[0], "Hello.java",
        ],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sendStatus=SEND_OK" in done.stdout
