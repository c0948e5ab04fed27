"""Pulls, and at night the store and doctor, on tmpfs, where reads that never wait do not work (D2) and nothing is cold.

Other pytests run them side by side, since these tests mostly wait for flushes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from appliance.engine.disk import file_system
from tests.support.directories import shared_directory
from tests.support.effort import NIGHTLY

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PULLS = (TESTS / "engine" / "broker" / "test_pull.py", TESTS / "engine" / "broker" / "test_cold_pull.py")
STORE = (
    *sorted((TESTS / "engine" / "store").rglob("test_*.py")),
    TESTS / "engine" / "broker" / "test_broken_queue.py",
    TESTS / "commands" / "test_doctor.py",
)
SUITES = (*PULLS, *STORE) if NIGHTLY else PULLS

AT_ONCE = 4 if NIGHTLY else 2
#: Each share's own.
NEEDED_BYTES = 1 << 30
TIMEOUT_S = 600


def shares():
    """Return the files in AT_ONCE shares of about the same length: the largest one next to the smallest share."""
    found = [[] for _ in range(AT_ONCE)]
    for path in sorted(SUITES, key=lambda path: path.stat().st_size, reverse=True):
        min(found, key=lambda share: sum(one.stat().st_size for one in share)).append(path)
    return found


@pytest.fixture
def tmpfs(tmp_path):
    """(directory, command that runs another command which sees a tmpfs there)."""
    mount = f'mount -t tmpfs -o size={NEEDED_BYTES} none "{tmp_path}" && exec "$@"'
    tried = []
    for namespaces in (["-m"], ["-r", "-m"]):
        command = ["unshare", *namespaces, "sh", "-c", mount, "sh"]
        try:
            said = subprocess.run([*command, "true"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or error
            tried.append(f"{' '.join(command[: 1 + len(namespaces)])}: {str(said).strip()}")
        else:
            yield tmp_path, command
            return
    shared = Path("/dev/shm")
    if file_system(shared) != "tmpfs" or not os.access(shared, os.W_OK | os.X_OK):
        tried.append(f"{shared} is no tmpfs that can be written to")
    elif shutil.disk_usage(shared).free < AT_ONCE * NEEDED_BYTES:
        tried.append(f"{shared} has less than {AT_ONCE * NEEDED_BYTES} bytes free")
    else:
        directory = Path(tempfile.mkdtemp(prefix="rocketbox-tests-", dir=shared))
        yield directory, []
        shutil.rmtree(directory)
        return
    pytest.skip("no tmpfs to run the store's tests on: " + "; ".join(tried))


def test_the_store_and_its_readers_hold_on_tmpfs(tmpfs, request):
    directory, prefix = tmpfs
    question = f"from appliance.doctor.place import *; print(file_system(Path({str(directory)!r})))"
    kind = subprocess.check_output([*prefix, sys.executable, "-c", question], cwd=ROOT, text=True)
    assert kind.strip() == "tmpfs"
    running = []
    for number, share in enumerate(shares()):
        command = [
            *(*prefix, sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
            *("-p", "no:schemathesis"),  # which takes longer to import than all the rest
            *("-o", "tmp_path_retention_policy=none", "--basetemp", str(directory / f"share-{number}")),
            *map(str, share),
        ]
        output = shared_directory(request, "output") / "text"
        with output.open("wb") as file:
            running.append((subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT), output))
    failures = []
    for process, output in running:
        try:
            status = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        text = output.read_text(errors="replace")
        if status != 0 or " passed" not in text:
            failures.append(f"exit status {status}\n{text[-20_000:]}")
    assert not failures, "\n\n".join(failures)


def test_every_file_has_its_share():
    assert sorted(path for share in shares() for path in share) == sorted(SUITES)
    assert all(shares())
    assert len(STORE) > 20
