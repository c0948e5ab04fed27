"""Checks what nightly reports need beyond the broker: Spark, its packages, Java, memory and room."""

from __future__ import annotations

import os
from typing import Any

from spark_reports import machine

from .diagnosis import Diagnosis

NAME = "reports"


def look_at_reports(found: Diagnosis) -> None:
    """Spark that was not set up is no fault: plain Python makes the reports."""
    if not machine.is_installed():
        text = "Spark is not set up here; plain Python makes the reports, on one core."
        found.ok(NAME, text, f"for Spark: {machine.HOWS[machine.way()]}")
        return
    missing = machine.what_is_missing()
    for one in missing:
        found.warn(NAME, one.what, one.how)
    notice = machine.java_home_notice()
    if notice:
        found.warn(NAME, notice, machine.HOWS["java_home"])
    java = machine.find_java()
    if not missing and java is not None:
        text = f"PySpark {machine.installed('pyspark')} with Java {java.version} in {java.home} makes reports."
        found.ok(NAME, text)


def reports_machine() -> dict[str, Any]:
    """The same for a support bundle: versions, Java, what is missing."""
    java = machine.find_java()
    return {
        "packages": {name: machine.installed(name) for name in machine.PACKAGES},
        "java": None if java is None else {"version": java.version, "home": java.home},
        "java_home": os.environ.get("JAVA_HOME"),
        "memory_free": machine.free_memory(),
        "missing": [{"what": one.what, "how": one.how} for one in machine.what_is_missing()],
    }
