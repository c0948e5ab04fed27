"""The choice of the twin that this process uses, and its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import ModuleType

from ..named_tuple import NamedTuple
from ..translatable import gettext_noop
from .building import mark_of_sources

#: Reasons to run the pure twin: code -> sentence without a full stop.
REASONS = {
    "pure_asked": gettext_noop("ROCKETBOX_PURE is set"),
    "pure_not_built": gettext_noop("the compiled part was not built"),
    "pure_other_sources": gettext_noop("the compiled part was built from other sources"),
    "pure_not_loaded": gettext_noop("the compiled part cannot be loaded: %(error)s"),
}


class Choice(NamedTuple):
    """reason: a key of REASONS, "" if the compiled twin runs. error: the error that loading it raised."""

    twin: ModuleType
    reason: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """Name for programs: "compiled" or "pure"."""
        return "pure" if self.reason else "compiled"

    @property
    def why_pure(self) -> str:
        """Return the reason in words; "" if the compiled twin runs."""
        return REASONS[self.reason] % {"error": self.error} if self.reason else ""

    @property
    def text(self) -> str:
        """Text for people: "compiled", or "pure Python (why)"."""
        return f"pure Python ({self.why_pure})" if self.reason else "compiled"


def choose(environment: Mapping[str, str], pure: ModuleType, load: Callable[[], ModuleType], directory: str) -> Choice:
    """Return the compiled twin if it exists and fits, unless ROCKETBOX_PURE says otherwise.

    load: imports the compiled twin. directory: where its sources would be.
    """
    if environment.get("ROCKETBOX_PURE", "").lower() not in ("", "0", "false", "no"):
        return Choice(pure, "pure_asked")
    try:
        compiled = load()
    except Exception as error:  # any error of a library built for something else: pure Python serves
        if find_spec(f"{__package__}._compiled") is None:
            return Choice(pure, "pure_not_built")
        return Choice(pure, "pure_not_loaded", " ".join(str(error).split()) or type(error).__name__)
    mark = mark_of_sources(directory)
    built_from = (getattr(compiled, "INTERFACE", None), getattr(compiled, "SOURCES", None))
    if built_from != (pure.INTERFACE, built_from[1] if mark is None else mark):
        return Choice(pure, "pure_other_sources")
    return Choice(compiled)
