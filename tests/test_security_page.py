"""docs/security.md and docs/bounds.md name constants and tests that exist in the files that they name."""

import re
from pathlib import Path

import pytest

from appliance.engine.protocol.request_kinds import ROUTE_CODES

ROOT = Path(__file__).parent.parent
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("security.md", "bounds.md"))
CONSTANTS = re.findall(r"`(_?[A-Z][A-Z0-9_]+)`, ((?:appliance|spark_reports)/[a-z_/]+\.py)", PAGE)
TESTS = re.findall(r"(tests/[a-z_/]+\.py)(?:::(test_\w+))?", PAGE)


def test_the_page_names_each_request_that_nobody_has_to_sign():
    told = re.search(r"read routes at the name server \(([\d, ]+)\)", PAGE)
    assert told is not None
    assert {int(code) for code in told[1].split(",")} == ROUTE_CODES


def test_the_page_is_read():
    assert len(CONSTANTS) > 60
    assert len(TESTS) > 70


@pytest.mark.parametrize(("name", "file"), sorted(set(CONSTANTS)), ids=lambda value: value)
def test_a_bound_is_where_the_page_says(name, file):
    assert re.search(rf"^[A-Z_, ]*\b{name}\b.*=", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {name}"


@pytest.mark.parametrize(("file", "name"), sorted(set(TESTS)), ids=lambda value: value or "whole")
def test_a_bound_has_the_test_that_the_page_names(file, name):
    path = ROOT / file
    assert path.is_file(), f"there is no {file}"
    assert not name or f"def {name}(" in path.read_text(), f"{file} has no {name}"


def test_every_row_of_a_table_of_bounds_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and line.count("|") == 5]
    bounds = [row for row in rows if not row.startswith(("| what |", "|---"))]
    assert len(bounds) > 60
    for row in bounds:
        assert "tests/" in row.split("|")[-2], row
