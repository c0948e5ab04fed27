"""Names of topics and groups in addresses, also names that RocketBox itself would reject."""

import re
from pathlib import Path

import pytest
from django.urls import resolve, reverse
from hypothesis import given
from hypothesis import strategies as st

ODD = ["", ".", "..", "a/b", "/", "~", "~1", "~0", "a\\b", "%2F", "a?b", "a#b", "a b", "空格", "a/edit", "~3", "x~4"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    "view",
    ["topic", "topic_edit", "topic_delete", "topic_purge", "topic_schema", "group", "group_edit", "group_delete"],
)
def test_an_odd_name_is_one_segment_and_comes_back(view, name):
    comes_back(view, name)


@given(st.text(max_size=20))
def test_any_name_comes_back(name):
    comes_back("topic", name)


def comes_back(view: str, name: str) -> None:
    from urllib.parse import unquote

    address = reverse(view, args=[name])
    segments = address.strip("/").split("/")
    assert len(segments) == (2 if view in ("topic", "group") else 3)
    assert unquote(segments[1]) not in (".", "..")
    found = resolve(unquote(address))
    assert (found.view_name, found.kwargs) == (view, {"name": name})


def test_the_script_that_links_live_rows_escapes_alike():
    script = (Path(__file__).parents[2] / "static/live.js").read_text()
    line = next(line for line in script.splitlines() if "const segment" in line)
    from appliance.console.pages.converters import _DOTS, _ESCAPES

    assert all(f'"{escaped}"' in line for escaped in [*_DOTS.values(), *(escape for _, escape in _ESCAPES)])
    assert len(re.findall(r"\.replace\(", line)) == len(_ESCAPES)
