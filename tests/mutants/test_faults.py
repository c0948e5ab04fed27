"""The list of faults is true: each can be planted, and what has to find it is there."""

import ast
from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS
from tests.mutants.planting import HANGS, SURVIVES, Verdict, chosen, is_left, planted, told

ROOT = Path(__file__).parents[2]
#: Tests that take long or other people's programs: faults are looked for without them.
HEAVY = ("tests/clients", "tests/browser", "tests/rig", "tests/exchange", "tests/spark_reports", "tests/bench")


def test_each_fault_can_be_planted():
    """What it replaces is in its file once: whoever changes that line changes the row, too."""
    wrong = []
    for fault in FAULTS:
        try:
            assert planted(fault, (ROOT / fault.file).read_text()) != (ROOT / fault.file).read_text()
        except (OSError, ValueError) as error:
            wrong.append(f"{fault.name}: {error}")
    assert not wrong


def test_a_planted_fault_can_be_imported():
    """A fault that Python refuses to read would be found by any test."""
    for fault in FAULTS:
        if fault.file.endswith(".py"):
            ast.parse(planted(fault, (ROOT / fault.file).read_text()))


def test_the_tests_that_have_to_find_a_fault_are_there_and_quick():
    for fault in FAULTS:
        assert fault.tests, fault.name
        for test in fault.tests:
            path, _, name = test.partition("::")
            assert not path.startswith(HEAVY), fault.name
            assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
            assert (ROOT / path).is_file(), test


def test_a_fault_is_called_by_one_name():
    names = [fault.name for fault in FAULTS]
    assert sorted(set(names)) == sorted(names)


def test_what_is_not_there_once_cannot_be_planted():
    fault = FAULTS[0]
    with pytest.raises(ValueError, match="0 times"):
        planted(fault, "another text")
    with pytest.raises(ValueError, match="2 times"):
        planted(fault, fault.before * 2)


def test_faults_are_chosen_by_part_and_by_name():
    part = FAULTS[0].part
    assert [one.part for one in chosen([part])] == [part] * len([one for one in FAULTS if one.part == part])
    assert chosen([FAULTS[0].name]) == [FAULTS[0]]
    assert len(chosen([])) == len(FAULTS)
    with pytest.raises(ValueError, match="no part"):
        chosen(["nothing is called so"])


def test_a_fault_that_hangs_is_found_and_one_that_survives_is_named():
    hangs, survives = Verdict(FAULTS[0], HANGS, "", 1.0), Verdict(FAULTS[1], SURVIVES, "", 1.0)
    assert not is_left(hangs)
    assert is_left(survives)
    text = told([hangs, survives])
    assert f"{SURVIVES}: {FAULTS[1].part}: {FAULTS[1].name}" in text
    assert FAULTS[0].name not in text
