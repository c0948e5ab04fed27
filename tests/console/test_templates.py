"""Templates are HTML that a person edits: short lines, and nothing that the content security policy forbids."""

import html
import re
from datetime import timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.http import QueryDict
from django.template import Context, Template
from django.template.loader import render_to_string
from django.utils.timezone import override

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
    ("text", "shown"),
    [
        ("{{ at|clock }}", "05:30:00"),
        ("{{ at|clock:'7d' }}", "01-01 05:30"),
        ("{{ at|as_hour }}", '<time datetime="1970-01-01T00:00Z">01-01<br>05:30</time>'),
        ("{{ at|since }}", 'title="1970-01-01 05:30:00 IST"'),
        ("{{ at|as_time }}", "1970-01-01 05:30:00"),
    ],
)
def test_times_are_in_the_readers_zone_on_axes_columns_and_tooltips_too(text, shown):
    with override(timezone(timedelta(hours=5, minutes=30), "IST")):
        assert shown in Template("{% load pages %}" + text).render(Context({"at": 0}))


def test_no_script_formats_times_in_a_zone_of_its_own():
    own_zone = re.compile(r"toISOString\(\)\.slice|toLocale\w*String|\.get\w*Hours")
    scripts = (ROOT.parent / "static").glob("*.js")
    assert not [one.name for one in scripts if own_zone.search(one.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("template", "context", "one", "many"),
    [
        ("setup/_message_count.html", lambda n: {"count": n}, "message has arrived", "messages have arrived"),
        (
            "groups/_behind.html",
            lambda n: {"row": SimpleNamespace(lag=n, lag_why=None, lag_ms=None)},
            "1 message behind",
            "2 messages behind",
        ),
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


def rendered(text: str, **context: object) -> str:
    return Template(text).render(Context(context))


def cells(text: str) -> list[tuple[str, str]]:
    """Return (label, content) of each cell."""
    found = re.findall(r"<td([^>]*)>(.*?)</td>", text, re.DOTALL)
    return [(html.unescape("".join(re.findall(r'data-label="([^"]*)"', css))), text.strip()) for css, text in found]


def test_a_table_names_the_column_in_each_cell_so_that_a_row_can_be_a_card():
    text = rendered(
        '{% table "dense" scrolls %}{% th _("Name") num _("A \\"b\\" & c") hidden _("Act") _("Size") %}'
        '{% rows %}{% for one in two %}<tr>\n<td class="id">{{ one }}</td><td class="num">1</td><td>x</td>'
        '<td data-label="own">2</td></tr>{% endfor %}<tr><td colspan="4">none</td></tr>{% endtable %}',
        two=['<td title="a">', "b"],
    )
    row = [('A "b" & c', "1"), ("", "x"), ("own", "2")]
    assert cells(text) == [("", "&lt;td title=&quot;a&quot;&gt;"), *row, ("", "b"), *row, ("", "none")]
    assert '<div class="table" tabindex="0"><table class="dense cards flow titled">' in text
    assert text.count("<th") - text.count("<thead") == 4


@pytest.mark.parametrize(("words", "css"), [('"log"', "log"), ('"hours" scrolls', "hours"), ('"cards"', "cards")])
def test_tables_that_are_no_cards_or_place_their_cells_themselves_stay_as_they_are(words, css):
    text = rendered(f'{{% table {words} %}}{{% th _("A") _("B") %}}{{% rows %}}<tr><td>1<td>2</tr>{{% endtable %}}')
    assert f'<table class="{css}">' in text
    assert "data-label" not in text


@pytest.mark.parametrize(("pairs", "expected"), [([("a", "b")], [("", "a"), ("B", "b")]), ([], [("", "none")])])
def test_a_table_repeats_its_row_and_says_why_there_is_none_over_its_whole_width(pairs, expected):
    text = rendered(
        '{% table %}{% th _("A") _("B") %}{% rows one, other in pairs %}<tr><td>{{ one }}</td><td>{{ other }}</td></tr>'
        "{% empty %}none{% endtable %}", pairs=pairs,
    )  # fmt: skip
    assert cells(text) == expected
    assert ('colspan="2"' in text) == (not pairs)


def test_headers_that_sort_stay_above_the_cards():
    request = SimpleNamespace(GET=QueryDict("q=x"))
    text = rendered(
        '{% table %}{% sort_header "name" _("Name") %}{% sort_header "state" _("State") %}'
        "{% rows %}<tr><td>a</td><td>b</td></tr>{% endtable %}", request=request, sort="name",
    )  # fmt: skip
    assert 'class="cards flow"' in text
    assert cells(text) == [("", "a"), ("State", "b")]
