"""The client's own wheel in an empty environment of each Python here: it needs no compiler and no package, sends and
consumes, and the traceback of a program that catches nothing says what to do."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.checkout import ROOT, Environment, pythons, run, variables
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.waiting import ends

pytest_plugins = ("appliance.pytest_rocketbox",)

SENDS_AND_CONSUMES = """
import asyncio, sys, sysconfig
from rocketbox import Client, aio

async def send():
    async with aio.Client(server, timeout=60) as client:
        await client.producer().send(topic, "of asyncio", tags="none")

server, topic, group = sys.argv[1:]
with Client(server, timeout=60) as client:
    sent = client.producer().send(topic, "äpfel " * 1000, tags="paid", keys=["order-17"], properties={"region": "用"})
    for message in client.pull_consumer(group, start="first").subscribe(topic, tags="paid"):
        assert message.message_id == sent.message_id and message.text == "äpfel " * 1000
        print(message.keys, message.properties["region"])
        break
asyncio.run(send())

others = [name for name in sys.modules if name.partition(".")[0] in ("appliance", "msgspec", "zlib_ng")]
assert not others, others
own = sysconfig.get_path("purelib")
assert all(module.__file__.startswith(own) for name, module in sys.modules.items() if name.startswith("rocketbox"))
"""

DJANGO = """
import sys, django
from django.conf import settings

server, topic, group = sys.argv[1:]
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(
    INSTALLED_APPS=["rocketbox.django"], DATABASES={"default": database}, USE_TZ=True,
    ROCKETBOX={"NAMESERVERS": server, "CLIENT": {"timeout": 60}},
)
django.setup()
from django.core.management import call_command
from django.db import transaction
from rocketbox.django import client, consumer_group, send_by_outbox, send_on_commit
from rocketbox.django.testing import deliver, messages_in_outbox

call_command("migrate", verbosity=0)
consumer_group(group).subscribe(topic)(lambda message: None)
call_command("check")
with transaction.atomic():
    send_on_commit(topic, "on commit")
    send_by_outbox(topic, "by outbox")
deliver(group, messages_in_outbox()[0])
call_command("relay_outbox", until_empty=True, verbosity=0)
with client().pull_consumer(group, start="first") as consumer:
    for _, message in zip(range(2), consumer.subscribe(topic)):
        print(message.text)
assert not [name for name in sys.modules if name.partition(".")[0] == "appliance"]
"""

CONSUMES = """
import signal, sys
from rocketbox import Client

server, topic, group, doing = sys.argv[1:]
with Client(server, timeout=60) as client:
    for message in client.pull_consumer(group, start="first").subscribe(topic):
        print(message.text, flush=True)
        if doing == "handling":
            signal.pause()
"""


@pytest.fixture(scope="module")
def wheel(request) -> Path:
    directory = shared_directory(request, "dist")
    (directory / "rocketbox_client-0.0.1-py3-none-any.whl").write_text("an earlier version's")
    said = run(sys.executable, ROOT / "client_wheel" / "build.py", directory, cwd=directory)
    (wheel,) = directory.glob("*.whl")
    assert said.splitlines()[-1] == str(wheel)
    return wheel


class Installed:
    """The wheel in an environment, and programs that use it."""

    def __init__(self, wheel: Path, python: str, directory: Path) -> None:
        self._directory = directory
        self._environment = Environment(directory / "venv", python)
        self._environment.pip("install", "-q", "--no-index", wheel, cwd=directory, PATH="/nowhere")

    def give(self, *names: str) -> None:
        self._environment.give([Requirement(name) for name in names])

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        path = self._directory / "program.py"
        path.write_text(program)
        return subprocess.Popen(
            [self._environment.python, "-W", "error", path, *arguments],
            cwd=self._directory,
            env=variables(PYTHONUTF8="1"),
            # A shell that starts tests in the background has them ignore it, and so would the program.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module", params=pythons().values(), ids=pythons())
def installed(wheel, request) -> Installed:
    return Installed(wheel, request.param, shared_directory(request, "installed"))


def test_it_is_one_for_every_machine_and_holds_the_client_and_nothing_else(wheel):
    assert wheel.name == "rocketbox_client-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        said = Parser().parsestr(file.read(metadata).decode())
    client = ROOT / "appliance" / "client"
    ours = {f"rocketbox/{path.relative_to(client)}" for path in client.rglob("*.py")} | {"rocketbox/py.typed"}
    app = ROOT / "appliance" / "client_django"
    ours |= {f"rocketbox/django/{path.relative_to(app)}" for path in app.rglob("*.py")}
    assert ours <= names
    rest = names - ours
    assert rest
    assert all(name.startswith("rocketbox/_engine/") for name in rest)
    assert {name.rsplit("/", 1)[0] for name in rest} == {"rocketbox/_engine", "rocketbox/_engine/protocol"}
    assert all("extra ==" in one for one in said.get_all("Requires-Dist"))


def test_it_sends_and_consumes_without_any_package(installed, rocketbox, rocketmq_topic, rocketmq_group):
    program = installed.start(SENDS_AND_CONSUMES, rocketbox.namesrv, rocketmq_topic, rocketmq_group)
    said, errors = program.communicate(timeout=120)
    assert (program.returncode, said, errors) == (0, "['order-17'] 用\n", "")


def test_its_django_app_needs_django_only(installed, rocketbox, rocketmq_topic, rocketmq_group):
    installed.give("django")
    program = installed.start(DJANGO, rocketbox.namesrv, rocketmq_topic, rocketmq_group)
    said, errors = program.communicate(timeout=120)
    assert (program.returncode, errors) == (0, "")
    assert set(said.splitlines()) >= {"on commit", "by outbox"}


def test_a_program_without_a_server_ends_with_what_to_do(installed):
    program = installed.start(SENDS_AND_CONSUMES, f"127.0.0.1:{reserve_port()}", "T", "G")
    said, errors = program.communicate(timeout=120)
    assert (program.returncode, said) == (1, "")
    last = errors.splitlines()[-1]
    assert last.startswith("rocketbox.errors.NoNameServer: No name server answers: 127.0.0.1:")
    assert "Connection refused" in last
    assert "`rocketbox serve` starts one" in last


def test_ctrl_c_ends_a_program_and_the_message_that_it_was_handling_comes_again(
    installed, rocketbox, produce, rocketmq_topic, rocketmq_group
):
    produce(rocketmq_topic, "first")
    for doing in ("handling", "waiting"):
        program = installed.start(CONSUMES, rocketbox.namesrv, rocketmq_topic, rocketmq_group, doing)
        assert program.stdout is not None
        assert ends(program.stdout.readline, "its first message") == "first\n"
        program.send_signal(signal.SIGINT)
        said, errors = program.communicate(timeout=120)
        assert (program.returncode, said) == (-signal.SIGINT, "")
        assert errors.splitlines()[-1] == "KeyboardInterrupt"
        assert "During handling" not in errors
