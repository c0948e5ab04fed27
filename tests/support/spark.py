"""Starts Spark for tests: small, quiet, on the loopback, below one directory, and stopped at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def environment(place: Path) -> dict[str, str]:
    """Variables for the process that starts Java, and for Python's workers below it."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place),
        "TMPDIR": str(place),
    }


def quick(place: Path) -> dict[str, str]:
    """Return the variable by which a run compiles little: for twenty messages it does not pay, and takes a third of the
    processor time. Spark computes the same without."""
    place = place / "quick"
    place.mkdir(exist_ok=True)
    (place / "spark-defaults.conf").write_text(
        "spark.sql.codegen.wholeStage false\nspark.sql.codegen.factoryMode NO_CODEGEN\n"
    )
    (place / "spark-env.sh").write_text("export SPARK_SUBMIT_OPTS=-XX:TieredStopAtLevel=1\n")
    return {"SPARK_CONF_DIR": str(place)}


def settings(place: Path) -> dict[str, str]:
    """Return settings of a session with one Java process, beside other tests on a machine with 2 CPUs."""
    return {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": (
            f"-Djava.io.tmpdir={place} -Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
            "-XX:MaxMetaspaceSize=384m -XX:ReservedCodeCacheSize=128m"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def end_java(session: SparkSession) -> None:
    """Stop the session, and wait until its Java process is gone. That also goes when this process dies: its standard
    input ends then."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    java: subprocess.Popen[bytes] = gateway.proc
    try:
        session.stop()
        gateway.shutdown()
    finally:
        SparkContext._gateway = SparkContext._jvm = None
        assert java.stdin is not None
        java.stdin.close()
        try:
            java.wait(20)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()
