"""The bench of replication runs, very short; a pair that acknowledges records of one broker only is not measured."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("numpy")
from appliance.engine.hotpath import COMPILED
from bench import filled_log, replicas, replication
from bench.servers import ServerError

TINY = ("--rounds", "1", "--seconds", "0.3", "--warm-up", "0.1", "--flush", "async")


@pytest.fixture(autouse=True)
def either_twin(monkeypatch):
    """Let the bench measure the pure twin if the compiled one is not built."""
    if not COMPILED:
        monkeypatch.setattr("bench.rounds.require_twin", lambda server: None)


def run(capsys, *arguments: object) -> list[list[str]]:
    """Run the bench; return the cells of its tables' rows, without the heads."""
    status = replication.main([*map(str, arguments)])
    out, err = capsys.readouterr()
    assert status == 0, out + err
    lines = [*out.splitlines(), ""]
    rows = [line for line, below in pairwise(lines) if line.startswith("| ") and not below.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_double_writes_of_a_pair_and_of_a_set(tmp_path, capsys):
    rows = run(capsys, "--parts", "double", *TINY, "--servers", "pair,set", "--dir", tmp_path)
    assert [row[0] for row in rows] == ["RocketBox, master and slave", "RocketBox, set of two with etcd"]
    assert all(int(row[1].replace(",", "")) > 0 and row[-1] == "0" for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_a_pair_that_waits_for_nobody_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETBOX_STORE_INSYNCREPLICAS", "1")
    pair = replicas.make_replicas(replicas.PAIR, "async", None, tmp_path)
    try:
        with pytest.raises(ServerError, match="acknowledges what one broker has"):
            pair.start()
    finally:
        pair.stop()


def test_an_empty_slave_gets_the_whole_log(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(filled_log, "FILE_BYTES", 8 << 20)
    monkeypatch.setenv("ROCKETBOX_STORE_MAPPEDFILESIZECOMMITLOG", str(8 << 20))
    # Small records, so that most of the log is copied after the start of the copy has been seen.
    bodies = ("--gib", "0.03", "--bodies", "100", "--slice", "0.2", "--slices", "1")
    [row] = run(capsys, "--parts", "catchup", *TINY, *bodies, "--dir", tmp_path)
    assert row[0] == "0.03 GiB of 100 B, async flush"
    assert int(row[1].split()[0]) >= 10
    assert int(row[2].split()[0]) > 0
    assert row[-1] == "0"


def test_memory_of_idle_members(tmp_path, capsys):
    rows = run(capsys, "--parts", "cost", *TINY, "--idle", "0.5", "--dir", tmp_path)
    found = {row[0]: float(row[1].split()[0]) for row in rows}
    assert found.keys() == {"without haStore", "leader", "follower", "etcd, one server"}
    assert all(10 < megabytes < 500 for megabytes in found.values())


def test_another_work_tree_is_measured_in_turns(tmp_path, capsys):
    here = replication.Path(replication.__file__).resolve().parents[1]
    rows = run(capsys, "--parts", "before", *TINY, "--before", here, "--dir", tmp_path)
    assert [row[0] for row in rows] == ["this work tree", "the other"]
    assert all(row[-1] == "0" for row in rows)
