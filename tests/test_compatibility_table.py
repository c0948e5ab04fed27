"""The table of features and clients in docs/compatibility.md names tests that are there, for the clients it says."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.server import ROOT

CLIENTS = ("java-4.9.8", "java-5.3.3", "go", "cpp", "python")
HEAD = "| feature | Java 4.9.8 | Java 5.3.3 | Go | C++ | Python | tests |"


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Return (feature, the cell of each client, the tests as file::function) for each row of the table."""
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    lines = text.partition(HEAD)[2].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        feature, *cells, tests = (cell.strip() for cell in line.strip("|").split("|"))
        found.append((feature, cells, re.findall(r"`(\w+::\w+)`", tests)))
    return found


@pytest.fixture(scope="module")
def collected() -> dict[str, set[str]]:
    """The clients that each test of tests/clients runs with."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:schemathesis", "tests/clients"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]
    found: dict[str, set[str]] = {}
    for file, test, how in re.findall(r"^tests/clients/(\w+)\.py::(\w+)(?:\[(.*)\])?$", said.stdout, re.MULTILINE):
        clients = found.setdefault(f"{file}::{test}", set())
        how = f"java-{how}" if file == "test_mqadmin" else how
        clients |= {client for client in CLIENTS if re.search(rf"(^|-){re.escape(client)}($|-)", how)}
        if file == "test_cpp":
            clients.add("cpp")
        if file in ("test_python_client", "test_python_member"):  # beside each of the others
            clients.add("python")
    # One test sends with every client in turn.
    found["test_delays::test_a_crash_loses_no_delayed_message_of_any_client"] |= set(CLIENTS)
    found["test_timers::test_a_crash_loses_no_message_with_a_time_and_brings_none_back"] |= set(CLIENTS)
    return found


def test_there_is_a_table() -> None:
    assert len(rows()) > 20
    for feature, cells, tests in rows():
        assert len(cells) == len(CLIENTS), feature
        assert set(cells) <= {"yes", "–", "not tried"}, feature
        assert tests, f"{feature}: no test"


@pytest.mark.parametrize(("feature", "cells", "tests"), rows())
def test_each_yes_is_a_test_with_that_client(
    collected: dict[str, set[str]], feature: str, cells: list[str], tests: list[str]
) -> None:
    unknown = [test for test in tests if test not in collected]
    assert not unknown, f"{feature}: no such tests"
    proven = set().union(*(collected[test] for test in tests))
    said = {client for client, cell in zip(CLIENTS, cells, strict=True) if cell == "yes"}
    assert said <= proven, f"{feature}: nothing proves {sorted(said - proven)}"
