"""The Dockerfile, without a container engine: its sources exist, and its own steps, run in a clean directory, give a
package that serves, answers its health check and stops at the image's stop signal."""

import http.client
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from appliance.command_line import load
from appliance.main import what_strangers_can_do
from tests.support.directories import shared_directory

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()
# Continued lines joined, comments dropped: one instruction a line.
LINES = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", TEXT)).splitlines()
INSTRUCTIONS = [tuple(line.strip().split(None, 1)) for line in LINES if line.strip()]


def values(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def copied() -> list[str]:
    """Return the sources of COPY in the work tree."""
    return [source for rest in values("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in values("ENV") for pair in shlex.split(rest))


def ignored(name: str) -> bool:
    """True if .dockerignore keeps files of this name out of every directory."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return any(fnmatch(name, line.removeprefix("**/")) for line in lines if line.startswith("**/"))


def test_what_was_built_here_is_not_copied():
    assert ignored("_compiled.cpython-311-x86_64-linux-gnu.so")
    assert ignored("_compiled.c")
    assert not ignored("_compiled.pyx")


def test_compilers_stay_in_the_build_stage():
    stages = {text.split("\n", 1)[0].partition(" AS ")[2]: text for text in re.split(r"(?m)^FROM ", TEXT)[1:]}
    for tool in ("gcc", "libc6-dev"):
        assert tool in stages["build"]
        assert not any(tool in text for name, text in stages.items() if name != "build")
    build = stages["build"]
    assert build.index("pip install --no-cache-dir --no-deps --no-build-isolation .") < build.index(
        "uninstall -y cython"
    )


def test_every_source_is_there_and_let_through():
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source in copied():
        assert (ROOT / source).exists(), source
        assert source.rstrip("/") in let_through, f"{source} is hidden by .dockerignore"


def test_it_runs_as_a_fixed_user_that_is_not_root():
    users = values("USER")
    assert users[-1] == "rocketbox"
    assert "--uid 10001" in TEXT
    stages = re.split(r"(?m)^FROM ", TEXT)[1:]
    for stage in stages:
        if "USER root" in stage:
            assert stage.rindex("USER rocketbox") > stage.rindex("USER root")


def test_it_stops_by_sigterm_and_is_asked_through_the_command_line():
    assert values("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(values("HEALTHCHECK")[0].partition("CMD ")[2]) == ["rocketbox", "health"]
    assert json.loads(values("ENTRYPOINT")[0]) + json.loads(values("CMD")[0]) == ["rocketbox", "serve"]


def test_there_is_a_slim_image_and_one_with_reports_and_slim_is_the_default():
    stages = values("FROM")
    assert {"slim", "reports"} <= {stage.split(" AS ")[1] for stage in stages if " AS " in stage}
    assert stages[-1] == "slim"


@pytest.fixture(scope="module")
def installed(request) -> Path:
    """The package as the build stage installs it, from the copied files alone; dependencies are this venv's."""
    clean = shared_directory(request, "src")
    for source in dict.fromkeys(copied()):  # several stages may copy the same one
        target = clean / source
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=lambda _, names: {name for name in names if ignored(name)})
        else:
            shutil.copy(ROOT / source, target)
    install = next(rest for rest in values("RUN") if rest.endswith("--no-build-isolation ."))
    words = shlex.split(install)
    variables = dict(word.split("=", 1) for word in itertools.takewhile(lambda word: "=" in word, words))
    arguments = words[len(variables) + 1 :]
    target = shared_directory(request, "opt")
    subprocess.run(
        [sys.executable, *arguments, "-q", "--target", str(target)],
        cwd=clean,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        timeout=120,
    )
    return target


def test_the_image_gets_the_compiled_part_and_not_what_it_was_made_of(installed):
    found = {path.name for path in (installed / "appliance" / "engine" / "hotpath").iterdir()}
    assert any(name.endswith(".so") for name in found)
    assert not any(name.endswith((".pyx", ".pxi", ".c")) for name in found)


def test_the_installed_package_serves_in_a_read_only_place_and_answers_its_health_check(installed, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    variables |= environment() | {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)}
    variables |= {"ROCKETBOX_DATA_DIR": str(data), "ROCKETBOX_BIND": "127.0.0.1"}
    ports = ["--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]
    before = set(installed.rglob("*"))
    command = [sys.executable, "-c", "import sys; from appliance.main import main; sys.exit(main())"]
    ready_file = tmp_path / "ready.json"
    server = subprocess.Popen(
        [*command, "serve", *ports, "--ready-file", str(ready_file)], cwd=data, env=variables, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not ready_file.exists():
            assert server.poll() is None, "it ended before it was ready"
            assert time.monotonic() < deadline, "not ready within 20 s"
            time.sleep(0.02)
        ready = json.loads(ready_file.read_text())
        port = ready["http"].rpartition(":")[2]
        health = [*command, "health"]
        asked = subprocess.run([*health, "--http-port", port], cwd=data, env=variables, capture_output=True, timeout=60)
        assert (asked.returncode, asked.stdout) == (0, b"ready\n")
        connection = http.client.HTTPConnection(ready["http"], timeout=60)
        for path, part in (
            (ready["setup_url"].partition(ready["http"])[2], b"console.css"),
            ("/static/console.css", b":root"),
        ):
            connection.request("GET", path)
            response = connection.getresponse()
            assert response.status == 200, path
            assert part in response.read()
        connection.request("GET", "/metrics")
        assert b'rocketbox_hot_path_info{twin="compiled"} 1' in connection.getresponse().read()
        connection.close()
    finally:
        server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert set(installed.rglob("*")) == before, "something was written beside the program"
    asked = subprocess.run([*health, "--http-port", port], cwd=data, env=variables, capture_output=True, timeout=60)
    assert asked.returncode == 1
    assert b"not ready" in asked.stderr


def test_the_images_default_address_is_warned_about_at_start():
    config, _ = load([], {name: value for name, value in environment().items() if name.startswith("ROCKETBOX_")})
    text = what_strangers_can_do(config)
    assert text.startswith("Listening on 0.0.0.0: other machines can reach ports 10911, 10909, 9876")
    assert config.wire_admin == "loopback"
