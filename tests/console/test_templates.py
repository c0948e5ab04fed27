"""Templates are HTML that a person edits: short lines, and nothing that the content security policy forbids."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "templates"
TEMPLATES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.html"))
LONGEST_LINE = 160


def test_there_are_templates():
    assert len(TEMPLATES) > 50


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_line_is_too_long_to_edit(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert not [number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_script_or_style_stands_in_the_page_itself(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.findall(r"<style|<script(?![^>]* src=)|\sstyle=|\son[a-z]+=\"", text)
