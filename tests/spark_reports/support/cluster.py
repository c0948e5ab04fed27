"""A standalone cluster from the PySpark package: a master and two workers with one core each, on the loopback.

Workers have a Python of their own, with the libraries and without RocketBox, which comes with the job, as on a user's
cluster. Each daemon is a process group, killed at the end with the executors it started; daemons also end with the
thread that started them (PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.ports import reserve_port
from tests.support.spark import ROOT

START_S = 120
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=64m -XX:-UsePerfData"


def bare_python(place: Path) -> Path:
    """Make an interpreter with the libraries of this one, and without RocketBox; return its path."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    # Python searches directories named in a .pth file, but ignores the .pth files in them, which would add RocketBox.
    paths = [path for path in sys.path if path.endswith("site-packages") or (Path(path) / "pyspark").is_dir()]
    (site / "libraries.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
    return place / "bin" / "python"


def package(place: Path) -> Path:
    """Make the zip that docs/spark.md names for --py-files: both packages, as they are installed."""
    made = place / "rocketbox.zip"
    with zipfile.ZipFile(made, "w") as file:
        for name in ("appliance", "spark_reports"):
            for path in sorted((ROOT / name).rglob("*.py")):
                file.write(path, path.relative_to(ROOT))
    return made


class Daemon:
    """One Java process, the head of its group."""

    def __init__(self, cluster: Cluster, name: str, *arguments: object) -> None:
        self.name = name
        self.log = cluster.place / f"{name}.log"
        command = [str(cluster.home / "bin" / "spark-class"), *map(str, arguments)]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=cluster.environment, cwd=cluster.place,
                start_new_session=True,
            )  # fmt: skip

    def wait_for(self, said: str) -> re.Match[str]:
        """Wait until the log has a match of this pattern; return the match."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            text = self.log.read_text(errors="replace")
            if found := re.search(said, text):
                return found
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{self.name} did not say {said!r}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def kill(self) -> None:
        """Kill the process with all that it started; return when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Cluster:
    """Use `with`. place: a directory for all of its files."""

    def __init__(self, place: Path) -> None:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.place = place
        self.python = bare_python(place / "python")
        self.package = package(place)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_", "PYSPARK_"))
        } | {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_JVM} -Djava.io.tmpdir={place}",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "TMPDIR": str(place),
        }
        self.daemons: list[Daemon] = []
        self.master = ""

    def __enter__(self) -> Cluster:
        try:
            master = self._start("master", _MASTER, "--host", "127.0.0.1", "--port", reserve_port(), "--webui-port", 0)
            self.master = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            master.wait_for("I have been elected leader")
            for name in ("worker-1", "worker-2"):
                self._start(
                    name, _WORKER, "--host", "127.0.0.1", "--webui-port", 0, "--cores", 1, "--memory", "700m",
                    "--work-dir", self.place / name, self.master,
                )  # fmt: skip
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def workers(self) -> list[Daemon]:
        return self.daemons[1:3]

    def another_worker(self) -> None:
        """Start a worker in the place of one that was killed."""
        name = f"worker-{len(self.daemons)}"
        arguments = ("--host", "127.0.0.1", "--webui-port", 0, "--cores", 1, "--memory", "700m")
        self._start(name, _WORKER, *arguments, "--work-dir", self.place / name, self.master).wait_for(
            "Successfully registered with master"
        )

    def _start(self, name: str, *arguments: object) -> Daemon:
        self.daemons.append(Daemon(self, name, *arguments))
        return self.daemons[-1]

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()

    @contextlib.contextmanager
    def submitted(self, job: Path, **arguments: Any) -> Iterator[Job]:
        """Run a job with spark-submit in client mode, as a user would."""
        made = Job(self, job, arguments)
        try:
            yield made
        finally:
            made.kill()

    def run(self, job: Path, **arguments: Any) -> dict[str, Any]:
        with self.submitted(job, **arguments) as running:
            return running.result()


class Job:
    """A driver. It prints one line of JSON at its end."""

    def __init__(self, cluster: Cluster, job: Path, arguments: dict[str, Any]) -> None:
        self._log = cluster.place / "job.log"
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _JVM,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _JVM,
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        command = [str(cluster.home / "bin" / "spark-submit"), "--master", cluster.master]
        command += ["--py-files", str(cluster.package)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*command, str(job), json.dumps(arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, env=cluster.environment, cwd=cluster.place, start_new_session=True,
            )  # fmt: skip

    def result(self, timeout_s: float = 300) -> dict[str, Any]:
        said, _ = self._process.communicate(timeout=timeout_s)
        lines = said.decode().splitlines()
        assert self._process.returncode == 0, f"{lines}\n{self._log.read_text(errors='replace')[-5000:]}"
        return json.loads(lines[-1])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
