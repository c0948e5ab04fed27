"""Errors on their way from the data source to Spark."""

from __future__ import annotations

import traceback

import pytest

from spark_reports.source.bare_errors import bare
from spark_reports.source.findings import DataLoss, Ledger
from spark_reports.source.options import OptionError


@bare("plan", "read")
class Reader:
    def plan(self, fails):
        try:
            {}["key"]
        except KeyError:
            raise fails  # noqa: B904

    def read(self):
        yield 1
        Ledger(fails=True).add("gap", 1, 2, "A file is gone")


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_sentence_leaves_with_neither_cause_nor_the_way_that_it_took():
    with pytest.raises(OptionError) as caught:
        Reader().plan(OptionError("A sentence."))
    text = told(caught.value)
    assert text.endswith("OptionError: A sentence.\n")
    assert "KeyError" not in text
    assert "raise fails" not in text


def test_one_that_comes_while_rows_are_read_leaves_so_too():
    rows = Reader().read()
    assert next(rows) == 1
    with pytest.raises(DataLoss, match="A file is gone") as caught:
        next(rows)
    assert "findings.py" not in told(caught.value)


def test_an_error_of_the_system_that_names_a_path_leaves_so_too():
    with pytest.raises(PermissionError) as caught:
        Reader().plan(PermissionError(13, "Permission denied", "/store/commitlog"))
    assert told(caught.value).endswith("PermissionError: [Errno 13] Permission denied: '/store/commitlog'\n")
    assert "raise fails" not in told(caught.value)


@pytest.mark.parametrize("fault", [TypeError("a fault"), TimeoutError("timed out"), OSError(5, "Input/output error")])
def test_a_fault_of_the_program_keeps_its_traceback(fault):
    with pytest.raises(type(fault)) as caught:
        Reader().plan(fault)
    assert "KeyError" in told(caught.value)
    assert "raise fails" in told(caught.value)
