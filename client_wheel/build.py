"""Builds the wheel of the client alone: rocketbox_client-VERSION-py3-none-any.whl, in which it is `rocketbox`; and that
of its compiled parts, for this Python and machine, where there is a C compiler: rocketbox_client_speedups-*.whl.

    script/client-wheel [DIRECTORY]      # dist, unless told otherwise

    rocketbox/           appliance/client
    rocketbox/_engine/   what its wire.py imports of appliance/engine, and what that imports in turn
    rocketbox/django/    appliance/client_django, the app for Django projects

Imports within each stay as they are; those of wire.py and of the app's sdk.py, the only doors between them, are the
only text that changes. Each of the two wheels requires the other, if any, of its own version.
ROCKETBOX_COMPILED=required makes it an error if the second wheel cannot be built.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CLIENT = ROOT / "appliance" / "client"
ENGINE = ROOT / "appliance" / "engine"
DOOR = CLIENT / "wire.py"
DJANGO = ROOT / "appliance" / "client_django"
DJANGO_DOOR = DJANGO / "sdk.py"
SPEEDUPS = HERE / "speedups"
COMPILED = "rocketbox-client-speedups"


def imported_by(path: Path) -> Iterator[Path]:
    """The files of this checkout that a module imports, those for annotations too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            named = (place / name.name for name in node.names)
            yield from (found.with_suffix(".py") for found in (place, *named) if found.with_suffix(".py").is_file())


def of_the_engine() -> set[Path]:
    """The files that the client needs of the engine."""
    found: set[Path] = set()
    wanted = list(imported_by(DOOR))
    while wanted:
        path = wanted.pop()
        if path not in found:
            found.add(path)
            wanted += [path.parent / "__init__.py", *imported_by(path)]
    return found


def lay_out(directory: Path) -> None:
    """Put the wheel's sources into an empty directory."""
    package = directory / "rocketbox"
    shutil.copytree(CLIENT, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DJANGO, package / "django", ignore=shutil.ignore_patterns("__pycache__"))
    for path in of_the_engine():
        target = package / "_engine" / path.relative_to(ENGINE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    door = package / DOOR.name
    door.write_text(door.read_text().replace("from ..engine.", "from ._engine."))
    door = package / "django" / DJANGO_DOOR.name
    text = door.read_text().replace("from ..client import", "from .. import")
    door.write_text(text.replace("from ..client.", "from .."))
    (package / "py.typed").touch()
    shutil.copy(ROOT / "LICENSE", directory)
    shutil.copy(HERE / "README.md", directory)
    text = (HERE / "pyproject.toml").read_text()
    (directory / "pyproject.toml").write_text(text.replace(f'["{COMPILED}"]', f'["{COMPILED}=={version()}"]'))
    (directory / "VERSION").write_text(version())


def version() -> str:
    """The server's: client and server have one."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "appliance" / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None, "appliance/__init__.py has the version"
    return found[1]


def lay_out_speedups(directory: Path) -> None:
    """Put the compiled parts' sources into an empty directory."""
    for path in SPEEDUPS.iterdir():
        if path.suffix in (".pyx", ".py", ".toml", ".md"):
            shutil.copy(path, directory)
    shutil.copy(ROOT / "LICENSE", directory)
    (directory / "VERSION").write_text(version())
    (directory / "REQUIRES").write_text(f"rocketbox-client=={version()}\n")


def why_not_compiled() -> str:
    """Return why nothing can be compiled here, "" if it can."""
    if find_spec("Cython") is None:
        return "Cython is missing"
    building = runpy.run_path(str(ENGINE / "hotpath" / "building.py"))
    return str(building["what_is_missing"]())


def build(directory: str, target: Path) -> None:
    arguments = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", target, directory)
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], check=True)


def main(target: Path) -> None:
    for old in target.glob("rocketbox_client*-*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as directory:
        lay_out(Path(directory))
        build(directory, target)
    why_not = why_not_compiled()
    if why_not:
        if os.environ.get("ROCKETBOX_COMPILED") == "required":
            sys.exit(f"client_wheel: the compiled parts cannot be built: {why_not}")
        print(f"client_wheel: the compiled parts are left out: {why_not}", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as directory:
            lay_out_speedups(Path(directory))
            build(directory, target)
    print(*sorted(target.glob("rocketbox_client*-*.whl")), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
