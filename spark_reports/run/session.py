"""Spark for one run: small, quiet, and with all its files in the run's scratch directory. Needs pyspark."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import spark_reports

from .executors import check_master
from .failures import RunFailed
from .plan import Plan, scratch_as_spark_has_it


def settings_of(plan: Plan) -> dict[str, str]:
    """Return Spark's settings for a run."""
    scratch = scratch_as_spark_has_it(plan)
    # Java writes its monitoring data to /tmp in any case, so that is off; the rest is for a small heap beside a broker.
    java = (
        f"{_word(f'-Djava.io.tmpdir={scratch}/tmp')} {_word(f'-Duser.home={scratch}')} -Duser.timezone=UTC "
        "-XX:-UsePerfData -XX:+UseSerialGC -XX:MaxMetaspaceSize=384m -XX:ReservedCodeCacheSize=128m"
    )
    return {
        **(_WITHOUT_LIBRARIES if _refuses_programs(Path(plan.scratch_dir)) else {}),
        "spark.master": plan.master,
        "spark.app.name": f"rocketbox reports {plan.run_id}",
        "spark.driver.memory": f"{plan.driver_mib}m",
        "spark.driver.extraJavaOptions": java,
        "spark.sql.warehouse.dir": str(scratch / "spark" / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Other users of the machine reach the loopback ports, and Spark runs what it is sent. Spark makes the secret.
        "spark.authenticate": "true",
        "spark.port.maxRetries": "64",
    }


#: Codecs in pure Java: the libraries of others are unpacked into the temporary directory and loaded from there.
_WITHOUT_LIBRARIES = {
    "spark.sql.parquet.compression.codec": "lz4_raw",
    "spark.io.compression.codec": "lz4",
    "spark.shuffle.mapStatus.compression.codec": "lz4",
}


def _refuses_programs(directory: Path) -> bool:
    """True if a directory is on a disk that is mounted noexec, as disks for data often are."""
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _word(text: str) -> str:
    """Quote one word of Java's options for Spark, which splits them: a data directory may have blanks in its name."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def package(target: Path) -> Path:
    """Pack the part of the program that executors on other machines need into one zip. Raises OSError."""
    root = Path(spark_reports.__file__).resolve().parent.parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        made.write(root / "appliance" / "__init__.py", "appliance/__init__.py")
        for part in ("appliance/engine", "spark_reports"):
            for path in sorted((root / part).rglob("*.py")):
                made.write(path, path.relative_to(root))
    return target


def open_session(plan: Plan) -> tuple[Any, dict[str, str]]:
    """Return (the session, versions of its parts). Raises RunFailed."""
    try:
        from pyspark import SparkConf, __version__
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RunFailed("spark_missing", text=str(error)) from error
    check_master(plan.master)
    settings = settings_of(plan)
    if not plan.master.startswith("local"):  # executors elsewhere must reach the driver, and have the program
        for name in ("spark.driver.host", "spark.driver.bindAddress", "spark.authenticate"):
            del settings[name]
        settings["spark.submit.pyFiles"] = str(package(Path(plan.scratch_dir) / "rocketbox.zip"))
    builder = SparkSession.builder.config(conf=SparkConf().setAll(list(settings.items())))
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in f"{error}" or isinstance(error, FileNotFoundError):
            raise RunFailed("spark_not_started") from error
        if not plan.master.startswith("local"):
            raise RunFailed("master_refused", master=plan.master, text=_last_cause(error)) from error
        raise
    spark.sparkContext.setLogLevel("WARN")
    machine: Any = spark.sparkContext._jvm
    java = machine.java.lang.System.getProperty("java.version")
    return spark, {"spark": __version__, "java": str(java), "master": plan.master}


def _last_cause(error: Exception) -> str:
    """Return the innermost of Java's exceptions, or the first line of the error: the outer ones name no reason."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines)[-1 if causes else 0][:300]


def close(spark: Any) -> None:
    """End a session; one that is broken is left to the keeper."""
    try:
        spark.stop()
    except Exception as error:
        print(f"Spark did not stop well: {type(error).__name__}", flush=True)
