"""Builds the Java and Go programs below this directory, once for each state of their sources.

Results live in a cache directory named by a hash of the sources, so an unchanged tree builds nothing. A missing tool
is a failure that names it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAVA_VERSIONS = ("4.9.8", "5.3.3")
BUILD_TIMEOUT_S = 600


class BuildError(RuntimeError):
    """A tool is missing or a build failed; the message holds its output."""


def java_agent(version: str) -> list[str]:
    """The command line (without JVM flags) that runs the Java agent with the client of `version`."""
    directory = _built("java", version, _build_java)
    return [f"{directory / 'classes'}:{directory / 'lib'}/*", "clients.Agent"]


def go_agent() -> list[str]:
    """The command line that runs the Go agent."""
    return [str(_built("go", "", _build_go) / "agent")]


def java() -> str:
    """The Java launcher. Raises BuildError when there is none."""
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home) / "bin" / "java") if java_home else _tool("java", "Java 17")


def _build_java(source: Path, version: str, target: Path) -> None:
    java()
    maven = [
        _tool("mvn", "Maven"), "-q", "-B", "-f", str(source / "pom.xml"),
        f"-Drocketmq.version={version}", f"-Dbuild.dir={target}",
    ]  # fmt: skip
    _run(
        [
            *maven,
            "compile",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={target / 'lib'}",
        ]
    )


def _build_go(source: Path, _: str, target: Path) -> None:
    _run([_tool("go", "Go 1.19 or later"), "build", "-o", str(target / "agent"), "."], source)


def _built(name: str, version: str, build) -> Path:  # type: ignore[no-untyped-def]
    """The directory with what `build` made of the sources in `name`/; one process builds, others wait for it."""
    source = HERE / name
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketbox" / "clients"
    directory = base / "-".join(filter(None, (name, version, _hash(source))))
    with _alone(base / f"{directory.name}.lock"):
        if not directory.exists():
            partial = base / f"{directory.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(source, version, partial)
            partial.rename(directory)
    return directory


def _hash(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file() and "target" not in path.parts):
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tool(name: str, what: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BuildError(f"{what} is needed for the client tests: {name} was not found on PATH")
    return found


def _run(command: list[str], directory: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise BuildError(f"{' '.join(command)} failed:\n{said}")
