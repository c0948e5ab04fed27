"""Templates are HTML that a person edits: short lines, and nothing that the content security policy forbids."""

import re
from pathlib import Path

import pytest
from django.template.loader import render_to_string

from appliance.engine.window.sentences import say

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


@pytest.mark.parametrize(
    ("template", "context", "one", "many"),
    [
        ("setup/_message_count.html", lambda n: {"count": n}, "message has arrived", "messages have arrived"),
        ("groups/_behind.html", lambda n: {"row": {"lag": n, "lag_ms": None}}, "1 message behind", "2 messages behind"),
        (
            "message/_why.html",
            lambda n: {"one": {"state": "waiting", "ahead": n, "why": say("not_reached", count=n)}},
            "1 message ahead of it",
            "2 messages ahead of it",
        ),
    ],
)
def test_one_message_is_not_called_messages(template, context, one, many):
    assert one in render_to_string(template, context(1))
    assert many in render_to_string(template, context(2))
