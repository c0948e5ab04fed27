"""Checks if this machine can run Spark: Python, packages, Java, memory, room for temporary files; and how to mend it.

Imports nothing large, so that the broker's process may use it: packages are looked up by their metadata,
and Java is called in a child process.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from appliance.engine.translatable import gettext_noop as _

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
#: name -> (oldest version that fits, first later one that does not; () for none). pyproject.toml has the same.
PACKAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "pyspark": ((4, 3), (4, 4)),
    "pandas": ((2, 2), (3,)),
    "pyarrow": ((18,), ()),
    "numpy": ((1, 26), ()),
}
#: Needs of a nightly run: memory, Java's 1 GiB and Python's workers; room for what Spark spills to disk.
MEMORY_BYTES = 2 << 30
ROOM_BYTES = 1 << 30

#: code -> sentence about the missing thing.
WHATS: dict[str, str] = {
    "python_old": _("Spark needs Python 3.11 or newer, and this is %(version)s."),
    "packages_missing": _("Spark's Python packages are not installed: %(names)s."),
    "package_wrong": _("%(name)s %(version)s does not fit: reports need %(wanted)s."),
    "package_broken": _("%(name)s is installed, but its version cannot be read: %(version)s."),
    "java_missing": _("There is no Java on this machine; Spark needs Java 17 or newer."),
    "java_old": _("Java %(version)s in %(home)s is too old: Spark needs Java 17 or newer."),
    "java_home_empty": _("JAVA_HOME is %(home)s, where there is no bin/java."),
    "java_broken": _("%(path)s does not say which Java it is: %(reason)s."),
    "user_unnamed": _("User %(uid)s has no name on this machine, and Spark does not start for a user without one."),
    "room_small": _("%(place)s, where Spark keeps temporary files, has %(free)s free, and a run may need %(needed)s."),
    "room_refused": _("%(place)s, where Spark keeps temporary files, cannot be written: %(reason)s."),
    "memory_small": _("%(free)s of memory are free, and a run needs %(needed)s."),
}
#: code -> instruction to mend it.
HOWS: dict[str, str] = {
    "python": _("install a newer Python, remove .venv, and start again"),
    "checkout": _("script/server --reports --install-only installs Java and Spark once, while this server runs"),
    "image": _("use the image that docker build --target reports makes; it has Java and Spark"),
    "one_file": _("the one-file program has no Spark in it: run RocketBox from a checkout, or install it with pip"),
    "pip": _("pip install 'rocketbox[console,reports]', and install Java 17 or newer"),
    "java_home": _("set JAVA_HOME to the directory of Java 17 or newer, or unset it, and start again"),
    "java": _("install Java 17 or newer, and set JAVA_HOME to its directory"),
    "user": _("run as a user that has a name, or add a line for this one to /etc/passwd"),
    "room": _("make room, or set TMPDIR to a place with more and start again"),
    "right": _("make it writable for this user, or set TMPDIR to another place and start again"),
    "memory": _("give this machine or container more memory, or stop something"),
}
#: Directory into which the Dockerfile installs.
IMAGE = Path("/opt/rocketbox")
#: Result of way() -> command, for a page that shows one.
COMMANDS = {
    "checkout": "script/server --reports --install-only",
    "image": "docker build --target reports .",
    "pip": "pip install 'rocketbox[console,reports]'",
}


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that keeps Spark from running. code: its line in WHATS. mend: its line in HOWS. args: values for the
    placeholders of both. is_passing: it may pass by itself within an hour, like memory that other programs use."""

    code: str
    mend: str
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        return WHATS[self.code] % self.args

    @property
    def how(self) -> str:
        return HOWS[self.mend] % self.args

    @property
    def is_passing(self) -> bool:
        return self.code in ("memory_small", "room_small")

    def __str__(self) -> str:
        return f"{self.what} -> {self.how}"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered. home: the value for JAVA_HOME. version: as it reports it, "17.0.15"."""

    home: str
    version: str

    @property
    def major(self) -> int:
        first, *more = (int(number) for number in re.findall(r"\d+", self.version))
        return more[0] if first == 1 and more else first  # 1.8 is 8

    @property
    def will_do(self) -> bool:
        return self.major >= OLDEST_JAVA


def what_is_missing(place: Path | None = None, memory_bytes: int = MEMORY_BYTES) -> tuple[Missing, ...]:
    """Return all that keeps a run from starting now, () if nothing does. place: directory of Spark's temporary files,
    by default the system's. memory_bytes: needed by the run. Takes 0.1 s the first time, for Java."""
    found = [*_python(sys.version_info[:3]), *packages(), *java_missing(), *user()]
    found += room(place or Path(tempfile.gettempdir()))
    return (*found, *memory(memory_bytes))


def is_installed() -> bool:
    """True if PySpark is installed, so that reports were set up here. Then missing things deserve a warning; without it
    nothing is wrong."""
    return bool(installed("pyspark"))


def environment() -> dict[str, str]:
    """Return variables for a process that starts Spark: the Java that was found, and this Python for the workers."""
    java = find_java()
    found = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return found | ({"JAVA_HOME": java.home} if java is not None else {})


def way() -> str:
    """Return how Spark and Java are added here, a key of HOWS: "checkout", "image", "one_file" or "pip"."""
    here = Path(__file__)
    if (here.parents[1] / "script" / "server").exists():
        return "checkout"
    if not here.exists():
        return "one_file"
    return "image" if Path(sys.prefix) == IMAGE else "pip"


# --- Python and its packages


def _python(version: Sequence[int]) -> Iterator[Missing]:
    if tuple(version) < OLDEST_PYTHON:
        yield Missing("python_old", "python", {"version": ".".join(map(str, version))})


def installed(name: str) -> str | None:
    """Return the version of a package, without importing it; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name) or ""
    except PackageNotFoundError:
        return None


def packages() -> Iterator[Missing]:
    versions = {name: installed(name) for name in PACKAGES}
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        yield Missing("packages_missing", way(), {"names": ", ".join(absent)})
    for name, version in versions.items():
        if version is None:
            continue
        oldest, first_wrong = PACKAGES[name]
        number = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        if not number:
            yield Missing("package_broken", way(), {"name": name, "version": version})
        elif number < oldest or (first_wrong and number >= first_wrong):
            yield Missing("package_wrong", way(), {"name": name, "version": version, "wanted": wanted(name)})


def wanted(name: str) -> str:
    """Return the versions that fit as text, "4.3 or newer, below 4.4"."""
    oldest, first_wrong = (".".join(map(str, version)) for version in PACKAGES[name])
    return f"{oldest} or newer" + (f", below {first_wrong}" if first_wrong else "")


# --- Java


class _Answers:
    """Answers of Java programs, kept for a minute, so that a page that is often loaded starts no Java each time."""

    KEPT_S = 60.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Java | str]] = {}

    def of(self, program: str) -> Java | str:
        with self._lock:
            at, answer = self._known.get(program, (0.0, ""))
            if not at or time.monotonic() - at > self.KEPT_S:
                answer = ask_java(program)
                self._known[program] = (time.monotonic(), answer)
            return answer

    def forget(self) -> None:
        with self._lock:
            self._known.clear()


answers = _Answers()


def find_java() -> Java | None:
    """Return the first Java that fits, of JAVA_HOME, the PATH, /usr/lib/jvm; None if none does."""
    for program in _programs():
        answer = answers.of(program)
        if isinstance(answer, Java) and answer.will_do:
            return answer
    return None


def java_missing() -> Iterator[Missing]:
    """Yield nothing if any Java fits; else what is wrong with the first one that was found."""
    if find_java() is not None:
        return
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        yield Missing("java_home_empty", "java_home", {"home": home})
        return
    for program in _programs():
        answer = answers.of(program)
        if isinstance(answer, Java):
            yield Missing("java_old", _java_way(), {"version": answer.version, "home": answer.home})
        else:
            yield Missing("java_broken", "java", {"path": program, "reason": answer})
        return
    yield Missing("java_missing", _java_way())


def _java_way() -> str:
    return way() if way() in ("checkout", "image") else "java"


def user() -> Iterator[Missing]:
    """Yield a problem if this user has no name: containers run as any number, but Hadoop's login, which Spark needs,
    fails then."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        yield Missing("user_unnamed", "user", {"uid": str(os.geteuid())})


def java_home_notice() -> str:
    """Return a sentence if JAVA_HOME names no Java that fits and reports use another one, else ""."""
    home, java = os.environ.get("JAVA_HOME"), find_java()
    if not home or java is None:
        return ""
    own = answers.of(str(Path(home) / "bin" / "java"))
    if isinstance(own, Java) and own.will_do:
        return ""
    why = f"Java {own.version}" if isinstance(own, Java) else "no Java that runs"
    return f"JAVA_HOME is {home}, where there is {why}; reports use {java.home}."


#: Directory in which systems install Java.
PLACES = Path("/usr/lib/jvm")


def _programs() -> Iterator[str]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home and (Path(home) / "bin" / "java").exists():
        yield str(Path(home) / "bin" / "java")
    if on_path:
        yield on_path
    yield from map(str, sorted(PLACES.glob("*/bin/java")))


def ask_java(program: str, seconds: float = 20.0) -> Java | str:
    """Return the Java that a program is, or the reason why it is unknown."""
    try:
        said = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {seconds:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    text = said.stdout.decode("utf-8", "replace")
    known = dict(re.findall(r"(?m)^ +(java\.home|java\.version) = (.+?)\s*$", text))
    if said.returncode or len(known) < 2 or not re.search(r"\d", known["java.version"]):
        lines = text.strip().splitlines()
        return lines[0][:200] if lines else f"it ended with status {said.returncode} and said nothing"
    home = known["java.home"]
    # The runtime inside a Java 8: Spark needs the directory above it.
    return Java(home.removesuffix("/jre"), known["java.version"])


# --- room and memory


def room(place: Path, needed: int = ROOM_BYTES) -> Iterator[Missing]:
    there = place
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        yield Missing("room_refused", "right", {"place": str(place), "reason": error.strerror or str(error)})
        return
    if not os.access(there, os.W_OK | os.X_OK):
        reason = "this user has no right to" if there.is_dir() else "it is no directory"
        yield Missing("room_refused", "right", {"place": str(place), "reason": reason})
    elif free < needed:
        yield Missing("room_small", "room", {"place": str(place), "free": size(free), "needed": size(needed)})


def memory(needed: int = MEMORY_BYTES) -> Iterator[Missing]:
    free = free_memory()
    if free is not None and free < needed:
        yield Missing("memory_small", "memory", {"free": size(free), "needed": size(needed)})


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that a new process can have, by the machine and each control group above this process; None if
    unknown. root: of the file system, for tests."""
    found = []
    try:
        match = re.search(r"(?m)^MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text())
        if match:
            found.append(int(match[1]) * 1024)
        own = re.search(r"(?m)^0::/(.*)$", (root / "proc/self/cgroup").read_text())
        found += _left_in_groups(root / "sys/fs/cgroup", own[1]) if own else []
    except OSError:
        pass
    return min(found) if found else None


def _left_in_groups(top: Path, own: str) -> list[int]:
    """Return the bytes that each group with a limit has left; inactive pages of files count as free, since the kernel
    takes them back."""
    found = []
    place = top / own
    while True:
        try:
            limit = (place / "memory.max").read_text().strip()
            used = int((place / "memory.current").read_text())
            statistics = (place / "memory.stat").read_text()
        except (OSError, ValueError):
            limit = "max"
        if limit != "max":
            files = re.search(r"(?m)^inactive_file (\d+)$", statistics)
            found.append(int(limit) - used + (int(files[1]) if files else 0))
        if place == top or top not in place.parents:
            return found
        place = place.parent


def size(amount: int) -> str:
    """Return a size as text, "1.5 GiB"; in whole MiB below a GiB."""
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{max(amount, 0) >> 20} MiB"
