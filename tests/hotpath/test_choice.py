"""The choice between the twins of the hot path: a process uses the compiled one only if it was built from the sources
beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.engine.hotpath import building, pure

ROOT = Path(__file__).parents[2]
HOTPATH = ROOT / "appliance" / "engine" / "hotpath"


@pytest.fixture
def package(tmp_path) -> Path:
    """A copy of the package in a directory of its own, with its sources and nothing built."""
    for directory in ("appliance", "appliance/engine"):
        (tmp_path / directory).mkdir()
        shutil.copy(ROOT / directory / "__init__.py", tmp_path / directory)
    copy = tmp_path / "appliance" / "engine" / "hotpath"
    copy.mkdir()
    for name in ("named_tuple.py", "translatable.py"):
        shutil.copy(ROOT / "appliance/engine" / name, tmp_path / "appliance/engine")
    for path in HOTPATH.glob("*.p[yx]*"):
        if path.is_file():
            shutil.copy(path, copy)
    return copy


def chosen(package: Path, **environment: str) -> str:
    """Import this copy in a new process; return what it chose and why."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    program = (
        "from appliance.engine import hotpath as h\n"
        "assert h.__file__.startswith('{}'), h.__file__\n"
        "print(h.COMPILED, h.CHOICE.name, h.CHOICE.text, h.WHY_PURE, sep='|')"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program.format(package)],
        cwd=package.parents[2],
        env=variables | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return answer.stdout.strip()


def put_library(package: Path, interface: int = pure.INTERFACE, sources: int | None = None, more: str = "") -> None:
    """Write a module in place of the compiled one that states what it was built from, and has every name."""
    mark = building.mark_of_sources(package) if sources is None else sources
    text = f"INTERFACE = {interface}\nSOURCES = {mark}\ndef __getattr__(name): return name\n{more}"
    (package / "_compiled.py").write_text(text)


def pure_because(why: str) -> str:
    return f"False|pure|pure Python ({why})|{why}"


def test_one_that_was_built_from_these_sources_is_used(package):
    put_library(package)
    assert chosen(package) == "True|compiled|compiled|"


def test_none_was_built(package):
    assert chosen(package) == pure_because("the compiled part was not built")


@pytest.mark.parametrize(("value", "is_pure"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_the_variable_forces_the_pure_one(package, value, is_pure):
    put_library(package)
    expected = pure_because("ROCKETBOX_PURE is set") if is_pure else "True|compiled|compiled|"
    assert chosen(package, ROCKETBOX_PURE=value) == expected


def test_one_with_another_interface_is_not_used(package):
    put_library(package, interface=pure.INTERFACE + 1)
    assert chosen(package) == pure_because("the compiled part was built from other sources")


@pytest.mark.parametrize("name", ["states.pxi", "_compiled.pyx", "another.pxi"])
def test_one_whose_sources_were_edited_since_is_not_used(package, name):
    put_library(package)
    with (package / name).open("a") as file:
        file.write("# edited\n")
    assert chosen(package) == pure_because("the compiled part was built from other sources")


def test_one_that_says_nothing_of_its_sources_is_not_used(package):
    (package / "_compiled.py").write_text("")
    assert chosen(package) == pure_because("the compiled part was built from other sources")


def test_without_sources_beside_it_the_interface_decides(package):
    put_library(package, sources=7)
    for path in [*package.glob("*.pyx"), *package.glob("*.pxi")]:
        path.unlink()
    assert chosen(package) == "True|compiled|compiled|"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("raise ImportError('undefined symbol:\\n  PyX')", "undefined symbol: PyX"),
        ("raise SystemError()", "SystemError"),
        ("from . import nothing_of_this_name", "cannot import name 'nothing_of_this_name'"),
    ],
)
def test_one_that_cannot_be_loaded_is_told_with_its_error(package, more, why):
    put_library(package, more=more)
    assert chosen(package).startswith(f"False|pure|pure Python (the compiled part cannot be loaded: {why}")


def test_a_file_that_is_no_library_is_told_with_its_error(package):
    (package / "_compiled.abi3.so").write_bytes(b"\x7fELF and nothing more")
    assert chosen(package).startswith("False|pure|pure Python (the compiled part cannot be loaded: ")


def test_the_mark_is_of_names_and_texts(tmp_path):
    assert building.mark_of_sources(tmp_path) is None
    assert building.mark_of_sources(tmp_path / "nowhere") is None
    (tmp_path / "a.pxi").write_text("x")
    (tmp_path / "pure.py").write_text("no source of the compiled one")
    first = building.mark_of_sources(tmp_path)
    assert first is not None
    (tmp_path / "a.pxi").rename(tmp_path / "b.pxi")
    assert building.mark_of_sources(tmp_path) != first
    (tmp_path / "b.pxi").rename(tmp_path / "a.pxi")
    (tmp_path / "pure.py").write_text("edited")
    assert building.mark_of_sources(tmp_path) == first


def test_what_was_built_here_is_of_the_sources_here():
    """Otherwise tests of the compiled twin would run on the pure one. `setup.py build_ext --inplace` builds it."""
    if not list(HOTPATH.glob("_compiled.*.so")):
        pytest.skip("the compiled part was not built: there was no C compiler")
    variables = {name: value for name, value in os.environ.items() if name != "ROCKETBOX_PURE"}
    program = "from appliance.engine import hotpath; print(hotpath.CHOICE.text)"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300
    )
    assert answer.stdout == "compiled\n"
