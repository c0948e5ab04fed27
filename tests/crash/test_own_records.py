"""Small files of RocketBox's own, at every moment of a crash: what was promised is there, and counts once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.console.audit.act_journal import ActJournal
from appliance.engine import wire_audit
from appliance.engine.store import findings as findings_module
from appliance.engine.store.findings import Finding, Findings
from appliance.engine.store.paths import StorePaths
from appliance.engine.wire_act import WireAct
from appliance.engine.wire_audit import WireAudit
from tests.crash.recording_disk import Image, RecordingDisk
from tests.crash.replayer import MODES, CrashedDisk
from tests.support.clock import FakeClock

OWN = Path("/data/rocketbox")


def promise(disk: RecordingDisk, what: Any) -> None:
    """From here on it must survive a crash."""
    disk.record.append(("mark", what))


def crashes(disk: RecordingDisk) -> Iterator[tuple[Any, Image]]:
    """Yield the last promise and what the disk holds, after each operation and in each mode."""
    crashed, chance, promised = CrashedDisk(None, disk.kinds), random.Random(7), None
    for operation in disk.record:
        crashed.follow(operation)
        if operation[0] == "mark":
            promised = operation[1]
        for mode in MODES:
            yield promised, crashed.image(mode, chance)


def audit_on(disk: RecordingDisk) -> WireAudit:
    audit = WireAudit(OWN, FakeClock(), disk)
    audit.open()
    return audit


def act(number: int) -> WireAct:
    return WireAct(at_ms=number, host=f"10.0.0.{number}", action="topic.set", target=f"T{number}", after={"n": number})


def test_an_act_over_the_wire_keeps_its_number_through_any_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_audit, "MAX_FILE_BYTES", 250)  # two acts, and the next one begins another file
    disk = RecordingDisk()
    audit = audit_on(disk)
    for number in range(8):
        audit.record(act(number))
        audit.work()
        promise(disk, (audit.series, dict(enumerate((one.target for one in audit.after("", 0)[1]), 1))))
    assert len(disk.names(OWN)) > 2
    seen = 0
    for promised, image in crashes(disk):
        again = audit_on(RecordingDisk(image))
        series, known = promised or (again.series, {})
        assert again.series == series
        found = {one.n: one.target for one in again.after("", 0)[1]}
        assert known.items() <= found.items()
        again.record(act(99))
        again.work()
        [(number, _)] = {one.n: one.target for one in again.after("", 0)[1]}.items() - found.items()
        assert number > max(known, default=0), "a number means one act for ever"
        seen += len(known)
    assert seen > 1000


def test_an_act_under_way_is_written_down_before_it_is_done() -> None:
    disk = RecordingDisk()
    disk.make_directory(OWN)
    disk.sync_directory(OWN)
    journal = ActJournal(OWN, disk)
    under_way: dict[int, str] = {}
    for number in range(6):
        under_way[journal.begin({"request_id": f"r{number}"})] = f"r{number}"
        promise(disk, set(under_way.values()))
        if number % 2:
            ended = min(under_way)
            del under_way[ended]
            promise(disk, set(under_way.values()))
            journal.end(ended)
    seen = 0
    for promised, image in crashes(disk):
        if str(OWN) not in image:
            continue
        found = {fields["request_id"] for _, fields in ActJournal(OWN, RecordingDisk(image)).late()}
        assert (promised or set()) <= found
        seen += bool(promised)
    assert seen > 50


def test_a_finding_stays_when_the_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_module, "KEPT", 2)
    disk = RecordingDisk()
    paths = StorePaths(Path("/data/store"), OWN)
    for number in range(7):
        Findings(paths, disk).add(Finding(number, "torn", "commitlog", number, number + 1, "", "a test"))
        promise(disk, {number, number - 1} - {-1})
    seen = 0
    for promised, image in crashes(disk):
        found = {one.time_ms for one in Findings(paths, RecordingDisk(image)).all()}
        # One that was being added may be there in place of the oldest.
        assert not promised or promised <= found or found == {max(promised), max(promised) + 1}
        seen += bool(promised)
    assert seen > 100
