"""README and docs/: each link between them leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def headings(page: Path) -> set[str]:
    """Return the anchors of a page: its own, and those that GitHub makes of headings."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    found = re.findall(r"(?m)^#+ (.+)$", text)
    named = re.findall(r'<a name="([^"]+)">', text)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in found} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), target
        assert not anchor or anchor in headings(aim), target


def test_the_first_page_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_reference_of_the_client_is_that_of_its_docstrings():
    from client_wheel import reference

    assert reference.PAGE.read_text() == reference.page(), "python -m client_wheel.reference"
