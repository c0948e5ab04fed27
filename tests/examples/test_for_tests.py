"""The examples that give Java's and Go's tests a broker, run as their tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600


def run(command, directory):
    done = subprocess.run(
        command,
        cwd=ROOT / "examples" / directory,
        env=os.environ | {"ROCKETBOX": str(Path(sys.executable).with_name("rocketbox"))},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_junits_extension_gives_a_broker():
    out = run(["mvn", "-B", "test"], "junit")
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in out


@pytest.mark.nightly
def test_gos_helper_gives_a_broker():
    assert run(["go", "test", "-count=1", "./rocketboxtest/"], "go").startswith("ok")
