"""The reasons why Spark cannot run on a machine: each case is made, and its report checked."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spark_reports import machine
from spark_reports.machine import Java, Missing
from tests.support.waiting import ends

ROOT = Path(__file__).parents[2]


def whats(found) -> list[str]:
    return [one.what for one in found]


@pytest.fixture(autouse=True)
def _asked_anew():
    machine.answers.forget()
    yield
    machine.answers.forget()


def test_nothing_is_missing_where_the_tests_run():
    assert not [str(one) for one in machine.what_is_missing() if not one.is_passing]
    assert machine.is_installed()


def test_every_sentence_can_be_said_and_every_command_is_in_its_sentence():
    args = dict.fromkeys(
        ("version", "names", "name", "wanted", "home", "path", "reason", "place", "free", "needed", "uid"), "x"
    )
    for code in machine.WHATS:
        for mend in machine.HOWS:
            assert "%" not in str(Missing(code, mend, args)), (code, mend)
    for way, command in machine.COMMANDS.items():
        assert command.rstrip(" .") in machine.HOWS[way]


@pytest.mark.parametrize(
    ("here", "prefix", "way"),
    [
        ("checkout/spark_reports/machine.py", "/venv", "checkout"),
        ("site-packages/spark_reports/machine.py", "/venv", "pip"),
        ("site-packages/spark_reports/machine.py", "/opt/rocketbox", "image"),
        ("rocketbox/spark_reports/machine.py", "/", "one_file"),
    ],
)
def test_how_it_is_added_depends_on_how_the_program_was_installed(here, prefix, way, tmp_path, monkeypatch):
    (tmp_path / "rocketbox").touch()
    (tmp_path / "checkout" / "script").mkdir(parents=True)
    (tmp_path / "checkout" / "script" / "server").touch()
    if way != "one_file":
        (tmp_path / here).parent.mkdir(parents=True)
        (tmp_path / here).touch()
    monkeypatch.setattr(machine, "__file__", str(tmp_path / here))
    monkeypatch.setattr(sys, "prefix", prefix)
    assert machine.way() == way
    assert f"python -m venv {machine.IMAGE}" in (ROOT / "Dockerfile").read_text()


# --- packages


def test_the_package_says_the_same_versions():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["reports"]
    ours = []
    for name in sorted(machine.PACKAGES):
        oldest, first_wrong = (".".join(map(str, version)) for version in machine.PACKAGES[name])
        ours.append(f"{name}>={oldest}" + (f",<{first_wrong}" if first_wrong else ""))
    assert sorted(extra) == ours


def test_without_packages_all_are_named_and_nothing_is_imported():
    code = (
        "import sys; from spark_reports import machine; print(*machine.packages(), sep='\\n');"
        "assert not machine.is_installed(); assert not {'pyspark', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    # -S: without site-packages.
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Spark's Python packages are not installed: pyspark, pandas, pyarrow, numpy. -> script/server --reports "
        "--install-only installs Java and Spark once, while this server runs\n"
    )


def test_asking_imports_none_of_them():
    code = (
        "import sys; from spark_reports import machine; machine.what_is_missing();"
        "print({'pyspark', 'numpy', 'pandas', 'pyarrow', 'py4j'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize(
    ("name", "version", "what"),
    [
        ("pandas", "3.0.1", "pandas 3.0.1 does not fit: reports need 2.2 or newer, below 3."),
        ("pandas", "2.1.4", "pandas 2.1.4 does not fit: reports need 2.2 or newer, below 3."),
        ("pyspark", "3.5.8", "pyspark 3.5.8 does not fit: reports need 4.3 or newer, below 4.4."),
        ("pyspark", "4.4.0.dev1", "pyspark 4.4.0.dev1 does not fit: reports need 4.3 or newer, below 4.4."),
        ("pyarrow", "17.0.0", "pyarrow 17.0.0 does not fit: reports need 18 or newer."),
        ("numpy", "unknown", "numpy is installed, but its version cannot be read: unknown."),
        ("pandas", "2.2", None),
        ("pandas", "2.3.3+local", None),
        ("pyspark", "4.3.0rc1", None),
        ("pyarrow", "100.0", None),
    ],
)
def test_versions_that_do_not_fit_are_named_with_those_that_do(name, version, what, tmp_path, monkeypatch):
    place = tmp_path / f"{name}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert whats(machine.packages()) == ([what] if what else [])


def test_one_that_is_missing_is_named_alone(monkeypatch):
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: None if name == "pyarrow" else real(name))
    assert whats(machine.packages()) == ["Spark's Python packages are not installed: pyarrow."]


@pytest.mark.parametrize(("version", "fits"), [((3, 10, 14), False), ((3, 11, 0), True), ((3, 14, 1), True)])
def test_python(version, fits):
    found = list(machine._python(version))
    assert fits == (not found)
    assert fits or found[0].what == "Spark needs Python 3.11 or newer, and this is 3.10.14."


# --- Java


def fake_java(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def says(home: Path, version: str, inner: str = "") -> str:
    """Return a shell script that prints what Java prints, on its standard error."""
    return (
        f"cat >&2 <<'E'\nProperty settings:\n    java.home = {home}{inner}\n    java.version = {version}\n"
        f'    java.vm.version = 9.9.9\n\nopenjdk version "{version}"\nE'
    )


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without Java, and a directory to put Javas in."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(machine, "PLACES", tmp_path / "jvm")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cat", "sleep"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path


def test_the_java_here_says_where_it_is(monkeypatch):
    java = machine.find_java()
    assert java is not None
    assert java.major >= 17
    assert (Path(java.home) / "bin" / "java").exists()
    # Spark's scripts take Java from there.
    monkeypatch.setenv("JAVA_HOME", java.home)
    assert machine.environment() == {
        "JAVA_HOME": java.home, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
    }  # fmt: skip
    assert machine.java_home_notice() == ""


def test_without_any_java(bare):
    assert whats(machine.java_missing()) == ["There is no Java on this machine; Spark needs Java 17 or newer."]
    assert machine.find_java() is None
    assert "JAVA_HOME" not in machine.environment()


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", 8), ("11.0.22", 11), ("16", 16), ("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_old_and_new_ones_on_the_path(bare, monkeypatch, version, major):
    home = bare / "java"
    fake_java(home, says(home, version, "/jre" if major == 8 else ""))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    assert machine.answers.of(str(home / "bin" / "java")) == Java(str(home), version)
    assert Java("", version).major == major
    expected = [f"Java {version} in {home} is too old: Spark needs Java 17 or newer."]
    assert whats(machine.java_missing()) == ([] if major >= 17 else expected)


def test_a_java_home_that_points_nowhere(bare, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    (missing,) = machine.java_missing()
    assert missing.what == f"JAVA_HOME is {bare / 'gone'}, where there is no bin/java."
    assert missing.how == "set JAVA_HOME to the directory of Java 17 or newer, or unset it, and start again"


def test_a_wrong_java_home_is_passed_over_for_a_right_java_and_said(bare, monkeypatch):
    old, new = bare / "old", bare / "jvm" / "new"
    fake_java(old, says(old, "11.0.22"))
    fake_java(new, says(new, "21.0.2"))
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert not list(machine.java_missing())
    assert machine.environment()["JAVA_HOME"] == str(new)
    assert machine.java_home_notice() == f"JAVA_HOME is {old}, where there is Java 11.0.22; reports use {new}."
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    assert "where there is no Java that runs" in machine.java_home_notice()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "it ended with status 3 and said nothing"),
        ("echo 'Unrecognized option' >&2; exit 1", "Unrecognized option"),
        ("echo '    java.home = /x'; echo '    java.version = none'", "    java.home = /x"),
        ("printf '\\377\\376'", "\ufffd\ufffd"),
    ],
)
def test_programs_that_are_no_java(bare, monkeypatch, script, reason):
    program = fake_java(bare / "jvm" / "odd", script)
    assert whats(machine.java_missing()) == [f"{program} does not say which Java it is: {reason.strip()}."]


def test_one_that_hangs_is_not_waited_for(bare):
    program = fake_java(bare / "odd", "exec sleep 600")
    said = ends(lambda: machine.ask_java(str(program), 0.3), "it waits for the end of the program")
    assert said == "it did not answer within 0 s"
    program.chmod(0o644)
    assert machine.ask_java(str(program)) == "Permission denied"


def test_it_is_asked_once_a_minute(bare, monkeypatch):
    home = bare / "jvm" / "new"
    fake_java(home, f"echo asked >> {bare}/log\n{says(home, '17')}")
    for _ in range(5):
        assert not list(machine.java_missing())
    assert (bare / "log").read_text() == "asked\n"
    monkeypatch.setattr(machine._Answers, "KEPT_S", 0.0)
    assert not list(machine.java_missing())
    assert (bare / "log").read_text() != "asked\n"


# --- room and memory


def test_room(tmp_path):
    assert not list(machine.room(tmp_path / "not" / "yet"))
    (missing,) = machine.room(tmp_path, 1 << 60)
    assert missing.what.endswith("free, and a run may need 1073741824.0 GiB.")
    assert missing.is_passing
    (tmp_path / "file").touch()
    (missing,) = machine.room(tmp_path / "file")
    assert "cannot be written: it is no directory." in missing.what


def system(root: Path, available_kb: int, groups: dict[str, tuple[str, int, int]], own: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal:  99999 kB\nMemAvailable:  {available_kb} kB\n")
    (root / "proc/self/cgroup").write_text(f"0::{own}\n")
    for name, (limit, used, files) in groups.items():
        place = root / "sys/fs/cgroup" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.max").write_text(f"{limit}\n")
        (place / "memory.current").write_text(f"{used}\n")
        (place / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")
    return root


GIB = 1 << 30


@pytest.mark.parametrize(
    ("groups", "own", "left"),
    [
        ({}, "/", 8 * GIB),
        ({"a/b": ("max", 5, 0)}, "/a/b", 8 * GIB),
        ({"a/b": (str(3 * GIB), 2 * GIB, 0)}, "/a/b", GIB),
        ({"a/b": (str(3 * GIB), 2 * GIB, GIB)}, "/a/b", 2 * GIB),
        ({"a": (str(GIB), 5, 5), "a/b": ("max", 5, 0)}, "/a/b", GIB),
        ({"": (str(GIB), 0, 0)}, "/", GIB),
        ({"a": (str(GIB), 0, 0)}, "/../elsewhere", 8 * GIB),
    ],
)
def test_free_memory_is_the_least_of_machine_and_groups(tmp_path, groups, own, left):
    root = system(tmp_path, 8 * 1024 * 1024, groups, own)
    assert machine.free_memory(root) == left


def test_memory_is_said_with_what_is_needed_and_unknown_is_not_said(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 600 << 20)
    assert whats(machine.memory(2 << 30)) == ["600 MiB of memory are free, and a run needs 2.0 GiB."]
    assert not list(machine.memory(500 << 20))
    monkeypatch.setattr(machine, "free_memory", lambda: None)
    assert not list(machine.memory(2 << 30))


def test_where_the_system_says_nothing_of_memory(tmp_path):
    assert machine.free_memory(tmp_path) is None


def test_a_user_without_a_name(monkeypatch):
    def nobody(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    assert list(machine.user()) == []
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (missing,) = machine.user()
    assert missing.what.startswith("User 12345 has no name on this machine")
    assert missing in machine.what_is_missing()
    assert not missing.is_passing
