"""The programs of the set-up page, run as they are shown, until the page's counter would turn green."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.console.snippets import TOPIC, Snippet, snippets
from tests.clients import programs
from tests.support.directories import shared_directory
from tests.support.engine import Peer
from tests.support.server import Server

RUN_LIMIT_S = 120


@pytest.fixture(scope="module")
def server(request):
    with Server(shared_directory(request, "server") / "data") as running:
        yield running


def snippet(server: Server, key: str) -> Snippet:
    return next(one for one in snippets(server.namesrv) if one.key == key)


def stored(server: Server) -> int:
    """Messages in the topic, over all of its queues."""
    peer = Peer(server.broker)
    try:
        answers = [peer.ask(30, {"topic": TOPIC, "queueId": queue}) for queue in range(8)]
    finally:
        peer.close()
    return sum(int((answer.ext_fields or {}).get("offset", 0)) for answer in answers if answer.code == 0)


def arrives(server: Server, command: list[str], directory: Path, **options) -> None:
    before = stored(server)
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_LIMIT_S, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert stored(server) == before + 1, done.stdout + done.stderr


def test_the_java_program_sends_a_message(server, tmp_path):
    shown = snippet(server, "java")
    assert "<version>5.3.3</version>" in shown.install
    (tmp_path / shown.file_name).write_text(shown.code)
    class_path = programs.java_agent("5.3.3")[0]
    command = [programs.java(), f"-Duser.home={tmp_path}", "-cp", class_path, shown.file_name]
    arrives(server, command, tmp_path)


def test_the_go_program_sends_a_message(server, tmp_path):
    shown = snippet(server, "go")
    module = (programs.HERE / "go" / "go.mod").read_text()
    assert shown.install.rpartition("@")[2] in module, "the version that is tested"
    source = tmp_path / "hello"
    source.mkdir()
    (source / shown.file_name).write_text(shown.code)
    for name in ("go.mod", "go.sum"):
        (source / name).write_text((programs.HERE / "go" / name).read_text())
    subprocess.run(
        [programs._tool("go", "Go 1.19 or later"), "build", "-mod=mod", "-o", "hello", "."],
        cwd=source, check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    arrives(server, [str(source / "hello")], tmp_path)


def test_the_python_program_sends_a_message(server, tmp_path):
    shown = snippet(server, "python")

    packages = programs.cpp_client()
    (tmp_path / shown.file_name).write_text(shown.code)
    environment = {"PYTHONPATH": str(packages), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    arrives(server, [sys.executable, shown.file_name], tmp_path, env=environment)
