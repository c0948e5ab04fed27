"""Counts of the parts that could not be read, on their way out of the tasks."""

from __future__ import annotations

import pytest

from spark_reports.source.findings import DataLoss, Finding, Ledger, bytes_read, read, write
from spark_reports.source.options import OptionError


def test_ranges_that_adjoin_are_one_and_a_task_that_runs_twice_counts_once(tmp_path):
    directory = tmp_path / "not there yet"
    write(str(directory), "b", [Finding("corrupt", 20, 30), Finding("gap", 30, 40)], 7, 1)
    write(str(directory), "a", [Finding("corrupt", 10, 20), Finding("gap", 5, 9, "broker/orders-0")], 5, 2)
    write(str(directory), "a", [Finding("corrupt", 10, 20), Finding("gap", 5, 9, "broker/orders-0")], 5, 2)
    write(str(directory), "c", [], 100, 3)
    assert read(directory) == [
        Finding("corrupt", 10, 30),
        Finding("gap", 30, 40),
        Finding("gap", 5, 9, "broker/orders-0"),
    ]
    assert bytes_read(directory) == 112
    assert sorted(path.name for path in directory.iterdir()) == ["a.json", "b.json", "c.json"]


def test_a_directory_that_cannot_be_written_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    for place, why in (("file", "File exists"), ("file/deeper", "Not a directory")):
        where = str(tmp_path / place)
        with pytest.raises(OptionError, match=f"The option findings: {where} cannot be written: {why}"):
            write(where, "plan", [], 0, 0)


def test_nothing_was_found_where_nothing_ran(tmp_path):
    assert read(tmp_path / "nowhere") == []


def test_the_first_loss_ends_the_query_or_is_noted():
    with pytest.raises(DataLoss, match=r"^It is gone\. With the option failOnDataLoss=false"):
        Ledger(fails=True).add("gap", 1, 2, "It is gone")
    ledger = Ledger(fails=False)
    for begin, end in ((1, 2), (2, 5), (7, 8)):
        ledger.add("corrupt", begin, end, "It is damaged")
    assert ledger.found == [Finding("corrupt", 1, 5), Finding("corrupt", 7, 8)]
