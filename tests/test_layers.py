"""Layers of the code: which packages may import which. A failure names the file and the rule that it breaks."""

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGINE = "appliance.engine"
#: Packages that only the Spark code may import: they are large, and a thread of the broker would wait for them.
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark")

# Path -> (packages that must not be imported there, the reason).
RULES = {
    "appliance/engine": (
        (
            *("django", "gunicorn", "asgiref", "appliance.console", "appliance.client", "appliance.runtime"),
            *("appliance.main", "spark_reports"),
        ),
        "the engine runs without Django and never calls upstairs",
    ),
    "appliance": (HEAVY, "these are for the process that makes reports, never for the broker's"),
    "spark_reports": (
        ("django", "gunicorn", "appliance.api", "appliance.runtime", "appliance.main", f"{ENGINE}.window"),
        "reports are made of files, far from the broker and its pages",
    ),
    "spark_reports/reports": ((*HEAVY, "appliance.console"), "reports are made of facts, whoever counted them"),
    "appliance/engine/protocol": (
        (
            *("socket", "threading", "logging", "time", "os", "selectors"),
            *(f"{ENGINE}.{part}" for part in ("remoting", "store", "broker", "namesrv", "engine", "config")),
        ),
        "protocol is pure: no I/O, no clock, no thread, no log",
    ),
    "appliance/engine/filter": (
        ("socket", "threading", "logging", "time", "os", f"{ENGINE}.remoting", f"{ENGINE}.store", f"{ENGINE}.broker"),
        "filter is pure and stands alone",
    ),
    "appliance/engine/store": (
        (f"{ENGINE}.remoting", f"{ENGINE}.broker", f"{ENGINE}.namesrv", f"{ENGINE}.engine"),
        "store knows no socket and no request code: callers hand it a predicate or a listener",
    ),
    "appliance/engine/remoting": (
        (f"{ENGINE}.store", f"{ENGINE}.broker", f"{ENGINE}.namesrv", f"{ENGINE}.engine"),
        "remoting carries commands and does not know what they mean",
    ),
    "appliance/engine/namesrv": (
        (f"{ENGINE}.store", f"{ENGINE}.broker", f"{ENGINE}.engine"),
        "the name server stands beside the broker, not on it",
    ),
    "appliance/engine/broker": (
        (f"{ENGINE}.namesrv", f"{ENGINE}.engine"),
        "the broker speaks to name servers over the wire only",
    ),
    "appliance/client": (
        (
            *("django", "gunicorn", "appliance.console", "appliance.api", "appliance.runtime", "appliance.main"),
            *("appliance.command_line", "appliance.commands"),
        ),
        "the client is for other people's programs: it installs without the server",
    ),
    "appliance/client_django": (
        (
            *("gunicorn", "appliance.console", "appliance.api", "appliance.runtime", "appliance.main", ENGINE),
            *("appliance.command_line", "appliance.commands", "appliance.settings"),
        ),
        "the app for Django projects installs with the client, without the server",
    ),
    "appliance/client/core": (
        (
            *("socket", "ssl", "threading", "asyncio", "logging", "time", "os", "selectors", "queue"),
            *("appliance.client.shells", "appliance.client.client", "appliance.client.notes"),
        ),
        "the client's core is pure: threads and asyncio are shells around the same objects",
    ),
    "appliance/console": (
        tuple(
            f"{ENGINE}.{part}"
            for part in ("engine", "remoting", "store", "broker", "namesrv", "protocol", "config", "window")
        ),
        "the console reaches the engine through appliance.runtime and its window only",
    ),
    "appliance/api": (
        tuple(
            f"{ENGINE}.{part}"
            for part in ("engine", "remoting", "store", "broker", "namesrv", "protocol", "config", "window")
        ),
        "the API reaches the engine through appliance.runtime and its window only, whose values are its answers",
    ),
}
# The rules are about code that runs: imports for the type checker do not count.

#: The window's values, with which the API answers.
VALUES = re.compile(rf"{re.escape(ENGINE)}\.window\.((\w+\.)?(\w+_)?snapshots|sentences)\b")


def imports_of(path: Path, annotations: bool = False) -> frozenset[str]:
    """Return the absolute names of everything a module imports at run time, also inside its functions.

    annotations: include imports for the type checker only.
    """
    found = _imports_of(path)
    return frozenset(name for name, for_types in found if annotations or not for_types)


@cache
def _imports_of(path: Path) -> frozenset[tuple[str, bool]]:
    """Return (name, True if it is for the type checker only) for each import of a module."""
    return frozenset(_read_imports(path))


def _read_imports(path: Path) -> Iterator[tuple[str, bool]]:
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name | ast.Attribute)
        and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        for_types = id(node) in for_types_only
        if isinstance(node, ast.Import):
            yield from ((alias.name, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, for_types
            yield from ((f"{module}.{alias.name}", for_types) for alias in node.names)


def test_relative_imports_are_resolved():
    names = imports_of(ROOT / "appliance/http_server.py")
    assert {"appliance.main.ignore_signals", "appliance.engine.config", "gunicorn.arbiter"} <= names


@pytest.mark.parametrize("directory", sorted(RULES))
def test_the_doors_open_one_way(directory):
    forbidden, sentence = RULES[directory]
    wrong = sorted(
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / directory).rglob("*.py")
        for name in imports_of(path)
        if any(name == door or name.startswith(door + ".") for door in forbidden)
        and not (directory == "appliance/api" and VALUES.match(name))
    )
    assert not wrong, f"{sentence}: {'; '.join(wrong)}"


def test_the_client_reaches_the_engine_through_one_door():
    """The door imports pure modules only: a wheel of the client contains only these, and replaces the door."""
    door = ROOT / "appliance/client/wire.py"
    wrong = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "appliance/client").rglob("*.py")
        if path != door
        for name in imports_of(path, annotations=True)
        if name.startswith("appliance.") and not name.startswith("appliance.client")
    }
    assert not wrong, "of the engine the client has what wire.py names"
    pure = ("appliance.engine.errors", "appliance.engine.fastjson", "appliance.engine.host_port")
    assert all(
        name.startswith((*pure, f"{ENGINE}.protocol.")) or name == "__future__.annotations" or name == "__future__"
        for name in imports_of(door)
    )


def test_the_django_app_reaches_the_client_through_one_door():
    """A wheel of the client has the app in another place, and replaces the door's imports."""
    app = ROOT / "appliance/client_django"
    wrong = {
        str(path.relative_to(ROOT))
        for path in app.rglob("*.py")
        if path != app / "sdk.py"
        for name in imports_of(path, annotations=True)
        if name.startswith("appliance.") and not name.startswith("appliance.client_django")
    }
    assert not wrong, "of the client the app has what sdk.py names"


# --- circles


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that reach each other by imports (Tarjan's strongly connected components)."""
    found: list[set[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for module in sorted(imports):
        if module not in number:
            visit(module)
    return found


def modules() -> dict[str, set[str]]:
    """Return each module of the product with the product's modules that it imports, those for annotations too."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "appliance").rglob("*.py")
    }
    return {name: set(_modules_of(imports_of(path, True), paths.keys())) - {name} for name, path in paths.items()}


def _modules_of(names: Set[str], known: Set[str]) -> Iterator[str]:
    """Yield the modules behind imported names: `from .package import module` imports that module, and
    `from .package import Name` imports the package itself."""
    for name in names:
        package = name.rpartition(".")[0]
        if name not in known:
            if package in known:
                yield package
        elif not any(more.startswith(f"{name}.") for more in names):
            yield name


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}}) == [
        {"a", "b", "c"},
        {"e", "f"},
    ]


#: In a larger circle of imports a reader finds no place to begin.
LARGEST_CIRCLE = 3


def test_modules_do_not_import_each_other_in_large_circles():
    large = [sorted(circle) for circle in circles(modules()) if len(circle) > LARGEST_CIRCLE]
    assert not large, "give each the parts it uses, not what holds them"


def test_nothing_reaches_past_the_window():
    """Only `runtime`, which hands out the window, uses `running().engine`."""
    wrong = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "appliance").rglob("*.py")
        if path != ROOT / "appliance/runtime.py" and "running" in path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "engine"
        and ast.unparse(node.value).removesuffix("()").rpartition(".")[2] in ("running", "_running")
    )
    assert not wrong
