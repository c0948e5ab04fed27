"""The list of bytes and files that were cut, quarantined or set aside."""

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.findings import KEPT, NAME, Finding, Findings
from appliance.engine.store.paths import StorePaths
from tests.support.store import StoreUnderTest


@pytest.fixture
def findings(tmp_path):
    return Findings(StorePaths(tmp_path / "store", tmp_path), Disk())


def torn(begin):
    return Finding(1_700_000_000_000, "torn", "commitlog", begin, begin + 10, "/there", "behind the last whole record")


def test_they_are_kept_in_order_and_a_torn_line_is_passed_over(findings, tmp_path):
    assert findings.all() == []
    findings.add(torn(1))
    path = tmp_path / "quarantine" / NAME
    path.write_bytes(path.read_bytes() + b'{"time_ms": 17')
    findings.add(torn(2))
    assert findings.all() == [torn(1), torn(2)]


def test_damage_found_at_each_start_is_listed_once(findings):
    for _ in range(2):
        findings.add(torn(5)._replace(kind="damage"))
    assert len(findings.all()) == 1


def test_the_list_is_bounded(findings, tmp_path):
    path = tmp_path / "quarantine" / NAME
    findings.add(torn(0))
    line = path.read_bytes()
    path.write_bytes(line * 2 * KEPT)
    findings.add(torn(1))
    assert len(findings.all()) == KEPT
    assert findings.all()[-1] == torn(1)
    assert len(path.read_bytes()) < len(line) * (KEPT + 2)


def test_recovery_lists_a_cut_tail_and_where_it_is_kept(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"whole", b"torn" * 20)
    end = store.store.published
    store.die()
    path = next((tmp_path / "store" / "commitlog").iterdir())
    with open(path, "r+b") as file:
        file.seek(end - 3)
        file.write(b"\0\0\0")
    store.open()
    (found,) = store.store.files.findings()
    assert (found.kind, found.file) == ("torn", "commitlog")
    with open(found.copy, "rb") as file:
        assert b"torntorn" in file.read()
    store.stop()
