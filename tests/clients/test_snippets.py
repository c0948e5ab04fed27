"""The programs of the page "Connect a client", made and run by the commands that it shows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.console.system.snippets import LANGUAGES, SECRET, Door, Project, projects, shell_of
from client_wheel.build import lay_out
from tests.clients import programs
from tests.support.directories import shared_directory
from tests.support.engine import Peer
from tests.support.server import Server
from tests.support.tls import make_pair

RUN_LIMIT_S = 300
HELLO = {"java": "Java", "java4": "Java", "go": "Go", "python": "Python", "python-cpp": "Python", "cpp": "C++"}
SECRET_OF_ROOT = "the first one's secret"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(shared_directory(request, "server") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Door]]:
    """A server that serves TLS and takes signed requests only, and how its page lets clients in."""
    directory = shared_directory(request, "guarded")
    certificate, key = make_pair(directory, also=("127.0.0.1",))
    environment = {
        "ROCKETBOX_BROKER_TLS_MODE": "permissive",  # two of the clients cannot do without
        "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
        "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": json.dumps({"username": "root", "password": SECRET_OF_ROOT}),
    }
    with Server(directory / "data", environment=environment) as running:
        yield running, Door("root", tls=True, certificate=certificate.read_text())


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
    kept |= {"ROCKETMQ_ACCESS_KEY": "root", SECRET: SECRET_OF_ROOT}
    return kept | {"MAVEN_OPTS": f"-Drocketmq.client.logRoot={home} -Xmx256m", "PYTHONUNBUFFERED": "1"}


def made(project: Project, tmp_path: Path) -> Path:
    """The project's directory, made by what the page says."""
    for tool, what in {"java": ("mvn", "Maven"), "go": ("go", "Go"), "python": ("python3", "Python")}.values():
        assert shutil.which(tool), what
    text = shell_of(project)
    if project.key.startswith("python"):  # a package index is not asked again for what the other tests have
        text = text.replace(project.prepare, "")
    done = shell(text, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / f"hello-{project.key}"


def command(project: Project, text: str, home: Path) -> str:
    """Return the command as shown, but Python's uses the library that the other tests have installed, or the wheel's
    sources."""
    if not project.key.startswith("python"):
        return text
    library = home / "wheel"
    if project.key == "python-cpp":
        assert programs.CPP_PACKAGE in project.file("requirements.txt")
        library = programs.cpp_client()
    elif not library.exists():
        lay_out(library)
    return f"PYTHONPATH={library} {text.replace('.venv/bin/python', sys.executable)}"


def project_of(key: str, server: Server, topic: str, door: Door | None = None) -> Project:
    return next(one for one in projects(server.namesrv, topic, door) if one.key == key)


def receive(project: Project, directory: Path, tmp_path: Path) -> str:
    """Run the consumer until it has the message; return what it said."""
    hello = f"Hello from {HELLO[project.key]}"
    said = tmp_path / "said"
    with said.open("wb") as output:
        consumer = subprocess.Popen(
            ["/bin/sh", "-c", command(project, project.consume, tmp_path)], cwd=directory, env=environment(tmp_path),
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            for _ in range(6):  # a group that is new to the C++ client begins with what comes
                deadline = time.monotonic() + 60
                while hello not in said.read_text(errors="replace") and time.monotonic() < deadline:
                    assert consumer.poll() is None, said.read_text(errors="replace")
                    time.sleep(0.2)
                if hello in said.read_text(errors="replace"):
                    break
                assert shell(command(project, project.produce, tmp_path), directory, tmp_path).returncode == 0
        finally:
            if consumer.poll() is None:
                os.killpg(consumer.pid, signal.SIGKILL)
            consumer.wait(60)
    return said.read_text(errors="replace")


@pytest.mark.parametrize(
    "key", ["java", "go", "python", *(pytest.param(key, marks=pytest.mark.nightly) for key in ("java4", "python-cpp"))]
)
def test_what_the_page_shows_sends_a_message_and_receives_it(server: Server, tmp_path: Path, key: str) -> None:
    topic = f"Hello-{key}"
    project = project_of(key, server, topic)
    directory = made(project, tmp_path)
    sent = shell(command(project, project.produce, tmp_path), directory, tmp_path)
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert stored(server, topic) == 1, sent.stdout + sent.stderr
    assert f"Hello from {HELLO[key]}" in receive(project, directory, tmp_path)


@pytest.mark.parametrize(
    "key", ["go", "python", "python-cpp", *(pytest.param(key, marks=pytest.mark.nightly) for key in ("java", "java4"))]
)
def test_what_it_shows_of_a_guarded_server_signs_and_encrypts(
    guarded: tuple[Server, Door], tmp_path: Path, key: str
) -> None:
    server, door = guarded
    project = project_of(key, server, f"Guarded-{key}", door)
    assert SECRET_OF_ROOT not in str(project.files)
    directory = made(project, tmp_path)
    sent = shell(command(project, project.produce, tmp_path), directory, tmp_path)
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert f"Hello from {HELLO[key]}" in receive(project, directory, tmp_path)


@pytest.mark.parametrize("key", ["python", pytest.param("java", marks=pytest.mark.nightly)])
def test_one_that_trusts_another_certificate_sends_nothing(
    guarded: tuple[Server, Door], tmp_path: Path, key: str
) -> None:
    server, door = guarded
    (tmp_path / "other").mkdir()
    other = make_pair(tmp_path / "other", also=("127.0.0.1",))[0].read_text()
    project = project_of(key, server, f"Mistrusted-{key}", replace(door, certificate=other))
    directory = made(project, tmp_path)
    sent = shell(command(project, project.produce, tmp_path), directory, tmp_path)
    assert sent.returncode != 0, sent.stdout


@pytest.mark.parametrize("door", [Door(), Door("root", tls=True, certificate="PEM\n")], ids=["plain", "guarded"])
def test_the_programs_in_cpp_compile(tmp_path: Path, door: Door) -> None:
    """Its library is built by hand, so there is none to link with."""
    project = next(one for one in projects("127.0.0.1:9876", "Hello", door) if one.key == "cpp")
    for name, text in project.files:
        (tmp_path / name).write_text(text)
        if name.endswith(".cpp"):
            headers = f"-I{programs.HERE / 'cpp' / 'include'}"
            done = subprocess.run(
                ["g++", "-std=c++11", "-Wall", "-Werror", headers, "-c", "-o", "/dev/null", name],
                cwd=tmp_path, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    assert set(LANGUAGES) == HELLO.keys()


@pytest.mark.parametrize(("key", "version"), [("java4", "4.9.8"), ("java", "5.3.3")])
def test_the_programs_in_java_compile(tmp_path: Path, key: str, version: str) -> None:
    door = Door("root", tls=True, certificate="PEM\n")
    project = next(one for one in projects("127.0.0.1:9876", "Hello", door) if one.key == key)
    assert f"<version>{version}</version>" in project.file("pom.xml")
    jars = programs.java_agent(version)[0].rpartition(":")[2]
    sources = [name for name, _ in project.files if name.endswith(".java")]
    for name in sources:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(project.file(name))
    done = subprocess.run(
        ["javac", "--release", "11", "-cp", jars, "-d", str(tmp_path), *sources],
        cwd=tmp_path, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("user", ['"); System.exit(1); ("', "a b", "x" * 65, "a\nb", "END\n"])
def test_a_user_that_would_be_text_of_the_program_is_refused(user: str) -> None:
    with pytest.raises(ValueError):
        projects("127.0.0.1:9876", "Hello", Door(user))


def test_a_topic_that_would_be_text_of_the_program_is_refused() -> None:
    for topic in ('"); System.exit(1); ("', "a b", "", "x" * 128, "a\nb", "END\n"):
        with pytest.raises(ValueError):
            projects("127.0.0.1:9876", topic)
