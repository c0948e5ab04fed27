"""The kinds of jobs: each has a name, a function, and the rules for who may start its jobs and see their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from django.utils.functional import Promise

from ..users.roles import ADMIN, Rule

if TYPE_CHECKING:
    from .work import Work

Text: TypeAlias = str | Promise


@dataclass(frozen=True, slots=True)
class Kind:
    """title: what it does, in the reader's language. start: who may start and cancel it. fetch: who may see it and take
    its files. words: its units and the names of its counts, for pages; bad: the counts that are failures. goes_on: it
    runs again after a restart. alone: only one of this kind may wait or run at a time. about: "topic" or "group" if all
    names of its jobs are names of topics or of groups, else "".
    """

    name: str
    title: Text
    run: Callable[[Work], None]
    start: Rule
    fetch: Rule
    words: Mapping[str, Text] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    goes_on: bool = False
    alone: bool = False
    about: str = ""

    def word(self, name: str) -> str:
        """Return the words for a unit or a count, in the reader's language."""
        return str(self.words.get(name, name.replace("_", " ")))


_kinds: dict[str, Kind] = {}


def kind(
    name: str, *, title: Text, start: Rule, fetch: Rule | None = None, **more: Any
) -> Callable[[Callable[[Work], None]], Callable[[Work], None]]:
    """Register a function as a kind of job. Without `fetch`, users who may start it may see it. more: further fields
    of Kind."""

    def register(run: Callable[[Work], None]) -> Callable[[Work], None]:
        assert name not in _kinds or _kinds[name].run.__module__ == run.__module__, f"two kinds are called {name}"
        _kinds[name] = Kind(name, title, run, start, fetch or start, **more)
        return run

    return register


def kinds() -> dict[str, Kind]:
    """Return all kinds by name."""
    import_module(f"{__package__}.known")  # registers them
    return _kinds


def kind_of(name: str) -> Kind:
    """Return the kind of this name. For a name that this version lacks, return a kind for administrators only."""
    found = kinds().get(name)
    return found or Kind(name, name, _nothing, ADMIN, ADMIN)


def _nothing(work: Work) -> None:
    raise LookupError(f"there is no kind of job called {work.job.kind}")
