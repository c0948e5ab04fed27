"""Builds the Java and Go programs below this directory, and fetches the C++ client, once for each state of the sources.

Results live in a cache directory named by a hash of the sources, so an unchanged tree builds nothing. A missing tool
is a failure that names it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache import VERSIONS as APACHE_VERSIONS
from tests.support.apache import server_jars

HERE = Path(__file__).resolve().parent
JAVA_VERSIONS = ("4.9.8", "5.3.3")
#: The C++ client as a library, with a thin Python face.
CPP_PACKAGE = "rocketmq==0.4.4"
BUILD_TIMEOUT_S = 600


class BuildError(RuntimeError):
    """A tool is missing or a build failed; the message holds its output."""


def java_agent(version: str) -> list[str]:
    """The command line (without JVM flags) that runs the Java agent with the client of `version`."""
    pom = HERE / "java" / "pom.xml"
    sources = sorted((HERE / "java" / "src").rglob("*.java"))

    def resolve(target: Path) -> None:
        command = [_tool("mvn", "Maven"), "-q", "-B", "-f", str(pom), f"-Drocketmq.version={version}"]
        _run([*command, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"])

    def compile_sources(target: Path) -> None:
        command = [_java_tool("javac"), "--release", "11", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(target)]
        _run([*command, *map(str, sources)])

    jars = _built(f"java-{version}-jars", [pom], resolve)
    classes = _built(f"java-{version}-classes", [pom, *sources], compile_sources)
    return [f"{classes}:{jars}/*", "clients.Agent"]


def go_agent() -> list[str]:
    """The command line that runs the Go agent."""
    source = HERE / "go"
    files = sorted(path for path in source.iterdir() if path.suffix in (".go", ".mod", ".sum"))

    def build(target: Path) -> None:
        _run([_tool("go", "Go 1.19 or later"), "build", "-o", str(target / "agent"), "."], source)

    return [str(_built("go", files, build) / "agent")]


def cpp_client() -> Path:
    """A directory for PYTHONPATH that holds the package `rocketmq`, which is the C++ client."""

    def install(target: Path) -> None:
        _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), CPP_PACKAGE])

    return _built(f"python-{CPP_PACKAGE}", [HERE / "programs.py"], install)


def cpp_agent() -> list[str]:
    """The command line that runs the C++ agent; `cpp_client` must be on its PYTHONPATH."""
    return [sys.executable, str(HERE / "cpp" / "agent.py")]


def java() -> str:
    """The Java launcher. Raises BuildError when there is none."""
    return _java_tool("java")


def _java_tool(name: str) -> str:
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home) / "bin" / name) if java_home else _tool(name, "a JDK, 17 or later,")


def _built(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The directory `build` filled from these sources; one process builds, others wait for it."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(str(path.relative_to(HERE)).encode() + b"\0" + path.read_bytes() + b"\0")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketbox" / "clients"
    directory = base / f"{name}-{digest.hexdigest()[:16]}"
    with _alone(base / f"{name}.lock"):
        if not directory.exists():
            partial = base / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(partial)
            partial.rename(directory)
    return directory


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


def build_all() -> None:
    """Build the tests' clients and Apache's servers, so that test runs side by side need not do it."""
    for version in JAVA_VERSIONS:
        java_agent(version)
    go_agent()
    cpp_client()
    for version in APACHE_VERSIONS:
        server_jars(version)


if __name__ == "__main__":
    build_all()
