"""docs/facts.md describes every table and column."""

from __future__ import annotations

import re
from pathlib import Path

from spark_reports.facts.tables import FIRST_BUCKET, LATENCY_BOUNDS_MS, TABLES, WIDE_BOUNDS_MS
from spark_reports.reports.days import FINDING_KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "facts.md").read_text(encoding="utf-8")


def test_each_table_with_its_columns() -> None:
    for table in TABLES:
        (row,) = re.findall(rf"^\| `{table.name}` \|.*$", PAGE, re.MULTILINE)
        assert [name for name, _ in table.columns if f"`{name}`" not in row] == []
        texts = {name for name, kind in table.columns if kind == "string"}
        assert set(re.findall(r"`(\w+)` \(text", row)) == texts


def test_the_bounds_and_the_kinds() -> None:
    assert ", ".join(map(str, LATENCY_BOUNDS_MS)) in PAGE.replace("\n", " ")
    assert f"; {FIRST_BUCKET + len(LATENCY_BOUNDS_MS)} is what" in PAGE.replace("\n", " ")
    assert f"index among {', '.join(map(str, WIDE_BOUNDS_MS))}; {len(WIDE_BOUNDS_MS)} is what" in PAGE.replace(
        "\n", " "
    )
    assert [kind for kind in FINDING_KINDS if f"| `{kind}` |" not in PAGE] == []
