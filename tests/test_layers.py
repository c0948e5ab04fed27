"""Which way the doors open: who may import whom. A failure names the file and the sentence that was forgotten."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGINE = "appliance.engine"

# Where -> (what must not be imported there, why).
RULES = {
    "appliance/engine": (
        ("django", "gunicorn", "asgiref", "appliance.console", "appliance.runtime", "appliance.main"),
        "the engine runs without Django and never calls upstairs",
    ),
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
        "the API reaches the engine through appliance.runtime and its window only",
    ),
}
# The rules are about code that runs: names for the type checker open no door.


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of everything a module imports at run time, also inside its functions."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_relative_imports_are_resolved():
    names = set(imports_of(ROOT / "appliance/http_server.py"))
    assert {"appliance.main.ignore_signals", "appliance.engine.config", "gunicorn.arbiter"} <= names


@pytest.mark.parametrize("directory", sorted(RULES))
def test_the_doors_open_one_way(directory):
    forbidden, sentence = RULES[directory]
    wrong = sorted(
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / directory).rglob("*.py")
        for name in set(imports_of(path))
        if any(name == door or name.startswith(door + ".") for door in forbidden)
    )
    assert not wrong, f"{sentence}: {'; '.join(wrong)}"
