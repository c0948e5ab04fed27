"""docs/python-beside-java.md names only tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(
    r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "python-beside-java.md").read_text(encoding="utf-8")
)


def test_the_page_is_read():
    assert len(NAMED) > 60
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_is_there(path, name):
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
