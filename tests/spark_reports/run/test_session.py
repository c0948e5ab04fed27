"""The settings that a run gives to Spark."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

import pytest

from spark_reports.run.plan import Plan
from spark_reports.run.session import settings_of


@pytest.mark.parametrize(
    ("scratch", "as_java_has_it"),
    [("/data/scratch", "/data/scratch"), ("/my data/ü", "/proc/self/cwd"), ('/a "b" \\ c/d', "/proc/self/cwd")],
)
def test_a_data_directory_may_have_any_name(scratch, as_java_has_it):
    """Spark splits Java's options as a shell does: the text after a blank was taken for a class name. Every process of
    a run works in the scratch directory, so there is a plain name for it."""
    values: dict[str, Any] = {field.name: 1 for field in fields(Plan)}
    plan = Plan(**values | {"scratch_dir": scratch, "run_id": "1", "master": "local[2]"})
    words = shlex.split(settings_of(plan)["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={as_java_has_it}/tmp" in words
    assert f"-Duser.home={as_java_has_it}" in words
    assert all(word.startswith("-") for word in words)
