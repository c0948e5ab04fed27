"""Makes `appliance` the package of another directory, and puts what its engine lacks in its place.

Everything else (the acts, the oracle, the threads, the disk) is today's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

#: Modules that today's world names and the old engine lacks, with the names that are taken from each. What stands there
#: is never used: the acts that would are left out.
LACKING = {
    "access.parts": ("Access",),
    "access.policies": ("checked_entry",),
    "access.quotas": ("Quotas",),
    "broker.open_store": ("store_settings",),
    "protocol.signature": ("ACCESS_KEY", "SIGNATURE", "SigningKey", "signed_content"),
    "replication.shared_secret": ("Greeting",),
    "window.figures.lag": ("ConsumerLag",),
    "window.figures.lag_times": ("LagTimes",),
    "window.figures.measures": ("Measures",),
    "window.sources": ("Sources",),
    "window.topics.purge": ("TopicPurges",),
    "window.topics.schemas": ("TopicSchemas",),
    "window.window": ("Window",),
}
#: Acts of features that the old engine has not, or has in another way.
WITHOUT = frozenset({"backup", "connections", "purge", "quota", "requests", "rights", "schema", "user"})


class Account(NamedTuple):
    """A user of the wire; there is none."""

    name: str
    gone: bool = False


def use(directory: Path, anew: bool = False) -> None:
    """Call it before anything of the engine is imported. anew: the queues of a topic that is made again may begin at 0,
    as they did there."""
    assert "appliance" not in sys.modules, "today's engine is there already"
    path = directory / "appliance"
    spec = importlib.util.spec_from_file_location(
        "appliance", path / "__init__.py", submodule_search_locations=[str(path)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["appliance"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    _stand_in()
    from tests.world.older import parts  # needs them

    parts.translate()
    if anew:
        parts.begin_anew()


def _stand_in() -> None:
    for module, names in LACKING.items():
        _lacking(module, **dict.fromkeys(names))
    _lacking("access.book", Account=Account, BookRefusal=type("BookRefusal", (Exception,), {}))
    engine = importlib.import_module("appliance.engine.broker.broker")
    _lacking("disk", **vars(importlib.import_module("appliance.engine.store.disk")))
    _add("broker.registration", Network=engine.Network)
    _add("broker.role", NO_TIES=None, Ties=None)
    _add("config", Secret=str)
    _add("remoting.client", Greet=None)
    _add("backup", LogEnd=None)


def _lacking(name: str, **members: Any) -> None:
    module = ModuleType(f"appliance.engine.{name}")
    vars(module).update({member: value for member, value in members.items() if not member.startswith("__")})
    sys.modules[module.__name__] = module


def _add(name: str, **members: Any) -> None:
    vars(importlib.import_module(f"appliance.engine.{name}")).update(members)
