"""Checkouts and environments to install into, beside the one that the tests run in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence, Set
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PARTS = (
    *("appliance", "spark_reports", "pyspark_rocketbox", "templates", "static"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "Makefile"),
)
BUILT = ("__pycache__", "*.so", "_compiled.c")


def checkout(directory: Path) -> Path:
    """Copy what a build needs into `directory`, with nothing built yet."""
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns(*BUILT))
        else:
            shutil.copy(ROOT / name, directory / name)
    return directory


def variables(**more: str) -> dict[str, str]:
    """The environment less what would change a build or a start."""
    unwanted = ("ROCKETBOX_", "CC", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    # Not optimised, for a build that is quick.
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "CFLAGS": "-O0"} | more


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run a command, which has to succeed. Return its output on both streams."""
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=variables(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def tools_without_a_compiler(directory: Path) -> str:
    """A PATH with everything there is, but what compiles C."""
    directory.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for tool in Path(place).glob("*"):
            if not any(part in tool.name for part in ("cc", "gcc", "clang", "c89", "c99", "++")):
                link = directory / tool.name
                link.unlink(missing_ok=True)
                link.symlink_to(tool)
    return str(directory)


def asked_for(lines: Sequence[str], extras: Set[str] = frozenset()) -> list[Requirement]:
    """Return the requirements of a distribution that apply here, with these of its extras."""
    found = [Requirement(line) for line in lines]
    return [
        one
        for one in found
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def with_all_they_need(requirements: Sequence[Requirement]) -> set[str]:
    """Names of these distributions, and of all that they need."""
    found: dict[str, set[str]] = {}
    wanted = list(requirements)
    while wanted:
        one = wanted.pop()
        extras = found.setdefault(one.name.lower(), set())
        if not extras or one.extras - extras:
            extras |= {"", *one.extras}
            wanted += asked_for(metadata.requires(one.name) or [], extras)
    return set(found)


def pythons() -> dict[str, str]:
    """Each Python of this machine that the client is for: version, as "3.12" -> its interpreter."""
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    places += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for place in places:
        for name in place.glob("python3.[0-9]*"):
            version = name.name.removeprefix("python")
            if not re.fullmatch(r"3\.1[1-9]", version) or version in found:
                continue
            # A name may stand for nothing: pyenv's own, where no such version is chosen.
            if subprocess.run([name, "-c", "import venv"], capture_output=True, timeout=60).returncode == 0:
                found[version] = str(name)
    return dict(sorted(found.items()))


class Environment:
    """A virtual environment with nothing in it, not even pip; what it is given is taken from the tests' own, so that
    no network is needed."""

    def __init__(self, directory: Path, python: str = sys.executable) -> None:
        """python: the interpreter whose environment it is."""
        run(python, "-m", "venv", "--without-pip", "--symlinks", directory, cwd=directory.parent)
        self.python = directory / "bin" / "python"
        self.bin = directory / "bin"
        (self.packages,) = directory.glob("lib/python*/site-packages")

    def give(self, requirements: Sequence[Requirement]) -> None:
        """These distributions, with all that they need."""
        for name in with_all_they_need(requirements):
            for top in {file.parts[0] for file in metadata.files(name) or []} - {"..", "__pycache__"}:
                link = self.packages / top
                if not link.is_symlink():
                    link.symlink_to(metadata.distribution(name).locate_file(top))

    def give_what_it_asks_for(self, extras: Set[str] = frozenset()) -> None:
        """Give the packages that the rocketbox installed here requires."""
        (directory,) = self.packages.glob("rocketbox-*.dist-info")
        self.give(asked_for(metadata.Distribution.at(directory).requires or [], extras))

    def pip(self, *arguments: str | Path, cwd: Path, **more: str) -> str:
        return run(sys.executable, "-m", "pip", "--python", self.python, *arguments, cwd=cwd, **more)


class Checkout:
    """A checkout with a .venv that holds all its requirements, so that none are fetched."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = checkout(directory)
        shutil.copytree(ROOT / "script", directory / "script")
        (directory / "requirements").mkdir()
        (directory / "requirements" / "none.txt").write_text("")
        wanted = [Requirement(name) for name in ("pip", "setuptools", "cython", "msgspec", "zlib-ng")]
        Environment(directory / ".venv").give(wanted)
        self.hotpath = directory / "appliance" / "engine" / "hotpath"

    def set_up(self, before: str = "", **more: str) -> list[str]:
        """Return the lines that `script/environment` prints."""
        return run(
            "bash", "-c", f". script/environment; {before} ensure_venv none", cwd=self.directory, **more
        ).splitlines()

    def library(self) -> Path | None:
        return next(self.hotpath.glob("_compiled.*.so"), None)
