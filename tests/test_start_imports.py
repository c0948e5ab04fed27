"""What a start with the console loads, and what it leaves for when it is needed: memory, and time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.server import ROOT

#: Each costs 1 to 20 MB, and most servers never need it.
LATER = {
    "authlib", "requests", "yaml", "segno", "pyotp", "channels", "sqlite_utils", "cryptography", "click", "smtplib",
    "unittest", "django.test", "pip", "setuptools", "wsgiref.simple_server", "lib2to3", "doctest", "pdb",
    "xml.etree.ElementTree", "spark_reports.reports.capacity",
    "numpy", "pandas", "pyarrow", "pyspark", "py4j",
}  # fmt: skip
IN_THE_WORKER = (
    "import appliance.http_server, appliance.http_worker, appliance.engine_process, appliance.asgi, "
    "appliance.console.start, appliance.console.threads, appliance.urls"
)


def loaded(statement: str, directory: os.PathLike[str]) -> set[str]:
    """Modules that are there after it, in a process of its own."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "appliance.settings", "ROCKETBOX_DATA_DIR": str(directory)}
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("more", ["", ", appliance.api.urls"], ids=["start", "with the API"])
def test_the_start_leaves_alone_what_few_need(more, tmp_path):
    names = loaded(IN_THE_WORKER + more, tmp_path)
    assert not names & LATER
    assert ("ninja" in names) == bool(more)


def test_the_arbiter_holds_no_code_that_serves(tmp_path):
    names = loaded("import appliance.main, appliance.command_line, appliance.http_server", tmp_path)
    assert not names & {"asyncio", "django", "gunicorn.asgi.protocol", "appliance.engine.engine", "sqlite3"}


def test_the_version_is_told_without_an_engine(tmp_path):
    names = loaded("import appliance.main; appliance.main.main(['--version'])", tmp_path)
    assert not names & {"appliance.engine.engine", "django", "gunicorn", "asyncio", "argparse"}


ENGINE = """
from pathlib import Path
from appliance.engine.config import EngineConfig, StoreConfig
from appliance.engine.engine import Engine
small = StoreConfig(mapped_file_size_commit_log=1 << 20, disk_max_used_space_ratio=95)
config = EngineConfig(
    data_dir=Path({directory!r}), roles=frozenset({roles!r}), broker_port=0, namesrv_port=0, store=small
)
engine = Engine(config)
engine.start()
engine.stop()
"""
#: Own modules of a start without a console, and how many there may be: one more costs a millisecond and 50 KB.
MOST_MODULES = {("broker", "namesrv"): 300, ("namesrv",): 64}


@pytest.mark.parametrize("roles", MOST_MODULES, ids="+".join)
def test_an_engine_alone_leaves_what_pages_need(roles, tmp_path):
    names = loaded(ENGINE.format(directory=str(tmp_path), roles=roles), tmp_path)
    own = sorted(name for name in names if name.startswith("appliance."))
    assert {name for name in own if name.startswith("appliance.engine.window.")} <= {
        "appliance.engine.window.options", "appliance.engine.window.sentences",
    }  # fmt: skip
    assert not names & LATER
    assert len(own) <= MOST_MODULES[roles], own
