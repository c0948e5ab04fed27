"""The suite's own runner (tests/suite): every test belongs to a part, and a test that fails beside others is red."""

from __future__ import annotations

import importlib

import pytest

from tests.suite import parts
from tests.suite.durations import directory_of, table
from tests.suite.parts import ROOT, Part

suite = importlib.import_module("tests.suite.__main__")

#: A test that fails only when it runs for the first time.
ONCE = """
from pathlib import Path

def test_it():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_other(): ...
"""
#: The same in a class, with a parameter, and in what a fixture does before and after the test.
IN_A_CLASS = ONCE.replace(
    "def test_it():", "class TestIt:\n  @pytest.mark.parametrize('x', ['a.b::c'])\n  def test_it(self, x):"
)
IN_SET_UP = ONCE.replace("def test_it():", "def test_it(made): ...\n\n@pytest.fixture\ndef made():")
IN_TEARDOWN = IN_SET_UP.replace("def made():", "def made():\n    yield")
ALWAYS = "def test_it():\n    assert False\n"


def files_of(part: Part) -> set[str]:
    """Return the test files that pytest finds for a part."""
    out = {argument.removeprefix("--ignore=") for argument in part.arguments if argument.startswith("--ignore=")}
    found = set()
    for argument in part.arguments:
        if argument.startswith("--"):
            continue
        path = ROOT / argument
        for file in [path] if path.is_file() else path.rglob("test_*.py"):
            name = str(file.relative_to(ROOT))
            if not any(name.startswith(f"{one}/") for one in out):
                found.add(name)
    return found


def test_every_test_file_is_in_one_part_of_the_night():
    seen: dict[str, str] = {}
    for part in parts.parts_of(nightly=True, compiled=False):
        for name in files_of(part):
            assert name not in seen, f"{name} is in {seen[name]} and in {part.name}"
            seen[name] = part.name
    everything = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert everything == set(seen)


def test_changed_packaging_brings_its_tests_back(monkeypatch):
    monkeypatch.setattr(parts, "recorded_digest", parts.packaging_digest)
    assert "packages" not in {part.name for part in parts.parts_of(nightly=False, compiled=True)}
    monkeypatch.setattr(parts, "recorded_digest", lambda: "")
    assert "packages" in {part.name for part in parts.parts_of(nightly=False, compiled=True)}


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(text of a test file, text of foreign.txt) -> (exit status, printed text)."""

    def go(text: str, foreign: str = "") -> tuple[int, str]:
        (tmp_path / "test_made.py").write_text(text)
        (tmp_path / "foreign.txt").write_text(foreign)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nightly: later\n")
        monkeypatch.setattr(parts, "parts_of", lambda nightly, compiled: [Part("made", ("test_made.py",), 1.0)])
        monkeypatch.setattr(parts, "recorded_digest", parts.packaging_digest)
        monkeypatch.setattr(suite, "ROOT", tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take a second to import
        monkeypatch.setattr(suite, "KEPT", tmp_path / "kept")
        monkeypatch.setattr(suite, "FOREIGN", tmp_path / "foreign.txt")
        monkeypatch.delenv("CI", raising=False)
        status = suite.main([])
        return status, capfd.readouterr().out

    return go


def test_a_green_run_says_where_its_time_went(run):
    status, said = run("def test_it(): ...\n")
    assert status == 0
    assert "slowest tests" in said
    assert "from start to end" in said
    assert said.endswith("1 passed, 0 failed\n")


def test_a_part_that_does_not_end_is_ended_and_named(run, monkeypatch):
    monkeypatch.setattr(suite, "MOST_S", 1.0)
    monkeypatch.setattr(suite, "MOST_LAST_S", 10.0)  # in the background a shell has its processes ignore SIGINT
    status, said = run("import threading\n\ndef test_it():\n    threading.Event().wait()\n")
    assert status == 1
    assert "made: (the part itself: pytest ended with " in said


def test_what_fails_beside_others_and_passes_alone_is_red(run):
    status, said = run(ONCE)
    assert status == 1
    assert "made: fails beside others: test_made.py::test_it\n    > " in said
    assert "\n    E  " in said.partition("RED:")[2], "why it failed beside others is kept nowhere else"
    assert said.endswith("1 passed, 1 failed\n")


@pytest.mark.parametrize(
    ("text", "name"),
    [(IN_A_CLASS, "TestIt::test_it[a.b::c]"), (IN_SET_UP, "test_it"), (IN_TEARDOWN, "test_it")],
    ids=["class", "set-up", "teardown"],
)
def test_what_failed_beside_others_says_why_wherever_it_is(run, text, name):
    status, said = run("import pytest\n" + text)
    assert status == 1
    red = said.partition("RED:")[2]
    assert f"made: fails beside others: test_made.py::{name}\n    > " in red
    assert "\n    E  " in red


def test_what_fails_alone_too_is_red(run):
    status, said = run(ALWAYS)
    assert status == 1
    assert "made: fails alone, too: test_made.py::test_it\n" in said


def test_a_run_without_tests_is_red(run):
    status, said = run("")
    assert status == 1
    assert "pytest ended with 5" in said


FOREIGN = "test_made.py::test_it | its library aborts when it waits for 30 s | 2026-01-01"


def test_the_program_of_another_may_die_once_when_its_line_says_so(run):
    status, said = run(ONCE, FOREIGN)
    assert status == 0
    assert f"{FOREIGN}  <- used" in said


def test_the_program_of_another_that_dies_alone_is_red(run):
    status, said = run(ALWAYS, FOREIGN)
    assert status == 1
    assert f"{FOREIGN}  <- used" not in said


@pytest.mark.parametrize(("text", "status"), [("its library aborted", 0), ("the broker lost it", 1)])
def test_a_line_for_a_file_excuses_what_says_the_same(run, text, status):
    once = ONCE.replace("assert", f"print({text!r}); assert", 1)
    line = "test_made.py | its library aborted | 2026-01-01"
    found, said = run(once, line)
    assert found == status
    assert (f"{line}  <- used" in said) is not bool(status)


@pytest.mark.parametrize("text", ["name\n", "name | |\n", "name | why\n", "\n".join(["n | w | d"] * 11)])
def test_lines_without_evidence_or_too_many_are_refused(text):
    with pytest.raises(ValueError, match=r"foreign\.txt"):
        suite.read_foreign(text)


def test_the_list_of_programs_of_others_is_well_formed():
    assert len(suite.read_foreign(suite.FOREIGN.read_text())) <= 10


def test_times_are_added_up_by_directory():
    assert directory_of("tests/engine/store/log/test_roll.py::test_it") == "tests/engine/store"
    assert directory_of("tests/test_threads.py::test_it") == "tests/*.py"
    one = {"seconds": 1.5, "processor": 0.5, "processes": 2}
    lines = table({"made": {"seconds": 4.0, "tests": {"tests/a/test_b.py::c": one, "tests/a/test_b.py::d": one}}})
    assert lines[1].split() == ["made", "tests/a", "3", "1", "2", "4"]


def test_what_a_part_names_is_there():
    for nightly in (True, False):
        for part in parts.parts_of(nightly, compiled=True):
            for argument in part.arguments:
                assert (ROOT / argument.removeprefix("--ignore=").split("::")[0]).exists(), f"{part.name}: {argument}"
