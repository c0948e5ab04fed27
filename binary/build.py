"""Builds the one-file program: launcher.c, and behind it everything that `rocketbox` needs to run.

    script/binary [FILE]          # dist/rocketbox; sets up .venv first

What goes in: the standard library but for what servers have no use for, the packages of requirements/console.txt, the
program with its pages, translations and compiled part, libpython, and the shared libraries that these were linked with
except for the C library's own. The same sources, packages and Python give the same file.
"""

from __future__ import annotations

import importlib._bootstrap_external  # type: ignore[import-not-found]
import importlib.metadata
import io
import marshal
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from rocketbox_start import EXTENSION, MODULE, PACKAGE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STDLIB = Path(sysconfig.get_path("stdlib"))
MARK = b"rocketbox's places are: "
LIBRARIES = 8  # launcher.c

#: Parts of the standard library that stay out: build tools, windows, terminals, tests, and the Python twin of _decimal.
STDLIB_LEFT_OUT = {
    *("test", "idlelib", "lib2to3", "tkinter", "turtledemo", "turtle", "ensurepip", "distutils", "pydoc_data", "venv"),
    *("site-packages", "dist-packages", "lib-dynload", "__phello__", "msilib", "curses", "dbm", "antigravity", "this"),
    *("_sysconfigdata", "_aix_support", "_bootsubprocess", "_osx_support", "sitecustomize", "xmlrpc"),
    *("_pydecimal", "_pyio", "imaplib", "mailbox", "nntplib", "poplib", "smtpd", "telnetlib", "aifc", "sunau", "wave"),
}
#: Extension modules of the standard library that stay out: tests, and what needs libraries that servers do not have.
EXTENSIONS_LEFT_OUT = re.compile(
    r"_test|_xxtest|xxlimited|_ctypes_test|_tkinter|_curses|readline|_dbm|_gdbm|nis|ossaudiodev|audioop|_crypt|spwd"
)
#: Packages that others ask for and nothing here imports: what sqlite-utils installs plug-ins with, what cffi compiles
#: with, and time zones, which come from the machine.
NOT_WANTED = {"pip", "pycparser", "tzdata"}
#: Parts of packages that stay out.
PACKAGES_LEFT_OUT = re.compile(
    r"django\.contrib\.(admin|admindocs|flatpages|gis|humanize|postgres|redirects|sitemaps|sites|syndication)\b"
    r"|django\.conf\.(app_template|project_template)\b|django\.conf\.locale\.(?!en\b|zh_Hans\b)\w+"
    r"|gunicorn\.workers\.(geventlet|ggevent|gtornado)|pydantic\.mypy|zstandard\.(_cffi|backend_cffi)"
)
#: Files of packages that are opened by their path; rocketbox_start.py sees to it.
FILES_OF_PACKAGES = re.compile(
    r"django/forms/templates/.*\.html|django/.*/locale/(en|zh_Hans)/LC_MESSAGES/django\.mo|certifi/cacert\.pem"
    r"|django/contrib/auth/common-passwords\.txt\.gz"
)
#: Libraries of the C library: these belong to the machine the program runs on.
OF_THE_MACHINE = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv|nsl|anl)\.so\.\d|ld-linux.*|linux-vdso.*")


class BuildError(Exception):
    """A sentence that says what is missing."""


class Bundle:
    """What will lie behind the launcher, and the table of it (`Inside` in rocketbox_start.py)."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._data = bytearray()
        self.modules: dict[str, tuple[int, int, int, list[str]]] = {}
        self.libraries: dict[str, tuple[int, int, list[str]]] = {}
        self.files: dict[str, tuple[int, int]] = {}
        self.newest_glibc = (0, 0)

    def add_source(self, path: Path, name: str, is_package: bool) -> None:
        self.add_code(path.read_bytes(), name, is_package)

    def add_code(self, source: bytes, name: str, is_package: bool = False) -> None:
        code = code_of(source, name, is_package)
        self.modules[name] = (PACKAGE if is_package else MODULE, *self._put(marshal.dumps(code)), [])

    def add_extension(self, path: Path, name: str) -> None:
        self.modules[name] = (EXTENSION, *self._put(self._library(path)), self._needed_by(path))

    def add_library(self, path: Path, name: str) -> None:
        if name not in self.libraries:
            self.libraries[name] = (0, 0, [])  # a circle ends here
            self.libraries[name] = (*self._put(self._library(path)), self._needed_by(path))

    def add_file(self, path: Path, name: str) -> None:
        self.files[name] = self._put(path.read_bytes())

    def written_behind(self, launcher: bytes, first: list[str]) -> bytes:
        """The whole program. first: the libraries that the launcher loads, in this order."""
        whole = bytearray(launcher)
        start = len(whole)
        whole += self._data

        def moved(entry: tuple) -> tuple:
            return (start + entry[0], *entry[1:])

        contents = {
            "modules": {name: (kind, *moved(rest)) for name, (kind, *rest) in sorted(self.modules.items())},
            "libraries": {name: moved(e) for name, e in sorted(self.libraries.items()) if name not in first},
            "files": {name: moved(entry) for name, entry in sorted(self.files.items())},
        }
        table = marshal.dumps(contents)
        places = [(len(whole), len(table)), *(moved(self.libraries[name])[:2] for name in first)]
        whole += table + first_modules()
        assert len(first) <= LIBRARIES
        at = launcher.index(MARK) + len(MARK)
        assert launcher.count(MARK) == 1
        for begin, size in places:
            whole[at : at + 16] = begin.to_bytes(8, "little") + size.to_bytes(8, "little")
            at += 16
        return bytes(whole)

    def _put(self, content: bytes) -> tuple[int, int]:
        begin = len(self._data)
        self._data += content
        return begin, len(content)

    def _library(self, path: Path) -> bytes:
        """Without what only debuggers read: some wheels are ten times as large with it."""
        self.look_at_glibc(path)
        copy = self._scratch / "stripped.so"
        run("strip", "--strip-unneeded", "-o", str(copy), str(path))
        content = copy.read_bytes()
        # Where this machine's Python looks for libraries is no place for a program that others run.
        place = str(libraries_directory()).encode() + b"\0"
        return content if place.startswith(b"/usr/") else content.replace(place, bytes(len(place)))

    def _needed_by(self, path: Path) -> list[str]:
        """The names of the libraries that this one was linked with; puts them in, too."""
        wanted = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", str(path)))
        wanted = [name for name in wanted if not OF_THE_MACHINE.fullmatch(name) and name != LIBPYTHON]
        if wanted:
            lines = run("ldd", str(path))
            found = dict(re.findall(r"^\s*(\S+) => (/\S+)", lines, re.MULTILINE))
            for name in wanted:
                if name not in found:
                    raise BuildError(f"{path.name} needs {name}, which is not there")
                self.add_library(Path(found[name]), name)
        return wanted

    def look_at_glibc(self, path: Path) -> None:
        versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("objdump", "-T", str(path)))
        self.newest_glibc = max([self.newest_glibc, *((int(major), int(minor)) for major, minor in versions)])


LIBPYTHON = sysconfig.get_config_var("INSTSONAME") or ""


def libraries_directory() -> Path:
    return Path(sysconfig.get_config_var("LIBDIR") or "/")


def run(*command: str) -> str:
    """The command's output; BuildError with what it said."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise BuildError(f"{command[0]} is missing") from None
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{shlex.join(command)} failed:\n{error.stderr}") from None


def code_of(source: bytes, name: str, is_package: bool) -> object:
    """The module's code; its file name is that inside the program, so that no directory of this machine is in it."""
    inside = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
    code = compile(source, inside, "exec", dont_inherit=True, optimize=0)
    return marshal.loads(marshal.dumps(code))  # what is shared depends on what else was compiled before


def first_modules() -> bytes:
    """What Python needs before our finder runs, as the ZIP file that Python itself reads at the end of a program."""
    packed = io.BytesIO()
    names = ["encodings/__init__", "encodings/aliases", "encodings/utf_8", "rocketbox_start"]
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            path = (HERE if name == "rocketbox_start" else STDLIB) / f"{name}.py"
            package, _, last = name.rpartition("/")
            is_package = last == "__init__"
            code = code_of(path.read_bytes(), package if is_package else name.replace("/", "."), is_package)
            content = importlib._bootstrap_external._code_to_timestamp_pyc(code, 0, 0)
            archive.writestr(zipfile.ZipInfo(f"{name}.pyc"), content)
    return packed.getvalue()


def modules_below(top: Path, prefix: str = "") -> Iterator[tuple[Path, str, bool]]:
    """Every source file below a directory: path, module's name, whether it is a package."""
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        yield path, ".".join([*([prefix] if prefix else []), *(parts[:-1] if is_package else parts)]), is_package


def extension_name(path: Path) -> str:
    return path.name.partition(".")[0]


def add_standard_library(bundle: Bundle) -> None:
    for path in sorted(STDLIB.iterdir()):
        name = path.name.removesuffix(".py")
        if name in STDLIB_LEFT_OUT or name.startswith(("_sysconfigdata", "config-")) or not name.isidentifier():
            continue
        if path.is_dir():
            for source, module, is_package in modules_below(path, name):
                if ".test" not in module:
                    bundle.add_source(source, module, is_package)
        elif path.suffix == ".py":
            bundle.add_source(path, name, False)
    # Of what Python knows about its own build only this is asked for; the rest is paths of this machine.
    known = {"TZPATH": "/usr/share/zoneinfo:/usr/lib/zoneinfo:/usr/share/lib/zoneinfo:/etc/zoneinfo"}
    name = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]
    bundle.add_code(f"build_time_vars = {known!r}\n".encode(), name)
    for path in sorted((STDLIB / "lib-dynload").glob("*.so")):
        if not EXTENSIONS_LEFT_OUT.match(path.name):
            bundle.add_extension(path, extension_name(path))


def locked_packages() -> dict[str, str]:
    """What requirements/console.txt holds for the running program: name -> version."""
    build_tools = re.findall(r"(?m)^([a-zA-Z][\w.-]*)", (ROOT / "requirements/build.in").read_text())
    lines = (ROOT / "requirements/console.txt").read_text()
    locked = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", lines))
    return {name: version for name, version in locked.items() if name not in {tool.lower() for tool in build_tools}}


def add_packages(bundle: Bundle) -> None:
    for wanted, version in sorted(locked_packages().items()):
        found = importlib.metadata.distribution(wanted)
        if wanted in NOT_WANTED:
            continue
        if found.version != version:
            raise BuildError(f"{wanted} {found.version} is installed, but {version} is locked")
        for file in sorted(found.files or [], key=str):
            path, name = Path(str(found.locate_file(file))), str(file)
            parts = file.parts
            if parts[0] in ("..", "__pycache__") or parts[0].endswith((".dist-info", ".libs")):
                continue
            module = ".".join([*parts[:-1], extension_name(path)])
            if path.suffix == ".py":
                is_package = parts[-1] == "__init__.py"
                module = module.removesuffix(".__init__") if is_package else module
                if not PACKAGES_LEFT_OUT.match(module):
                    bundle.add_source(path, module, is_package)
            elif path.suffix == ".so":
                if not PACKAGES_LEFT_OUT.match(module):
                    bundle.add_extension(path, module)
            elif FILES_OF_PACKAGES.fullmatch(name):
                bundle.add_file(path, name)


def add_program(bundle: Bundle, compiled_part: Path) -> None:
    # Of the reports those run that need no Spark; the rest is little, and says what is missing.
    for package in ("appliance", "spark_reports"):
        for path, module, is_package in modules_below(ROOT / package, package):
            bundle.add_source(path, module, is_package)
    bundle.add_extension(compiled_part, "appliance.engine.hotpath._compiled")
    for pattern in ("templates/**/*", "static/**/*", "appliance/**/*.mo"):
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                bundle.add_file(path, path.relative_to(ROOT).as_posix())


def built_compiled_part(scratch: Path) -> Path:
    """The hot path's extension module, built anew."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(scratch), "--build-temp", str(scratch)]
    environment = {**os.environ, "ROCKETBOX_COMPILED": "required"}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = sorted(scratch.rglob("_compiled*.so"))
    if said.returncode or not found:
        raise BuildError(f"the compiled part could not be built:\n{said.stdout}{said.stderr}")
    return found[0]


def built_launcher(scratch: Path) -> Path:
    target = scratch / "launcher"
    compiler = shlex.split(sysconfig.get_config_var("CC") or "gcc")[0]
    include = sysconfig.get_path("include")
    flags = ["-O2", "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter", f"-I{include}"]
    run(compiler, *flags, "-o", str(target), str(HERE / "launcher.c"), "-ldl", "-s", "-Wl,--build-id=none")
    return target


def build(target: Path) -> str:
    """Build the program; returns a sentence about it."""
    libpython = libraries_directory() / LIBPYTHON
    if not LIBPYTHON.count(".so") or not libpython.is_file():
        raise BuildError(f"{sys.executable} has no shared libpython: use a Python that was built with --enable-shared")
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        bundle = Bundle(scratch)
        launcher = built_launcher(scratch)
        bundle.look_at_glibc(launcher)
        add_standard_library(bundle)
        add_packages(bundle)
        add_program(bundle, built_compiled_part(scratch))
        bundle.add_library(libpython, LIBPYTHON)
        # Python needs its own libraries at once, and ctypes' to load all others.
        first = [*needed(bundle, bundle.libraries[LIBPYTHON][2]), LIBPYTHON]
        first = [*needed(bundle, bundle.modules["_ctypes"][3] if "_ctypes" in bundle.modules else []), *first]
        content = bundle.written_behind(launcher.read_bytes(), list(dict.fromkeys(first)))
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + ".new")
    new.write_bytes(content)
    new.chmod(0o755)
    os.replace(new, target)  # one that runs keeps its own
    version = ".".join(str(part) for part in bundle.newest_glibc)
    return f"{target}: {len(content) / 1e6:.1f} MB, needs Linux {os.uname().machine} with glibc {version} or newer"


def needed(bundle: Bundle, names: list[str]) -> list[str]:
    """These libraries behind those that they need."""
    found: list[str] = []
    for name in names:
        found += [*needed(bundle, bundle.libraries[name][2]), name]
    return found


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is in the bytecode
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    if shutil.which("strip") is None:
        sys.exit("binary/build.py: binutils is missing")
    try:
        print(build(Path(sys.argv[1] if sys.argv[1:] else "dist/rocketbox")))
    except BuildError as error:
        sys.exit(f"binary/build.py: {error}")
