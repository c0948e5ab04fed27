"""docs/comparison.md names only pages and tests that exist."""

import re
from pathlib import Path

import pytest

from appliance.api.api import operations
from tests.console.test_access import PAGES

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/comparison.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
][1:]
NAMES = [row[0] for row in ROWS]


def shape(address: str) -> str:
    """Return an address without the names and types of its parameters."""
    return re.sub(r"<[^>]*>", "<>", address.strip("`/"))


PATHS = {shape(route) for _, route in PAGES}
ROUTES = {shape(one.route.removeprefix("api/v1/")) for one in operations()}


def test_the_table_is_read():
    assert len(ROWS) > 35
    assert all(len(row) == 6 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_each_line_holds(row):
    _, _, here, page, api, test = row
    if here.startswith("**no**"):
        assert (page, api, test) == ("", "", "")
        return
    assert (ROOT / test.strip("`")).is_file()
    assert not page or shape(page) in PATHS
    assert not api or shape(api) in ROUTES
