"""README's programs in Java and Go, run as README says, twice: they leave nothing unread behind. (Python's:
`tests/examples/test_python.py`.)"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.directories import shared_directory
from tests.support.engine import Peer
from tests.support.server import ROOT, Server

from .test_snippets import shell

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: As README has it -> the same with the name server's address.
COMMANDS = {
    "java": ("mvn -f examples/java compile exec:java", "mvn -f examples/java compile exec:java -Dexec.args={namesrv}"),
    "go": ("(cd examples/go && go run .)", "(cd examples/go && go run . {namesrv})"),
}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(shared_directory(request, "server") / "data") as running:
        yield running


def progress(server: Server, topic: str, group: str) -> list[tuple[int, int]]:
    """Return (end, committed offset) of each queue that has messages; -1 if nothing was committed."""
    peer = Peer(server.broker)
    found = []
    try:
        for queue in range(8):
            end = peer.ask(30, {"topic": topic, "queueId": queue})
            if end.code or (last := int(end.ext_fields["offset"])) == 0:
                continue
            at = peer.ask(14, {"consumerGroup": group, "topic": topic, "queueId": queue})
            found.append((last, int(at.ext_fields["offset"]) if at.code == 0 else -1))
    finally:
        peer.close()
    return found


@pytest.mark.parametrize("key", COMMANDS)
def test_two_runs_show_their_own_message_each_and_leave_nothing_unread(
    server: Server, tmp_path: Path, key: str
) -> None:
    text, command = COMMANDS[key]
    assert f"```\n{text}\n```" in README
    shutil.copytree(ROOT / "examples" / key, tmp_path / "examples" / key, ignore=shutil.ignore_patterns("target"))
    for run in (1, 2):
        done = shell(command.format(namesrv=server.namesrv), tmp_path, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        sent = re.findall(r"^sent +(\w+)", done.stdout, re.MULTILINE)
        received = re.findall(r"^received +(\w+)", done.stdout, re.MULTILINE)
        assert len(sent) == 1
        assert received == sent, done.stdout
        places = progress(server, f"Hello{key.title()}", f"hello-{key}-consumer")
        assert sum(end for end, _ in places) == run
        assert all(end == committed for end, committed in places), places
