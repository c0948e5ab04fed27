"""The client's own wheel in an empty environment of each Python here: it needs no compiler and no package, sends and
consumes, and the traceback of a program that catches nothing says what to do. And the wheel of its compiled parts, for
the Python that runs this: the client does the same with them."""

from __future__ import annotations

import os
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
import sys, threading, time
from rocketbox import Client

server, topic, group, doing = sys.argv[1:]

def waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    return (frame.f_code.co_name, frame.f_back.f_code.co_name) == ("take", "wait_for")

def tell():
    while not waits():
        time.sleep(0.01)
    print("waits", flush=True)

with Client(server, timeout=60) as client:
    for message in client.pull_consumer(group, start="first").subscribe(topic):
        print(message.text, flush=True)
        if doing == "waiting":
            threading.Thread(target=tell, daemon=True).start()
        while doing == "handling":  # in pieces: a signal that comes just before a wait is seen when the wait ends
            time.sleep(0.1)
"""


COMPILED = """
import sys
from rocketbox import Client, Message, twin
from rocketbox.core.quick import Flight

server, topic, group = sys.argv[1:]
assert (twin.WHY_PURE, Flight.__module__) == ("", "rocketbox_client_speedups")
with Client(server, timeout=60) as client:
    producer = client.producer()
    producer.send(topic, b"first")
    messages = [Message(topic, b"%d" % number, tags='paid"ä' if number % 2 else None) for number in range(2000)]
    results = list(producer.send_many(messages))
    places = {(one.queue, one.queue_offset) for one in results}
    assert len(places) == len({one.message_id for one in results}) == 2000
    found = {}
    for message in client.pull_consumer(group, start="first").subscribe(topic):
        found[message.message_id] = message
        if len(found) > 2000 and all(one.message_id in found for one in results):
            break
    for sent, result in zip(messages, results):
        message = found[result.message_id]
        assert (message.body, message.tags, message.offset_id) == (sent.body, sent.tags, result.offset_id)
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert tuple(message.record)[-3] == sent.body
print("all")
"""

#: The client's own tests that run with the compiled parts, too: of the parts themselves, and in the night the others.
OF_THE_PARTS = tuple(f"tests/client/core/test_{name}.py" for name in ("quick", "connection", "records", "unique_key"))
OF_ALL = (
    "tests/client/core",
    "tests/client/test_sending.py",
    "tests/client/test_handling.py",
    "tests/client/test_wrong_servers.py",
    "tests/client/test_push_consumer.py",
    "tests/client/test_rocketbox.py",
)


@pytest.fixture(scope="module")
def wheels(request) -> list[Path]:
    directory = shared_directory(request, "dist")
    (directory / "rocketbox_client-0.0.1-py3-none-any.whl").write_text("an earlier version's")
    said = run(
        sys.executable, ROOT / "client_wheel" / "build.py", directory, cwd=directory, ROCKETBOX_COMPILED="required"
    )
    wheels = sorted(directory.glob("*.whl"))
    assert said.splitlines()[-2:] == [str(wheel) for wheel in wheels]
    return wheels


@pytest.fixture(scope="module")
def wheel(wheels) -> Path:
    return wheels[0]


@pytest.fixture(scope="module")
def speedups(wheels) -> Path:
    return wheels[1]


class Installed:
    """The wheel in an environment, and programs that use it."""

    def __init__(self, wheel: Path, python: str, directory: Path) -> None:
        self._directory = directory
        self._environment = Environment(directory / "venv", python)
        self._environment.pip("install", "-q", "--no-index", wheel, cwd=directory, PATH="/nowhere")

    def install(self, wheel: Path) -> None:
        self._environment.pip("install", "-q", "--no-index", wheel, cwd=self._directory, PATH="/nowhere")

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


@pytest.fixture(scope="module")
def compiled(wheel, speedups, request) -> Installed:
    installed = Installed(wheel, sys.executable, shared_directory(request, "compiled"))
    installed.install(speedups)
    return installed


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
        if doing == "waiting":
            assert ends(program.stdout.readline, "its wait for the next") == "waits\n"
        program.send_signal(signal.SIGINT)
        said, errors = program.communicate(timeout=120)
        assert (program.returncode, said) == (-signal.SIGINT, "")
        assert errors.splitlines()[-1] == "KeyboardInterrupt"
        assert "During handling" not in errors


def test_compiled_parts_do_the_same(compiled, rocketbox, rocketmq_topic, rocketmq_group):
    for program, expected in ((SENDS_AND_CONSUMES, "['order-17'] 用\n"), (COMPILED, "all\n")):
        ran = compiled.start(program, rocketbox.namesrv, rocketmq_topic, f"{rocketmq_group}-{len(program)}")
        said, errors = ran.communicate(timeout=120)
        assert (ran.returncode, said, errors) == (0, expected, "")


@pytest.mark.parametrize("tests", [OF_THE_PARTS, pytest.param(OF_ALL, marks=pytest.mark.nightly)], ids=["parts", "all"])
def test_the_tests_of_the_client_pass_with_compiled_parts(speedups, tmp_path, tests):
    with zipfile.ZipFile(speedups) as file:
        file.extractall(tmp_path)
    made = "from appliance.client import twin; print(twin.WHY_PURE or twin.compiled.__name__)"
    with_them = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    said = subprocess.run([sys.executable, "-c", made], cwd=ROOT, env=with_them, capture_output=True, text=True)
    assert said.stdout == "rocketbox_client_speedups\n"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=with_them,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]


def test_client_and_compiled_parts_are_installed_in_one_version(wheel, speedups):
    for path, required in (
        (wheel, 'rocketbox-client-speedups==0.1.0; extra == "speedups"'),
        (speedups, "rocketbox-client==0.1.0"),
    ):
        with zipfile.ZipFile(path) as file:
            (metadata,) = (name for name in file.namelist() if name.endswith("/METADATA"))
            assert required in Parser().parsestr(file.read(metadata).decode()).get_all("Requires-Dist")


def test_compiled_parts_of_another_version_are_left_alone(tmp_path):
    (tmp_path / "rocketbox_client_speedups.py").write_text("INTERFACE = 0\n")
    program = "from appliance.client import twin; print(twin.compiled, twin.WHY_PURE)"
    for variables_, why in (
        ({}, "rocketbox-client-speedups is of another version"),
        ({"ROCKETBOX_PURE": "1"}, "ROCKETBOX_PURE is set"),
    ):
        found = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))} | variables_
        said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=found, capture_output=True, text=True)
        assert (said.stdout, said.stderr) == (f"None {why}\n", "")
