"""The session that the tests of this directory share: its Python, its directories, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.spark import ROOT
from tests.support.waiting import wait_for


def test_workers_are_this_python_and_find_the_package(spark):
    def look(_):
        import sys

        import pyarrow

        import spark_reports

        return [(sys.executable, spark_reports.__file__, pyarrow.__version__)]

    ((python, package, _),) = spark.sparkContext.parallelize([0], 1).flatMap(look).collect()
    assert python == sys.executable
    assert Path(package).parents[1] == ROOT


def test_it_is_small_speaks_utc_and_listens_on_the_loopback_only(spark):
    assert spark.sparkContext.defaultParallelism == 2
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sql("SELECT string(timestamp_millis(0)) AS at").first().at == "1970-01-01 00:00:00"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    java = spark.sparkContext._gateway.proc.pid
    own = ("0100007F:", "0" * 16 + "FFFF00000100007F:")
    assert listening(java)
    assert not [place for place in listening(java) if not place.startswith(own)]


def test_what_it_changed_in_the_environment_is_taken_back(spark):
    assert "PYSPARK_PYTHON" not in os.environ or os.environ["PYSPARK_PYTHON"] != sys.executable
    assert "SPARK_LOCAL_DIRS" not in os.environ


PROGRAM = """
import os, sys, time
from pathlib import Path
from tests.support.spark import environment, settings
place = Path(sys.argv[1])
os.environ.update(environment(place))
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in settings(place).items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
print(session.sparkContext._gateway.proc.pid, flush=True)
time.sleep(120)
"""


def test_java_ends_with_the_process_that_started_it_even_when_that_is_killed(tmp_path):
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None
    java = int(run.stdout.readline())
    assert is_alive(java)
    run.send_signal(signal.SIGKILL)
    run.wait()
    begin = time.monotonic()
    wait_for(lambda: not is_alive(java), "Java's end")
    print(f"Java ended {time.monotonic() - begin:.1f} s after its Python")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def listening(pid: int) -> list[str]:
    """Return the local addresses, in hexadecimal, on which a process listens."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                found.append(words[1])
    return found
