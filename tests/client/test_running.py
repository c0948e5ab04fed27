"""`python -m rocketbox run`: consumers of modules, in one process and in several."""

import contextlib
import itertools
import os
import queue
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from appliance.client import ending, running
from appliance.client.running import UNUSABLE
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]
PATIENT = 60.0
PLAIN = """
import os
from appliance.client import Client

client = Client(timeout=60)
billing = client.push_consumer("{group}", start="first")

@billing.subscribe("{topic}")
def bill(message):
    with open("seen", "a") as file:
        file.write(f"{{os.getpid()}} {{message.text}}\\n")
"""
SENDS_ON = """
from appliance.client import aio

client = aio.Client(timeout=60)
billing = client.push_consumer("{group}", start="first")
producer = client.producer("{group}-sends", linger=25)

@billing.subscribe("{topic}")
async def bill(message):
    await producer.submit("{topic}-2", "after " + message.text)
    with open("seen", "a") as file:
        file.write("1 0\\n")
"""
TASKS = (
    PLAIN.replace("import Client", "import aio").replace("Client(", "aio.Client(").replace("def bill", "async def bill")
)


class Runner:
    """A command that runs consumers in a directory of its own."""

    def __init__(self, directory, rocketbox, topic, group):
        self.directory = directory
        self.names = {"topic": topic, "group": group}
        self.environment = os.environ | {"NAMESRV_ADDR": rocketbox.namesrv, "PYTHONPATH": str(ROOT)}
        self.process = None

    def begin(self, text, *options):
        (self.directory / "consumers.py").write_text(text.format(**self.names))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "appliance.client", "run", "consumers", *options],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def seen(self):
        """(pid, text) of each message that was handled."""
        with contextlib.suppress(FileNotFoundError):
            return [tuple(line.split()) for line in (self.directory / "seen").read_text().splitlines()]
        return []

    def children(self):
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=2 * PATIENT)
        return self.process.returncode, out, err


@pytest.fixture
def runner(tmp_path, rocketbox, rocketmq_topic, rocketmq_group):
    runner = Runner(tmp_path, rocketbox, rocketmq_topic, rocketmq_group)
    yield runner
    if runner.process is not None:
        runner.process.kill()
        runner.process.communicate()


def texts(runner):
    return sorted(int(text) for _, text in runner.seen())


@pytest.mark.parametrize("text", [PLAIN, TASKS], ids=["threads", "asyncio"])
def test_a_module_is_run_until_a_signal(runner, produce, rocketmq_topic, group_idle, rocketmq_group, text):
    for number in range(5):
        produce(rocketmq_topic, str(number))
    runner.begin(text)
    wait_for(lambda: texts(runner) == list(range(5)), "all are handled")
    status, out, err = runner.end()
    assert (status, out) == (0, f"group {rocketmq_group} consumes {rocketmq_topic}\n"), err
    group_idle(rocketmq_group, timeout=PATIENT)


def test_what_handlers_of_asyncio_have_sent_arrives_before_the_end(runner, produce, consumed, rocketmq_topic):
    """No handler has waited for it, and it lingers."""
    produce(rocketmq_topic, "0")
    runner.begin(SENDS_ON)
    wait_for(runner.seen, "it is handled")
    status, _, err = runner.end()
    assert status == 0, err
    assert [message.text for message in consumed(f"{rocketmq_topic}-2", 1, timeout=PATIENT)] == ["after 0"]


class Ended:
    """A process that has ended."""

    def __init__(self, pid, status):
        self.pid, self.returncode = pid, status


@pytest.mark.parametrize(("age", "status", "starts"), [(1.0, UNUSABLE, 0), (100.0, 0, 1)])
def test_a_process_that_cannot_start_ends_the_others_only_at_first(monkeypatch, age, status, starts):
    """Later a name server may just be away."""
    clock = itertools.chain([0.0], itertools.repeat(age))
    monkeypatch.setattr(running, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(running, "_FIRST_PAUSE_S", 0.0)
    processes = running._Processes(["m"], 1.0)
    started = []

    def start():
        started.append(None)
        processes._events.put(None)

    monkeypatch.setattr(processes, "_start", start)
    processes._running[7] = Ended(7, UNUSABLE)
    processes._events.put((processes._running[7], 0.5))
    assert processes._keep_running() == status
    assert len(started) == starts


def test_a_drain_without_an_end_is_refused(capsys):
    for drain in ("inf", "nan", "-1", "1e300"):
        with pytest.raises(SystemExit):
            running.main(["run", "m", "--drain", drain])
        assert "finite" in capsys.readouterr().err


def test_processes_share_queues_and_one_that_dies_is_replaced(
    runner, produce, rocketmq_topic, group_idle, rocketmq_group
):
    runner.begin(PLAIN, "--processes", "2")
    wait_for(lambda: runner.process.stdout.readline() and runner.process.stdout.readline(), "both consume")
    number = 0

    def both_take_part():
        nonlocal number
        for _ in range(8):
            produce(rocketmq_topic, str(number))
            number += 1
        return len({pid for pid, _ in runner.seen()} & set(map(str, runner.children()))) == 2

    wait_for(both_take_part, "both handle messages")
    first = runner.children()[0]
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(runner.children()) == 2 and first not in runner.children(), "another process")
    wait_for(both_take_part, "both handle messages again")
    wait_for(lambda: set(texts(runner)) == set(range(number)), "all are handled")
    children = runner.children()
    status, _, err = runner.end()
    assert (status, err) == (0, f"process {first} ended with -9; another starts in 1 s\n")
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    group_idle(rocketmq_group, timeout=PATIENT)


def test_processes_end_with_the_one_that_began_them(runner):
    runner.begin(PLAIN, "--processes", "2")
    wait_for(lambda: runner.process.stdout.readline() and runner.process.stdout.readline(), "both consume")
    children = runner.children()
    runner.process.kill()
    runner.process.communicate(timeout=PATIENT)
    wait_for(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()], "none is left")


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one", "two"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client = None", "has no push consumer at its top level"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        (PLAIN.replace("Client(timeout=60)", 'Client("127.0.0.1:1", timeout=1)'), "127.0.0.1:1"),
    ],
    ids=["no consumer", "no module", "no server"],
)
def test_what_cannot_be_run_is_said(runner, text, words, options):
    runner.begin(text, *options)
    _, err = runner.process.communicate(timeout=2 * PATIENT)
    assert runner.process.returncode == UNUSABLE
    assert words in err
    assert "Traceback" not in err


def test_a_signal_that_came_before_the_wait_is_not_overlooked(monkeypatch):
    """Python runs its handler only when something else ends the wait."""
    monkeypatch.setattr(ending, "_LOOK_S", 0.001)

    class LateQueue(queue.SimpleQueue):
        looks = 0

        def get(self, timeout):
            LateQueue.looks += 1
            if LateQueue.looks == 3:
                self.put("ended")
            return super().get(timeout=timeout)

    assert ending.entry_of(LateQueue()) == "ended"
    assert LateQueue.looks == 3


def test_the_ten_minutes_of_the_page_run(rocketbox, rocketmq_topic, rocketmq_group):
    page = (ROOT / "docs/python.md").read_text().partition("## Ten minutes\n")[2].partition("\n## ")[0]
    bill, order = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    said = []

    def tell(*words):
        said.append(words)
        if words[0] == "billed":
            os.kill(os.getpid(), signal.SIGTERM)

    for block in (order, bill):
        for name, real in {
            "from rocketbox": "from appliance.client",
            "127.0.0.1:9876": rocketbox.namesrv,
            '"orders"': f'"{rocketmq_topic}"',
            '"billing"': f'"{rocketmq_group}"',
        }.items():
            block = block.replace(name, real)
        exec(compile(block, "docs/python.md", "exec"), {"print": tell})
    assert said[1:] == [("billed", "order-1")]
