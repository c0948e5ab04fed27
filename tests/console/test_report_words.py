"""Every key of a report has its words."""

from __future__ import annotations

import re
from datetime import UTC

import pytest

from appliance.console.reports import sentences, shown, words
from spark_reports.reports import keys


def test_a_key_that_a_newer_run_has_is_readable():
    assert words.said(words.TILES, "slowest_of-all") == "slowest of all"
    assert sentences.note("some_thing", {"topic": "x"}) == "some thing: topic: x"


def test_a_name_is_only_its_own_pattern():
    assert words.as_pattern("a*[b]") == "a[*][[]b]"


@pytest.mark.parametrize("at_ms", [-(1 << 60), 1 << 60, -62_135_596_800_001, 253_402_300_800_000])
def test_a_moment_that_no_calendar_has_is_its_number(at_ms):
    """A store of another program may hold any store time; one such row is no reason to refuse the page."""
    assert re.sub(r"\D", "", str(shown.cell(at_ms, "time_ms", UTC, "2026-11-20"))) == str(abs(at_ms))
    assert "2026-11-20T00:00:00Z" in shown.cell(1_795_132_800_000, "time_ms", UTC, "2026-11-20")


def test_a_week_that_was_not_counted_is_a_dash():
    table = {
        "key": "topics", "columns": [["topic", "topic"], ["week_before", "messages"], ["change", "permille"]],
        "rows": [["orders", None, None]], "acts": [], "left_out": 0,
    }  # fmt: skip
    found = {"report": "week", "day": "2026-11-20", "zone": "UTC", "t0_ms": 0, "tiles": [], "plots": [], "notes": []}
    (section,) = shown.document({**found, "tables": [table]}, lambda view: False).sections
    assert [cell.text for cell in section.table.rows[0].cells][1:] == ["—", "—"]


@pytest.mark.parametrize(
    ("topic", "said"),
    [("orders", "orders"), ("SCHEDULE_TOPIC_XXXX", "delayed messages"), ("%RETRY%fraud", "retries of fraud"),
     ("%RETRY%fraud+payments", "retries of fraud in payments"), ("%DLQ%fraud", "dead letters of fraud"),
     ("%RETRY%", "%RETRY%"), ("%DLQ%", "%DLQ%"), ("%RETRY%%DLQ%s|%(x)d", "retries of %DLQ%s|%(x)d")],
)  # fmt: skip
def test_a_topic_of_the_brokers_own_is_shown_by_what_it_holds(topic, said):
    """In a table, in a plot and its legend, and in a sentence; its name is the link's title."""
    rows = [["2026-11-20", topic, 7]]
    table = {"key": "topic_days", "columns": [["day", "day"], ["topic", "topic"], ["stored", "bytes"]], "rows": rows}
    plot = {"key": "stored", "table": "topic_days", "legend": [["c0", "topic", topic]]}
    note = {"key": "fewer_messages", "values": [["count", 1], ["topic", topic], ["before", 9]]}
    found = {"report": "capacity", "day": "2026-11-20", "zone": "UTC", "t0_ms": 0, "tiles": [], "figures": {}}
    page = shown.document({**found, "tables": [table], "plots": [plot], "notes": [note]}, lambda view: False)
    (section,) = page.sections
    link = section.table.rows[0].cells[1].text
    assert f">{said}</a>" in link
    assert (f'title="{topic}"' in link) == (topic != said)
    (drawn,) = section.plots
    assert drawn.legend == (("c0", said),)
    assert f"{said} · 2026-11-20" in drawn.drawn
    assert page.first == (f"Topic {said} got 1 message, and 9 the day before.",)


def _without_words(table: words.Words, wanted: set[str], report: str = "") -> set[str]:
    return {key for key in wanted if key not in table and f"{report}.{key}" not in table}


def test_every_key_of_a_report_has_its_words():
    assert set(words.REPORTS) == set(keys.TILES)
    for report, tiles in keys.TILES.items():
        assert not _without_words(words.TILES, set(tiles), report)
        assert not _without_words(words.PLOTS, set(keys.PLOTS[report]), report)
        assert not _without_words(words.TABLES, set(keys.TABLES[report]), report)
        columns = {key for table in keys.TABLES[report].values() for key in table} - {"unit"}
        assert not _without_words(words.COLUMNS, columns, report)
    assert not _without_words(words.VALUES, {*keys.WORDS, *keys.LEGEND_WORDS})
    assert set(keys.WHERE) <= {"group", "topic", "host", "key", "time_ms", *words.PLACES}
    assert set(keys.ACTS) == {*words.ACTS, *words.LINKED}


@pytest.mark.parametrize("key", keys.NOTES)
def test_every_note_is_a_sentence_of_the_values_that_it_has(key):
    assert set(re.findall(r"%\((\w+)\)s", str(sentences.NOTES[key]))) <= set(keys.NOTES[key])
    assert sentences.note(key, dict.fromkeys(keys.NOTES[key], "7")).endswith(".")


def test_no_words_are_left_of_keys_that_are_gone():
    columns = {key for tables in keys.TABLES.values() for table in tables.values() for key in table}
    assert {key.rpartition(".")[2] for key in words.COLUMNS} <= columns
    assert {key.rpartition(".")[2] for key in words.VALUES} <= {*keys.WORDS, *keys.LEGEND_WORDS}
    assert set(sentences.NOTES) == set(keys.NOTES)
    assert set(keys.NOTES) >= keys.EXPLAINING
