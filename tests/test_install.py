"""Build and installation of the package: with a C compiler and without, with Cython and without; as a wheel in an
empty environment, and by `script/environment` in a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.checkout import ROOT, Checkout, Environment, checkout, run, tools_without_a_compiler, variables
from tests.support.directories import shared_directory

BUILDING = ROOT / "appliance" / "engine" / "hotpath" / "building.py"


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


def libraries_in(wheel: Path) -> list[str]:
    return [name for name in names_in(wheel) if name.endswith(".so")]


def wheel_of(environment: Environment, tmp_path: Path, *arguments: str, **more: str) -> tuple[Path, str]:
    """Let pip build a wheel without isolation; return its path and pip's output."""
    source = tmp_path / "source"
    if not source.exists():
        source.mkdir()
        checkout(source)
    words = ("-v", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path / "wheels", *arguments, source)
    said = environment.pip(*words, cwd=tmp_path, **more)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    return wheel, said


@pytest.fixture(scope="module")
def made(request) -> tuple[Path, str]:
    """(the wheel of `make wheel`, the output of the build)."""
    source = checkout(shared_directory(request, "source"))
    # Left by an earlier build.
    stale = source / "build" / "lib" / "appliance"
    stale.mkdir(parents=True)
    (stale / "stale.py").write_text("")
    (source / "dist").mkdir()
    (source / "dist" / "rocketbox-0.0.1-py3-none-any.whl").write_text("")
    said = run("make", "wheel", f"PYTHON={sys.executable}", cwd=source)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel, said


def test_make_wheel_makes_one_for_this_machine_with_the_compiled_part(made):
    wheel, said = made
    assert said.splitlines()[-1] == "hot path: compiled"
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert wheel.name.startswith(f"rocketbox-0.1.0-{tag}-{tag}-linux")
    assert len(libraries_in(wheel)) == 1
    names = names_in(wheel)
    assert not [name for name in names if name.endswith((".pyx", ".pxi", ".c"))]
    assert not [name for name in names if "stale" in name]
    assert {"appliance/templates/base.html", "appliance/static/console.css"} <= set(names)
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "spark_reports").rglob("*.py")}
    assert ours == {name for name in names if name.startswith("spark_reports/")}
    assert "pyspark_rocketbox/__init__.py" in names  # by which Spark finds the data source


def test_the_wheel_serves_from_an_empty_environment_and_needs_what_it_says(made, tmp_path):
    wheel, _ = made
    environment = Environment(tmp_path / "venv")
    environment.pip("install", "-q", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    rocketbox = environment.bin / "rocketbox"
    command = (rocketbox, "serve", "--data-dir", tmp_path / "data", "--broker-port", "0", "--namesrv-port", "0")
    assert run(rocketbox, "--version", cwd=tmp_path) == "rocketbox 0.1.0\n"
    environment.give_what_it_asks_for()
    assert "hot path: compiled" in first_line(*command, "--roles", "broker,namesrv", cwd=tmp_path)
    environment.give_what_it_asks_for({"console"})
    assert "hot path: compiled" in first_line(*command, "--http-port", "0", cwd=tmp_path)


def first_line(*command: str | Path, cwd: Path) -> str:
    """Start a server, stop it, and return its first line."""
    server = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=variables(ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG="8388608"),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if "rocketbox: ready " in line:
                return line
        raise AssertionError("".join(said))
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.fixture
def builder(tmp_path) -> Environment:
    """An environment with setuptools and Cython, as `pip install .` would have in its isolated environment."""
    environment = Environment(tmp_path / "venv")
    environment.give([Requirement("setuptools"), Requirement("cython")])
    return environment


def test_without_a_compiler_the_wheel_is_one_for_every_machine(builder, tmp_path):
    path = tools_without_a_compiler(tmp_path / "bin")
    wheel, said = wheel_of(builder, tmp_path, PATH=path)
    assert wheel.name == "rocketbox-0.1.0-py3-none-any.whl"
    assert "the compiled part is left out: there is no C compiler" in said
    assert not libraries_in(wheel)
    assert "appliance/engine/hotpath/pure.py" in names_in(wheel)


def test_with_a_compiler_that_fails_the_wheel_is_one_for_every_machine(builder, tmp_path):
    wheel, said = wheel_of(builder, tmp_path, CC="/bin/false")
    assert wheel.name == "rocketbox-0.1.0-py3-none-any.whl"
    assert "the compiled part is left out: the C compiler /bin/false does not work" in said


def test_without_cython_the_wheel_is_one_for_every_machine(tmp_path):
    environment = Environment(tmp_path / "venv")
    environment.give([Requirement("setuptools")])
    wheel, said = wheel_of(environment, tmp_path)
    assert wheel.name == "rocketbox-0.1.0-py3-none-any.whl"
    assert "the compiled part is left out: Cython is missing" in said


def test_what_does_not_compile_is_left_out_even_where_an_earlier_build_lies(builder, tmp_path):
    hotpath = tmp_path / "source" / "appliance" / "engine" / "hotpath"
    first, _ = wheel_of(builder, tmp_path)
    assert libraries_in(first)
    first.unlink()
    (hotpath / "states.pxi").write_text("this is no Cython\n")
    second, said = wheel_of(builder, tmp_path)
    assert not libraries_in(second)
    assert "the compiled part is left out: CompileError" in said


def test_sources_packed_without_a_compiler_hold_all_that_one_needs(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    checkout(source)
    shutil.copy(ROOT / "MANIFEST.in", source)
    (source / "appliance" / "engine" / "hotpath" / "_compiled.c").write_text("")
    run(sys.executable, "setup.py", "-q", "sdist", cwd=source, CC="/bin/false")
    (packed,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(packed) as file:
        found = {Path(name).name for name in file.getnames() if "/hotpath/" in name}
    ours = {path.name for path in BUILDING.parent.iterdir() if path.suffix in (".py", ".pyi", ".pyx", ".pxi")}
    assert found == ours


def test_a_build_that_requires_the_compiled_part_fails_without_it(builder, tmp_path):
    with pytest.raises(AssertionError, match="the compiled part cannot be built: there is no C compiler /nowhere/cc"):
        wheel_of(builder, tmp_path, ROCKETBOX_COMPILED="required", CC="/nowhere/cc")


def test_headers_that_are_missing_are_named(tmp_path):
    program = f"""
import runpy, sysconfig
place = sysconfig.get_path
sysconfig.get_path = lambda name, *more: "/nowhere" if "include" in name else place(name, *more)
print(runpy.run_path({str(BUILDING)!r})["what_is_missing"]())
"""
    said = run(sys.executable, "-c", program, cwd=tmp_path)
    assert said == "Python.h is missing, on Debian in the package python3-dev\n"


# --- a checkout


INSTALLING = "installing requirements/none.txt into .venv"


def test_a_checkout_builds_once_and_again_when_a_source_or_the_compiler_has_changed(tmp_path):
    made = Checkout(tmp_path / "checkout")
    without = "hot path: pure Python (the compiled part was not built): there is no C compiler"
    path = tools_without_a_compiler(tmp_path / "bin")
    *_, said = made.set_up(PATH=path)
    assert said.startswith(without)
    assert made.set_up(PATH=path) == []
    assert made.set_up() == [INSTALLING, "hot path: compiled"], "a compiler was installed meanwhile"
    assert made.set_up() == []
    with (made.hotpath / "states.pxi").open("a") as file:
        file.write("# edited\n")
    assert made.set_up() == [INSTALLING, "hot path: compiled"], "as after a pull"
    library = made.library()
    assert library is not None
    library.unlink()
    assert made.set_up() == [INSTALLING, "hot path: compiled"], "git clean was here"


def test_a_checkout_without_a_working_compiler_says_so_and_runs_pure_python(tmp_path):
    made = Checkout(tmp_path / "checkout")
    *_, said = made.set_up(CC="/bin/false")
    assert said.startswith(
        "hot path: pure Python (the compiled part was not built): the C compiler /bin/false does not"
    )
    assert made.library() is None
    # If the compiled part is required, as under CI, that is an error.
    with pytest.raises(AssertionError, match="may not do without the compiled part"):
        made.set_up("compiled=required;", CC="/bin/false")
    # A variable in the caller's environment does not change the report of the build.
    assert made.set_up(ROCKETBOX_PURE="1")[-1] == "hot path: compiled"


def test_where_it_is_required_a_compiler_is_installed(tmp_path):
    made = Checkout(tmp_path / "checkout")
    real = tools_without_a_compiler(tmp_path / "bin")
    # In place of apt-get, which would need root: the requested compiler appears.
    gcc = shutil.which("gcc")
    installing = f'install_packages() {{ say "installing $*"; ln -s {gcc} {real}/gcc; }};'
    said = made.set_up(f"compiled=required; {installing}", PATH=real, CC="gcc")
    assert said[0] == INSTALLING
    assert said[1].startswith("installing gcc")
    assert said[2:] == ["hot path: compiled"]


def test_ci_requires_the_compiled_part():
    text = (ROOT / "script" / "test").read_text()
    assert '[ -z "${CI:-}" ] || compiled=required\nensure_venv' in text
