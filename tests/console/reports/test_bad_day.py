"""A bad day, whole: a disk fills, an alert says what will be lost, messages are deleted unread, and sends are refused;
the digest's first lines name it all. The broker, its log and the run's processes are real, and the size of the disk is
set by the test."""

from __future__ import annotations

import json
import re

import pytest

from appliance import runtime
from appliance.console import reports
from appliance.console.alerts.models import AlertChannel, AlertRule
from appliance.console.alerts.teller import teller
from appliance.console.alerts.watch import AlertSender, AlertWatch
from appliance.console.history import series
from appliance.console.history.recorder import Recorder
from appliance.console.models import now_ms
from appliance.console.reports.report_settings import ReportSettings
from appliance.console.reports.telling import notice_of
from appliance.engine.disk import Disk, DiskUsage
from appliance.engine.window.health import disk_room
from tests.console.conftest import pretend_running
from tests.support.engine import RunningEngine, send_fields
from tests.support.receivers import http_receiver
from tests.support.waiting import wait_for

FILE_BYTES = 256 * 1024
FILES = 20
BODY = bytes(range(256)) * 32
EACH = 100
#: Group -> its committed offsets in the queues 0 to 3. `clicks` has read less than a fifth.
READ = {"clicks": (15, 15, 15, 15), "audit": (5, 5), "fraud": (EACH,) * 4}


class Gauge:
    """The use of a disk of `size` log files, which holds the broker's log and `others` files of another program. It
    begins large: what is unread is old by the time that a busy machine takes to store it."""

    def __init__(self) -> None:
        self.size = 100 * FILES
        self.others = 0.0
        self.log = None

    def usage(self, path: object) -> DiskUsage:
        total = self.size * FILE_BYTES
        files = 0 if self.log is None else len(self.log.segments)
        used = min(total, int((files + self.others) * FILE_BYTES))
        return DiskUsage(used, total - used)


@pytest.fixture
def disk(monkeypatch):
    found = Gauge()
    monkeypatch.setattr(Disk, "usage", lambda self, path: found.usage(path))
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 1 << 30)
    monkeypatch.setattr(disk_room, "disk_usage", found.usage)
    monkeypatch.setattr("appliance.engine.window.health.limits.RATE_KNOWN_S", 0.0)
    return found


@pytest.fixture
def running(tmp_path, db, disk):
    options = {
        "mapped_file_size_commit_log": FILE_BYTES, "max_message_size": 64 * 1024, "disk_max_used_space_ratio": 75,
        "disk_space_clean_forcibly_ratio": 85, "disk_space_warning_level_ratio": 90,
        "clean_resource_interval_ms": 600_000, "delete_commit_log_files_interval_ms": 0,
    }  # fmt: skip
    found = RunningEngine(tmp_path / "data", store=options)
    disk.log = found.engine.broker.store.log
    pretend_running(found.engine)
    yield found
    found.stop()


@pytest.fixture
def recorder(running):
    found = Recorder(runtime.place().directory)
    series.use(found)
    yield found
    series.use(None)
    found._close()


def stored(running: RunningEngine) -> None:
    """Store what the groups are to read, and have the rates measured."""
    running.sample()
    for _ in range(EACH):
        for queue in range(4):
            running.put("events", BODY, queue=queue)
    for group, offsets in READ.items():
        running.window.group_commands.create(group)
        for queue, offset in enumerate(offsets):
            running.commit(group, "events", queue, offset)
    running.sample()
    store = running.engine.broker.store
    wait_for(
        lambda: (p := store.files.recovery_position.position) and p.offset == store.published,
        "the queue files are written",
    )


def begins(running: RunningEngine) -> list[int]:
    queues = [one for one in running.engine.broker.store.queues.all() if one.topic == "events"]
    return [one.min_offset for one in sorted(queues, key=lambda one: one.queue_id)]


def deletes_and_refuses(running: RunningEngine, disk: Gauge) -> int:
    """Another program takes nearly all of the disk, twice. Return the number of sends that were refused."""
    store = running.engine.broker.store
    for others, what in ((FILES * 0.5, "files go"), (FILES * 0.96, "all files but the last go, which is not enough")):
        known = store.cleaner.status.log_files_forced
        disk.others = others
        store.cleaner.wakeup()
        wait_for(lambda known=known: store.cleaner.status.log_files_forced > known, what)
    wait_for(lambda: store.log.refused_by("disk"), "sends are refused")
    peer = running.peer()
    codes = [peer.ask(310, send_fields("events"), BODY).code for _ in range(3)]
    assert 0 not in codes
    disk.others = 0.0
    store.cleaner.wakeup()
    wait_for(lambda: not store.log.refused_by("disk"), "sends are taken again")
    return len(codes)


def test_the_digest_tells_in_its_first_lines_what_was_lost(running, disk, recorder, runner, request_of):
    stored(running)
    log = disk.log
    with http_receiver() as receiver:
        channel = AlertChannel.objects.create(name="chat", kind="webhook", address=receiver.url())
        rule = AlertRule.objects.create(name="unread", figure="deletion_percent", above=80, for_minutes=0)
        rule.channels.add(channel)
        watch = AlertWatch(lambda: recorder.newest({"group_deletion_percent"}), teller, lambda: None)

        def told() -> dict[str, str]:
            recorder.step()
            watch._look()
            while AlertSender().send_next(now_ms()):
                pass
            notices = [json.loads(one.body) for one in receiver.received]
            return {one["subject"]: one["title"] for one in notices}

        assert told() == {}
        disk.size = FILES
        disk.others = FILES * 0.85 - len(log.segments) - 0.01  # before the first file goes
        needs = [one for one in running.window.overview.snapshot().needs if one.kind == "group"]
        assert {one.name for one in needs if one.sentence.code == "deleted_unread_soon"} == {"clicks", "audit"}
        found = told()
        assert found.keys() == {"clicks", "audit"}, "fraud has read all"
        assert "Messages will be deleted before group clicks has read them" in found["clicks"]
    assert begins(running) == [0] * 4
    before = running.window.report_inputs.take()
    assert {one.name for one in before.groups if one.ahead is not None and one.ahead.is_soon} == {"clicks", "audit"}

    refused = deletes_and_refuses(running, disk)
    gone = begins(running)
    assert min(gone) > max(READ["clicks"])
    running.put("events", b"the next one")
    for queue in range(4):  # the offset moves on
        running.commit("clicks", "events", queue, EACH + (queue == 0))
    clicks = sum(end - read for end, read in zip(gone, READ["clicks"], strict=True))
    audit = sum(gone[:2]) - 10
    losses = [one for one in running.window.overview.snapshot().needs if one.sentence.code == "deleted_unread"]
    assert [(one.name, one.sentence.args["count"]) for one in losses] == [("clicks", clicks), ("audit", audit)]
    recorder.step()
    recorder.write(rest=False)
    reports.save_settings(request_of("admin"), ReportSettings(engine="python"))
    record = reports.start(request_of("admin"))
    assert runner.step()
    run = reports.run(record.id)
    assert (run.state, run.error) == ("done", ""), reports.log_tail(run.id)

    lost = clicks + 2 * 10  # what `audit` alone had not read: offsets 5 to 14 of two queues
    files = running.engine.broker.store.cleaner.status.log_files_forced
    digest = reports.document(run.day, "digest")
    assert notice_of(digest, "en").text.splitlines()[:8] == [
        f"Retention deleted {lost} messages before they were read. The most affected is group clicks in topic events "
        f"with {clicks}, of 2 pairs of group and topic.",
        f"{refused} sends were refused.",
        f"The disk was too full: {files} log files were deleted before their retention was over.",
        "",
        "Deleted before it was read:",
        f"- clicks, events: {clicks}",
        f"- audit, events: {audit}",
        "",
    ]
    chinese = notice_of(digest, "zh-hans").text.splitlines()
    assert [re.findall(r"[0-9]+", line) for line in chinese[:3]] == [
        [str(lost), str(clicks), "2"], [str(refused)], [str(files)],
    ]  # fmt: skip
    tables = {one["key"]: one["rows"] for one in digest["tables"]}
    assert [row[:4] for row in tables["deleted_unread"]] == [
        ["clicks", "events", clicks, "0, 1, 2, 3"], ["audit", "events", audit, "0, 1"],
    ]  # fmt: skip
    margins = {row[0]: row for row in _table(reports.document(run.day, "capacity"), "margins")}
    assert [margins[group][4] >= 1000 for group in READ] == [True, True, False]
    assert [margins[group][5] for group in READ] == [clicks, audit, 0]


def _table(document, key):
    return next(one["rows"] for one in document["tables"] if one["key"] == key)
