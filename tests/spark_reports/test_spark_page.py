"""docs/spark.md: its tables agree with the code, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_reports import machine
from spark_reports.source import schema
from spark_reports.source.options import NAMES, parse
from tests.support.server import ROOT

PAGE = ROOT / "docs" / "spark.md"
TEXT = PAGE.read_text()


def table(section: str) -> list[list[str]]:
    """Return the rows of the first table of a section, without its head."""
    lines = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0].splitlines()
    rows = [re.split(r" *\|(?= |$) *", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_option_has_a_row_and_every_row_is_an_option():
    names = [code(row[0])[0] for row in table("Options")]
    assert sorted(names) == sorted(NAMES)
    assert len(set(names)) == len(names)


def test_the_defaults_are_those_of_the_code():
    plain = {"store": "/data"}
    shown = {code(row[0])[0]: code(row[1])[0] for row in table("Options") if code(row[1])}
    for name, default in shown.items():
        assert parse({**plain, name: default}) == parse(plain), name
    # Every option that has a default is shown with it.
    for name, other in {"columns": "body", "includeSystem": "true", "failOnDataLoss": "false"}.items():
        assert parse({**plain, name: other}) != parse(plain)
        assert name in shown


def test_every_column_is_told_with_its_type():
    told = [(code(name)[0], kind.replace("&lt;", "<").replace("&gt;", ">")) for name, kind, _ in table("Columns")]
    assert told == list(schema.BODY)


def test_all_that_may_be_missing_is_told():
    told = [row[0] for row in table("What is missing")]
    names = "version names name wanted home path reason place free needed uid".split()
    assert told == [what % {name: name.upper() for name in names} for what in machine.WHATS.values()]


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        if not target.startswith("http"):
            assert (PAGE.parent / target).resolve().exists(), target


def programs() -> list[str]:
    return re.findall(r"(?ms)^```python\n(.*?)^```", TEXT)


@pytest.fixture
def run(spark, server, tmp_path):
    """`run(text)`: run a program of the page over a real store, in the session that tests share."""

    def execute(text: str, **known: object) -> dict[str, object]:
        text = text.replace('"data"', repr(str(server.data_dir))).replace("/lake/", f"{tmp_path}/")
        text = text.replace("os.environ.update(machine.environment())", "machine.environment()")
        text = re.sub(r"(?m)^os\.environ\[.*$", "", text)
        assert str(server.data_dir) in text or known
        names = dict(known)
        exec(compile(text, str(PAGE), "exec"), names)
        return names

    return execute


def test_the_first_program_counts_messages_by_tag(run, capsys):
    first, *_ = programs()
    names = run(first)
    assert "|paid|  100|" in capsys.readouterr().out.replace(" |", "|").replace("| paid|", "|paid|")
    assert names["messages"].count() == 100


def test_the_stream_reads_what_there_is_and_goes_on_where_it_was(run, spark, tmp_path):
    (text,) = (one for one in programs() if "readStream" in one)
    for _ in range(2):
        run(text, spark=spark)
        assert spark.read.parquet(str(tmp_path / "orders")).count() == 100


def test_batches_go_on_where_the_last_one_ended(run, spark, tmp_path):
    (text,) = (one for one in programs() if "latest" in one)
    (tmp_path / "orders").mkdir()
    for _ in range(2):
        run(text, spark=spark)
        assert spark.read.parquet(str(tmp_path / "orders")).count() == 100


def test_commands_name_files_that_are_there():
    for name in re.findall(r"(examples/\w+\.py|script/\w+)", TEXT):
        assert Path(ROOT / name).exists(), name
