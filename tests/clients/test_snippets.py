"""The programs of the page "Connect a client", made and run by the commands that it shows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.console.system.snippets import LANGUAGES, Project, projects, shell_of
from tests.clients import programs
from tests.support.directories import shared_directory
from tests.support.engine import Peer
from tests.support.server import Server

RUN_LIMIT_S = 300
HELLO = {"java": "Hello from Java", "go": "Hello from Go", "python": "Hello from Python"}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(shared_directory(request, "server") / "data") as running:
        yield running


def stored(server: Server, topic: str) -> int:
    """Messages in the topic, over all of its queues."""
    peer = Peer(server.broker)
    try:
        answers = [peer.ask(30, {"topic": topic, "queueId": queue}) for queue in range(8)]
    finally:
        peer.close()
    return sum(int((answer.ext_fields or {}).get("offset", 0)) for answer in answers if answer.code == 0)


def shell(text: str, directory: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run `text` as a user does who pastes it into a shell."""
    return subprocess.run(
        ["/bin/sh", "-e"], input=text, cwd=directory, env=environment(home), capture_output=True, text=True,
        timeout=RUN_LIMIT_S, check=False,
    )  # fmt: skip


def environment(home: Path) -> dict[str, str]:
    """Tools find their caches; the client library writes its logs below `home`."""
    wanted = ("PATH", "HOME", "JAVA_HOME", "GOFLAGS", "GOPROXY", "GOCACHE", "GOMODCACHE", "GOSUMDB", "PIP_INDEX_URL")
    kept = {name: value for name, value in os.environ.items() if name in wanted or "proxy" in name.lower()}
    return kept | {"MAVEN_OPTS": f"-Drocketmq.client.logRoot={home} -Xmx256m", "PYTHONUNBUFFERED": "1"}


def made(project: Project, tmp_path: Path) -> Path:
    """The project's directory, made by what the page says."""
    for tool, what in {"java": ("mvn", "Maven"), "go": ("go", "Go"), "python": ("python3", "Python")}.values():
        assert shutil.which(tool), what
    text = shell_of(project)
    if project.key == "python":  # a package index is not asked again for what the other tests have
        text = text.replace(project.prepare, "")
    done = shell(text, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / f"hello-{project.key}"


def command(project: Project, text: str) -> str:
    """Return the command as shown, but Python's uses the library that the other tests have installed."""
    if project.key != "python":
        return text
    assert programs.CPP_PACKAGE in project.file("requirements.txt")
    return f"PYTHONPATH={programs.cpp_client()} {text.replace('.venv/bin/python', sys.executable)}"


@pytest.mark.parametrize("key", LANGUAGES)
def test_what_the_page_shows_sends_a_message_and_receives_it(server: Server, tmp_path: Path, key: str) -> None:
    topic = f"Hello-{key}"
    project = next(one for one in projects(server.namesrv, topic) if one.key == key)
    directory = made(project, tmp_path)
    sent = shell(command(project, project.produce), directory, tmp_path)
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert stored(server, topic) == 1, sent.stdout + sent.stderr
    said = tmp_path / "said"
    with said.open("wb") as output:
        consumer = subprocess.Popen(
            ["/bin/sh", "-c", command(project, project.consume)], cwd=directory, env=environment(tmp_path),
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            for _ in range(6):  # a group that is new to the C++ client begins with what comes
                deadline = time.monotonic() + 60
                while HELLO[key] not in said.read_text(errors="replace") and time.monotonic() < deadline:
                    assert consumer.poll() is None, said.read_text(errors="replace")
                    time.sleep(0.2)
                if HELLO[key] in said.read_text(errors="replace"):
                    break
                assert shell(command(project, project.produce), directory, tmp_path).returncode == 0
        finally:
            if consumer.poll() is None:
                os.killpg(consumer.pid, signal.SIGKILL)
            consumer.wait(60)
    assert HELLO[key] in said.read_text(errors="replace")


def test_a_topic_that_would_be_text_of_the_program_is_refused() -> None:
    for topic in ('"); System.exit(1); ("', "a b", "", "x" * 128, "a\nb", "END\n"):
        with pytest.raises(ValueError):
            projects("127.0.0.1:9876", topic)
