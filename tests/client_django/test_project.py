"""The app for Django projects, in the project beside this file: inside it, and its commands in processes that are ended
at the worst moments.

SHOP_DATABASE, the JSON of an entry of Django's DATABASES, runs all of it on another database than SQLite; its NAME is
of a database that may be emptied.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PROJECT = Path(__file__).parent / "project"
OTHER_DATABASE = os.environ.get("SHOP_DATABASE")

WRITES = """
import os, sys, django
django.setup()
from django.db import transaction
from appliance.client_django import send_by_outbox
topic, shards, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with transaction.atomic():
    for number in range(count):
        send_by_outbox(topic, f"{number % shards} {number}", shard=str(number % shards))
"""
#: A relay that is killed when it is about to delete the first messages that it sent.
DIES_BETWEEN_SEND_AND_MARK = """
import os, signal, sys, django
django.setup()
from django.core.management import call_command
from django.db.models import QuerySet
QuerySet.delete = lambda self: os.kill(os.getpid(), signal.SIGKILL)
call_command("relay_outbox", "--lease", "1")
"""
#: The database's clock is set back by a day.
A_DAY_BACK = """
import django
django.setup()
from datetime import timedelta
from django.db.models import F
from appliance.client_django.models import OutboxLane
assert OutboxLane.objects.exclude(until=None).update(until=F("until") + timedelta(days=1)) == 1
"""
LOOKS = """
import django, json, sys
django.setup()
from shop.models import Bill
from appliance.client_django.models import OutboxMessage
print(json.dumps([sorted(Bill.objects.values_list("name", "attempt")), OutboxMessage.objects.count()]))
"""


def of_sqlite(directory: Path) -> dict[str, object]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(directory / "db"),
        "TEST": {"NAME": str(directory / "test-db")},
        "OPTIONS": {"timeout": 60},
    }


class Project:
    """The project with a database of its own, and processes that run it."""

    def __init__(self, directory: Path, namesrv: str, topic: str, group: str, code: Path = PROJECT) -> None:
        self.directory = directory
        self._code = code
        unwanted = ("ROCKETBOX_", "DJANGO_", "NAMESRV_")
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith(unwanted)} | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(code), str(ROOT), os.environ.get("PYTHONPATH", "")))),
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "NAMESRV_ADDR": namesrv,
            "SHOP_DATABASE": OTHER_DATABASE or json.dumps(of_sqlite(directory)),
            "SHOP_TOPIC": topic,
            "SHOP_GROUP": group,
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def migrate(self) -> None:
        if OTHER_DATABASE:
            self.finish("manage.py", "flush", "--noinput")
        self.finish("manage.py", "migrate", "--run-syncdb", "-v", "0")

    def launch(self, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """Start Python in the project; what it says goes to files, see `said`."""
        log = (self.directory / f"{len(self._processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._code,
                env=self._environment | more,
                # A shell that starts tests in the background has them ignore it, and so would the program.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self.directory / f"{self._processes.index(process)}.log").read_text(errors="replace")

    def finish(self, *arguments: str, **more: str) -> str:
        """Run Python in the project, which has to succeed; return what it says."""
        process = self.launch(*arguments, **more)
        status = process.wait(240)
        assert status == 0, self.said(process)
        return self.said(process)

    def look(self) -> tuple[list[list[object]], int]:
        """Return (name and attempt of each bill, number of messages in the outbox)."""
        bills, waiting = json.loads(self.finish("-c", LOOKS).splitlines()[-1])
        return bills, waiting

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Django's reloader has a process below it
            process.wait()


@pytest.fixture
def project(tmp_path: Path, rocketbox, rocketmq_topic: str, rocketmq_group: str) -> Iterator[Project]:
    made = Project(tmp_path, rocketbox.namesrv, rocketmq_topic, rocketmq_group)
    made.migrate()
    yield made
    made.close()


def test_inside_the_project(tmp_path: Path) -> None:
    inside = Project(tmp_path, "", "orders", "billing")
    said = inside.finish("-m", "pytest", "-q", "-c", "pytest.ini", "--rootdir", str(PROJECT), str(PROJECT))
    assert " passed" in said
    assert " skipped" not in said


def test_a_model_that_changed_has_a_migration(project: Project) -> None:
    assert "No changes" in project.finish("manage.py", "makemigrations", "--check", "--dry-run", "rocketbox")


def test_consume_hands_messages_to_handlers_and_ends_with_the_one_it_is_at(
    project: Project, produce: Callable[..., object], rocketmq_topic: str
) -> None:
    release = project.directory / "release"
    produce(rocketmq_topic, "first")
    consuming = project.launch("manage.py", "consume")
    wait_for(lambda: "consumes" in project.said(consuming) or consuming.poll() is not None, "its start")
    produce(rocketmq_topic, f"waits for {release}")
    wait_for(release.with_suffix(".begun").exists, "the handler")
    consuming.send_signal(signal.SIGTERM)
    produce(rocketmq_topic, "for the next one")
    release.touch()
    assert consuming.wait(120) == 0, project.said(consuming)
    bills, _ = project.look()
    assert ["first", 1] in bills
    assert [f"waits for {release}", 1] in bills
    consuming = project.launch("manage.py", "consume")
    wait_for(lambda: "consumes" in project.said(consuming) or consuming.poll() is not None, "its second start")
    wait_for(lambda: len(project.look()[0]) >= 3, "the bill of the next one", every=0.3)
    consuming.send_signal(signal.SIGINT)
    assert consuming.wait(120) == 0, project.said(consuming)
    assert sorted(name for name, _ in project.look()[0]) == sorted(
        ["first", f"waits for {release}", "for the next one"]
    )


def test_a_message_that_a_killed_consumer_was_at_comes_again(
    project: Project, produce: Callable[..., object], rocketmq_topic: str
) -> None:
    release = project.directory / "release"
    produce(rocketmq_topic, f"waits for {release}")
    consuming = project.launch("manage.py", "consume")
    wait_for(release.with_suffix(".begun").exists, "the handler")
    consuming.kill()
    assert consuming.wait(60) == -signal.SIGKILL
    release.touch()
    consuming = project.launch("manage.py", "consume")
    wait_for(lambda: project.look()[0], "the bill", every=0.3)
    consuming.terminate()
    assert consuming.wait(120) == 0, project.said(consuming)


def test_consume_says_what_it_cannot_run(project: Project) -> None:
    for arguments, more, expected in (
        (["no-such-group"], {}, "No consumers.py declares no-such-group"),
        ([], {"NAMESRV_ADDR": "127.0.0.1:9"}, "No name server answers"),
        ([], {"SHOP_TOPIC": "no topic"}, "rocketbox.E002"),
    ):
        process = project.launch("manage.py", "consume", *arguments, **more)
        assert process.wait(120) == 1
        assert expected in project.said(process)
        assert "Traceback" not in project.said(process)


def test_with_debug_a_changed_file_is_used_at_once(
    tmp_path: Path, rocketbox, produce: Callable[..., object], rocketmq_topic: str, rocketmq_group: str
) -> None:
    code = tmp_path / "code"
    shutil.copytree(PROJECT, code, ignore=shutil.ignore_patterns("__pycache__"))
    project = Project(tmp_path, rocketbox.namesrv, rocketmq_topic, rocketmq_group, code)
    project.migrate()
    try:
        consuming = project.launch("manage.py", "consume", SHOP_DEBUG="1")
        wait_for(lambda: "consumes" in project.said(consuming), "its start")
        consumers = code / "shop" / "consumers.py"
        consumers.write_text(consumers.read_text().replace("name=text", 'name=f"{text} of the new file"'))

        def started_again() -> bool:
            consumers.touch()  # the reloader may have looked first after the change
            return project.said(consuming).count("consumes") >= 2

        wait_for(started_again, "its second start", every=1.0)
        produce(rocketmq_topic, "17")
        wait_for(lambda: project.look()[0], "the bill", every=0.3)
        assert project.look()[0] == [["17 of the new file", 1]]
    finally:
        project.close()


def test_several_relays_send_each_message_once_and_keep_the_order_of_a_shard(
    project: Project, consumed, rocketmq_topic: str
) -> None:
    project.finish("-c", WRITES, rocketmq_topic, "12", "240")
    relays = [project.launch("manage.py", "relay_outbox", "--until-empty") for _ in range(3)]
    for relay in relays:
        assert relay.wait(240) == 0, project.said(relay)
    found = [message.text for message in consumed(rocketmq_topic, 240, timeout=60)]
    consumed.none(rocketmq_topic, within=0.05)
    assert len(set(found)) == 240
    check_order(found, 12)
    assert project.look() == ([], 0)


@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_relay_that_is_killed_between_send_and_mark_loses_nothing(
    project: Project, consumed, rocketmq_topic, is_set_back: bool
) -> None:
    project.finish("-c", WRITES, rocketmq_topic, "1", "10")
    killed = project.launch("-c", DIES_BETWEEN_SEND_AND_MARK)
    assert killed.wait(120) == -signal.SIGKILL, project.said(killed)
    assert project.look()[1] == 10
    if is_set_back:
        project.finish("-c", A_DAY_BACK)
    project.finish("manage.py", "relay_outbox", "--until-empty", "--lease", "1")
    found = consumed(rocketmq_topic, 11, timeout=60)
    assert [message.text for message in found] == ["0 0", *(f"0 {number}" for number in range(10))]
    assert found[0].properties["OUTBOX_ID"] == found[1].properties["OUTBOX_ID"], "a double can be known"
    assert len({message.properties["OUTBOX_ID"] for message in found}) == 10
    assert project.look()[1] == 0


def test_a_relay_ends_with_what_is_on_its_way(project: Project) -> None:
    relay = project.launch("manage.py", "relay_outbox")
    wait_for(lambda: "relaying" in project.said(relay), "its start")
    relay.terminate()
    assert relay.wait(120) == 0, project.said(relay)


def check_order(found: list[str], shards: int) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for text in found:
        shard, number = text.split()
        numbers[shard].append(int(number))
    assert len(numbers) == shards
    assert all(of == sorted(of) for of in numbers.values())
