"""The container image for real: buildah builds the Dockerfile as it is, podman runs the image with a read-only root.

Where no registry can be reached, the base image is Debian's own Python in place of the official one: debootstrap makes
it, as root. A machine without these programs, or on which no container starts, cannot run these tests: they are skipped
with the reason, and have failed if CI is set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from appliance.client import Client
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
BASE = "docker.io/library/python:3.11-slim"
DEBIAN, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = "python3.11,python3.11-venv,python3-pip,python3.11-dev,python-is-python3,ca-certificates"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
#: Nothing here waits for anything but a slow machine, or a slow mirror.
PULL_S, MAKE_S, BUILD_S, RUN_S = 300, 1800, 3600, 300


class Engine:
    """buildah and podman with a storage of their own, which goes with its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._storage = [
            "--root", str(directory / "images"), "--runroot", str(directory / "run"), "--storage-driver", "vfs",
        ]  # fmt: skip
        self.runtime = ""

    def buildah(self, *words: str, seconds: float = RUN_S) -> subprocess.CompletedProcess[str]:
        return _called(["buildah", *self._storage, *words], seconds)

    def podman(self, *words: str, seconds: float = RUN_S) -> subprocess.CompletedProcess[str]:
        options = ["--cgroup-manager", "cgroupfs", *(("--runtime", self.runtime) if self.runtime else ())]
        return _called(["podman", *self._storage, *options, *words], seconds)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start a container without a network of its own. The limits are those that a process without rights has."""
        return self.podman(
            "run", "--network", "host", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000", *words
        )

    def take_base(self) -> None:
        """Have the image that the Dockerfile begins with: of the registry, or made here."""
        if self.buildah("pull", "--retry", "0", BASE, seconds=PULL_S).returncode == 0:
            return
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            pytest.skip("no registry can be reached, and debootstrap, which needs root, cannot make the base image")
        tree = self.directory / "base"
        made = _called(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", DEBIAN, str(tree), MIRROR], MAKE_S)
        if made.returncode != 0:
            pytest.skip(f"neither a registry nor {MIRROR} can be reached: {made.stdout[-300:]}{made.stderr[-300:]}")
        if AUTHORITIES.exists():  # of the machine, which may have more of them
            shutil.copy(AUTHORITIES, tree / AUTHORITIES.relative_to("/"))
        container = self.buildah("from", "scratch").stdout.strip()
        for words in (
            ("copy", "-q", container, str(tree), "/"),
            ("commit", "-q", "--rm", "--format", "docker", container, BASE),
        ):
            done = self.buildah(*words, seconds=MAKE_S)
            assert done.returncode == 0, done.stderr
        shutil.rmtree(tree)

    def find_runtime(self) -> None:
        """Find a runtime with which a container of the base image starts."""
        said = []
        for runtime in filter(shutil.which, ("crun", "runc")):
            self.runtime = runtime
            done = self.run("--rm", BASE, "true")
            if done.returncode == 0:
                return
            said.append(f"{runtime}: {done.stderr.strip()[-200:]}")
        pytest.skip(f"no container starts on this machine: {'; '.join(said) or 'there is neither crun nor runc'}")


def _called(words: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    for tool in ("buildah", "podman"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = Engine(shared_directory(request, "containers"))
    made.take_base()
    made.find_runtime()
    built = made.buildah(
        "bud", "--isolation", "chroot", "--format", "docker", "--pull-never", "-t", "rocketbox", ".", seconds=BUILD_S
    )
    assert built.returncode == 0, f"{built.stdout[-2000:]}\n{built.stderr[-4000:]}"
    return made


class Started:
    """A container of the image, as docs/operations.md starts one, on ports of its own."""

    def __init__(self, engine: Engine, name: str, volume: str, base: int, http: int) -> None:
        self.name, self._engine = name, engine
        self.namesrv, self.http = f"127.0.0.1:{base + 2}", f"127.0.0.1:{http}"
        variables = {
            "BIND": "127.0.0.1", "BROKER_PORT": base, "NAMESRV_PORT": base + 2, "HTTP_PORT": http,
            "STORE_MAPPED_FILE_SIZE_COMMIT_LOG": 8 << 20,
            "STORE_DISK_MAX_USED_SPACE_RATIO": 95, "STORE_DISK_SPACE_CLEAN_FORCIBLY_RATIO": 100,
            "STORE_DISK_SPACE_WARNING_LEVEL_RATIO": 100,
        }  # fmt: skip
        given = [word for key, value in variables.items() for word in ("-e", f"ROCKETBOX_{key}={value}")]
        done = engine.run(
            "-d", "--name", name, "--read-only", "--tmpfs", "/tmp", "-v", f"{volume}:/data", *given,
            "rocketbox", "serve", "--broker-name", "broker-a",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        wait_for(self._is_ready, "the container is ready")

    def _is_ready(self) -> bool:
        running = self._engine.podman("inspect", "--format", "{{.State.Running}}", self.name).stdout.strip()
        assert running == "true", self._engine.podman("logs", self.name).stderr[-3000:]
        try:
            with urlopen(f"http://{self.http}/readyz", timeout=10) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._engine.podman("exec", self.name, *words)

    def stop(self) -> None:
        """End it by its stop signal, and take it away; its volume stays."""
        stopped = self._engine.podman("stop", "--time", "60", self.name)
        assert stopped.returncode == 0, stopped.stderr
        status = self._engine.podman("inspect", "--format", "{{.State.ExitCode}}", self.name).stdout.strip()
        assert status == "0", self._engine.podman("logs", self.name).stderr[-3000:]
        assert self._engine.podman("rm", self.name).returncode == 0


@pytest.fixture
def volume(engine: Engine) -> Iterator[str]:
    yield "kept"
    engine.podman("rm", "--all", "--force", "--time", "5")
    engine.podman("volume", "rm", "--force", "kept")


def test_the_image_is_small_and_says_how_it_is_run(engine: Engine) -> None:
    [image] = json.loads(engine.podman("image", "inspect", "rocketbox").stdout)
    config = image["Config"]
    assert (config["User"], config["StopSignal"], config["WorkingDir"]) == ("rocketbox", "SIGTERM", "/data")
    assert (config["Entrypoint"], config["Cmd"]) == (["rocketbox"], ["serve"])
    assert list(config["Volumes"]) == ["/data"]
    assert {"8080/tcp", "9876/tcp", "10911/tcp"} <= config["ExposedPorts"].keys()
    assert image["Healthcheck"]["Test"] == ["CMD", "rocketbox", "health"]
    [base] = json.loads(engine.podman("image", "inspect", BASE).stdout)
    assert image["Size"] - base["Size"] < 200e6, "what the image adds to its base"


def test_it_runs_read_only_without_rights_and_a_new_one_goes_on_with_the_volume(engine: Engine, volume: str) -> None:
    base, http = reserve_port(), reserve_port()
    first = Started(engine, "first", volume, base, http)
    assert first.ask("id", "-u").stdout.strip() == "10001"
    assert first.ask("stat", "-c", "%u %a", "/data").stdout.split() == ["10001", "750"]
    for place in ("/opt/rocketbox/x", "/x", "/etc/x"):
        assert first.ask("touch", place).returncode != 0, place
    assert first.ask("touch", "/tmp/x").returncode == 0
    assert "gcc" not in first.ask("sh", "-c", "ls /usr/bin /opt/rocketbox/bin").stdout.split()
    health = first.ask("rocketbox", "health")
    assert (health.returncode, health.stdout) == (0, "ready\n"), health.stderr
    checked = engine.podman("healthcheck", "run", "first")
    assert checked.returncode == 0, checked.stderr
    with urlopen(f"http://{first.http}/metrics", timeout=60) as answer:
        assert b'rocketbox_hot_path_info{twin="compiled"} 1' in answer.read()
    with Client(first.namesrv) as client:
        sent = client.producer("shop").send("orders", "kept", keys=["order-1"])
    assert sent.queue.broker_name == "broker-a"
    first.stop()

    second = Started(engine, "second", volume, base, http)
    with Client(second.namesrv) as client, client.pull_consumer("billing", start="first") as billing:
        message = next(iter(billing.subscribe("orders")))
        assert (message.text, message.message_id) == ("kept", sent.message_id)
        assert message.queue.broker_name == "broker-a", "another name would be another broker to its clients"
        assert client.producer("shop").send("orders", "more").queue.broker_name == "broker-a"
    second.stop()
