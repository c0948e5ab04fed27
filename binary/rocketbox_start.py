"""The first Python code in the one-file build: finds modules and files of the program inside the executable.

`start` installs a finder for everything that build.py has put there. To Python and to the program it looks as if the
executable were a directory: the `__file__` of `appliance.settings` is EXECUTABLE/appliance/settings.py. Nothing else is
ever imported: no directory, no PYTHONPATH.
"""

import _imp
import marshal
import os
import sys
from _frozen_importlib import ModuleSpec

MODULE, PACKAGE, EXTENSION = range(3)


class Inside:
    """What lies in the executable; a finder, and the loader of every module it finds.

    contents: `modules`, name -> (kind, begin, size, libraries it needs); `libraries`, name -> (begin, size, libraries);
    `files`, path -> (begin, size).
    """

    def __init__(self, program: int, contents: dict, in_memory: bool) -> None:
        self._program = program
        self._modules = contents["modules"]
        self._libraries = contents["libraries"]
        self.files = contents["files"]
        self._in_memory = in_memory
        self._loaded = 0
        self.root = sys.executable

    def read(self, begin: int, size: int) -> bytes:
        found = os.pread(self._program, size, begin)
        if len(found) != size:
            raise ImportError(f"{self.root} is shorter than it was made")
        return found

    # What a finder has.

    def find_spec(self, name, path=None, target=None):
        found = self._modules.get(name)
        if found is None:
            return None
        spec = ModuleSpec(name, self, origin=self.get_filename(name), is_package=found[0] == PACKAGE)
        if found[0] == PACKAGE:
            spec.submodule_search_locations = [self._place(name)]
        spec.has_location = True
        return spec

    # What a loader has.

    def create_module(self, spec):
        kind, begin, size, needs = self._modules[spec.name]
        if kind != EXTENSION:
            return None
        for name in needs:
            self._need(name)
        path, fd = self.as_file(spec.name, begin, size)
        try:
            return _imp.create_dynamic(ModuleSpec(spec.name, self, origin=path))
        finally:
            os.close(fd)

    def exec_module(self, module) -> None:
        name = module.__spec__.name
        if self._modules[name][0] == EXTENSION:
            _imp.exec_dynamic(module)
        else:
            exec(self.get_code(name), module.__dict__)
        if name in _ADAPTED:
            _ADAPTED[name](self, module)

    def get_code(self, name):
        kind, begin, size, _ = self._modules[name]
        return None if kind == EXTENSION else marshal.loads(self.read(begin, size))

    def get_source(self, name):
        return None

    def is_package(self, name) -> bool:
        return self._modules[name][0] == PACKAGE

    def get_filename(self, name) -> str:
        kind = self._modules[name][0]
        return self._place(name) + ("/__init__.py", ".py", ".so")[(kind == MODULE) + 2 * (kind == EXTENSION)]

    def get_data(self, path) -> bytes:
        """The content of a file; FileNotFoundError."""
        found = self.files.get(self._inner(path))
        if found is None:
            with open(path, "rb") as file:
                return file.read()
        return self.read(*found)

    # What our own program asks a loader for, and what the modules below need.

    def names_below(self, directory) -> list[str]:
        """The files below a directory, relative to it."""
        start = self._inner(directory) + "/"
        return sorted(path[len(start) :] for path in self.files if path.startswith(start))

    def has(self, path) -> bool:
        return self._inner(path) in self.files

    def below(self, package: str) -> list[tuple[str, bool]]:
        """The modules of a package, and whether each is a package."""
        start = package + "." if package else ""
        names = [name for name in self._modules if name.startswith(start) and "." not in name[len(start) :]]
        return [(name[len(start) :], self.is_package(name)) for name in sorted(names)]

    def package_at(self, path: str) -> str | None:
        """The name of a package by its `__path__`."""
        return self._inner(path).replace("/", ".") if path.startswith(self.root) else None

    def _place(self, name: str) -> str:
        return f"{self.root}/{name.replace('.', '/')}"

    def _inner(self, path) -> str:
        return os.fspath(path)[len(self.root) + 1 :] if os.fspath(path).startswith(self.root + "/") else ""

    # Shared libraries.

    def _need(self, name: str) -> None:
        """Load a library that others were linked with: the C library finds it by its name from then on."""
        found = self._libraries.get(name)
        if found is None:
            return
        del self._libraries[name]
        begin, size, needs = found
        for other in needs:
            self._need(other)
        import _ctypes

        path, fd = self.as_file(name, begin, size)
        _ctypes.dlopen(path, os.RTLD_NOW)
        os.close(fd)

    def as_file(self, name: str, begin: int, size: int) -> tuple[str, int]:
        """A part of the executable as a file of its own, as launcher.c does it; its path, which is used once. Where it
        is loaded /proc/PID/maps shows its name."""
        if self._in_memory:
            try:
                fd = os.memfd_create(name, os.MFD_CLOEXEC | 0x10)  # MFD_EXEC
            except OSError:  # before Linux 6.3
                fd = os.memfd_create(name, os.MFD_CLOEXEC)
        else:
            fd = os.open(os.environ.get("TMPDIR") or "/tmp", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o700)
        at, end = begin, begin + size
        while at < end:
            sent = os.sendfile(fd, self._program, at, end - at)
            if not sent:
                raise ImportError(f"{self.root} is shorter than it was made")
            at += sent
        self._loaded += 1
        return f"/proc/self/fd/{'./' * self._loaded}/{fd}", fd


class _Directory:
    """What `pkgutil` asks for the modules of a package."""

    def __init__(self, inside: Inside, package: str) -> None:
        self._inside = inside
        self._package = package

    def find_spec(self, name, target=None):
        return None  # `Inside` itself finds everything

    def iter_modules(self, prefix: str = ""):
        return [(prefix + name, is_package) for name, is_package in self._inside.below(self._package)]


# Modules of others that open files of the program by their path.


def _adapt_gettext(inside: Inside, module) -> None:
    ordinary = module.find

    def find(domain, localedir=None, languages=None, all=False):
        paths = [f"{localedir}/{language}/LC_MESSAGES/{domain}.mo" for language in languages or ()]
        found = [path for path in paths if inside.has(path)]
        if not found:
            return ordinary(domain, localedir, languages, all)
        return found if all else found[0]

    module.find = find
    module.open = _opener(inside)


def _adapt_templates(inside: Inside, module) -> None:
    module.open = _opener(inside)


def _opener(inside: Inside):
    import io

    def open_inside(path, mode="r", encoding=None, **others):
        if not inside.has(path):
            return open(path, mode, encoding=encoding, **others)
        content = io.BytesIO(inside.get_data(path))
        return content if "b" in mode else io.TextIOWrapper(content, encoding=encoding)

    return open_inside


def _adapt_time_zones(inside: Inside, module) -> None:
    ordinary = module.load_tzdata

    def load_tzdata(key):
        """The one time zone that is always needed, where the machine has none."""
        if key != "UTC":
            return ordinary(key)
        import io
        import struct

        counts = struct.pack(">6l", 0, 0, 0, 0, 1, 4)
        header, data = b"TZif2" + bytes(15) + counts, struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
        return io.BytesIO(header + data + header + data + b"\nUTC0\n")

    module.load_tzdata = load_tzdata


def _adapt_certificates(inside: Inside, module) -> None:
    kept = []

    def where() -> str:
        """A path for OpenSSL, which reads files only. It is that of a file in memory as long as this process lives."""
        if not kept:
            kept.extend(inside.as_file("cacert.pem", *inside.files["certifi/cacert.pem"]))
        return kept[0]

    module.where = where


_ADAPTED = {
    "certifi.core": _adapt_certificates,
    "gettext": _adapt_gettext,
    "django.template.loaders.filesystem": _adapt_templates,
    "zoneinfo._common": _adapt_time_zones,
}


def start(program: int, begin: int, size: int, in_memory: int) -> None:
    """From here on everything is found in the executable, which is open as `program`; its table lies at `begin`."""
    contents = marshal.loads(os.pread(program, size, begin))
    inside = Inside(program, contents, bool(in_memory))

    def directory(path):
        package = inside.package_at(path)
        if package is None:
            raise ImportError
        return _Directory(inside, package)

    frozen = [finder for finder in sys.meta_path if finder.__name__ in ("BuiltinImporter", "FrozenImporter")]
    sys.meta_path[:] = [*frozen, inside]
    sys.path_hooks[:] = [directory]
    sys.path_importer_cache.clear()
    sys.path[:] = []
    sys.argv[0] = "rocketbox"
