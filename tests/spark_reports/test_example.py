"""examples/spark_read.py, started as docs/spark.md says, over the store of a running broker with messages of official
clients; and the packages that an executor without RocketBox needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.checkout import Environment
from tests.support.server import ROOT
from tests.support.spark import environment, quick


def tables(said: str) -> dict[str, list[list[str]]]:
    """Return the tables that `show()` drew: title -> rows of cells."""
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in said.splitlines():
        if line.startswith("|"):
            found.setdefault(title, []).append([cell.strip() for cell in line.strip("|").split("|")])
        elif line and not line.startswith("+"):
            title = line
    return found


def example(place: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the example, with nothing from this process but a place for temporary files."""
    names = ("PATH", "HOME", "LANG", "JAVA_HOME")
    variables = {name: os.environ[name] for name in names if name in os.environ} | {"TMPDIR": str(place)} | more
    command = [sys.executable, "examples/spark_read.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300)


@pytest.mark.nightly
def test_it_tells_of_what_official_clients_wrote(server, tmp_path):
    done = example(tmp_path, server.data_dir, "--master", "local[1]", **quick(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "SPARK_LOCAL_IP" not in done.stderr, "Spark advises it where it listens on the machine's address"
    (topics_title, topics), (keys_title, keys) = tables(done.stdout).items()
    assert topics_title == "Messages by topic, and sizes of their bodies"
    assert [row[:5] for row in topics] == [
        ["topic", "messages", "median_bytes", "p95_bytes", "largest_bytes"],
        ["Orders", "100", "10", "1000", "1000"],
        ["Refunds", "7", "50", "50", "50"],
    ]
    assert re.fullmatch(r"Keys of the last hour, from \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z on", keys_title)
    assert [row[:3] for row in keys] == [
        ["topic", "key", "messages"],
        *(["Orders", "all", "100"], ["Orders", "customer-0", "34"]),
        *(["Orders", "customer-1", "33"], ["Orders", "customer-2", "33"]),
        *(["Refunds", "all", "7"], ["Refunds", "customer-0", "3"]),
        *(["Refunds", "customer-1", "2"], ["Refunds", "customer-2", "2"]),
    ]


def test_it_says_what_is_missing_in_a_sentence(server, tmp_path):
    """-S: without site-packages, as on a machine where reports are not set up."""
    done = subprocess.run(
        [sys.executable, "-S", "examples/spark_read.py", server.data_dir],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("Spark's Python packages are not installed: pyspark, pandas, pyarrow, numpy. -> ")
    assert "Traceback" not in done.stderr


JOB = """
import sys
from pyspark.sql import SparkSession
from spark_reports import RocketBoxDataSource
import spark_reports
assert ".zip" in spark_reports.__file__, spark_reports.__file__
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(RocketBoxDataSource)
reader = spark.read.format("rocketbox").option("store", sys.argv[1]).option("columns", "body")
rows = reader.load().groupBy("topic").agg({"size": "sum", "body": "count"}).orderBy("topic").collect()
print("rows:", [(row.topic, row["count(body)"]) for row in rows])
spark.stop()
"""


def documented(kind: str, words: str) -> str:
    """Return the command of docs/spark.md that contains these words."""
    text = (ROOT / "docs" / "spark.md").read_text().replace("\\\n", " ")
    (line,) = {line.strip() for line in text.splitlines() if words in line and line.startswith(kind)}
    return line


@pytest.mark.nightly
def test_executors_need_the_zip_and_the_packages_that_the_page_names(server, tmp_path):
    """With a Python that has nothing else: neither RocketBox nor any of the console's packages."""
    text = (ROOT / "docs" / "spark.md").read_text()
    install = documented("pip install", "pyspark")
    venv = Environment(tmp_path / "venv")
    venv.give([Requirement(word.strip("'")) for word in install.split()[2:]])
    assert "zlib-ng" in install
    assert not list(venv.packages.glob("django*"))
    # Make the zip as `git archive` would, since the tests may run outside a repository.
    assert "git archive -o rocketbox.zip HEAD appliance spark_reports" in text
    with zipfile.ZipFile(tmp_path / "rocketbox.zip", "w") as packed:
        for package in ("appliance", "spark_reports"):
            for path in sorted((ROOT / package).rglob("*.py")):
                packed.write(path, path.relative_to(ROOT))
    (tmp_path / "job.py").write_text(JOB)
    submit = documented("spark-submit", "--py-files rocketbox.zip job.py")
    assert submit.split()[-2:] == ["job.py", "/var/lib/rocketbox"]
    words = ["--master", "local[1]", "--py-files", "rocketbox.zip", "job.py", str(server.data_dir)]
    python = {"PYSPARK_PYTHON": str(venv.python), "PYSPARK_DRIVER_PYTHON": str(venv.python)}
    script = next(venv.packages.glob("pyspark")) / "bin" / "spark-submit"
    variables = environment(tmp_path) | {"PATH": os.environ["PATH"], **python}
    variables.pop("PYTHONPATH")
    done = subprocess.run([script, *words], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows: [('Orders', 100), ('Refunds', 7)]" in done.stdout
