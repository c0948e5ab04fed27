"""An expression that is ready to judge messages, and the cache of those in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from .nodes import property_names
from .parser import parse
from .program import Judge, compile_matches, compile_verdict

#: Up to this many characters, more expressions are remembered.
_SHORT = 1024


class Sql92Expression:
    """Never changes, so that any thread may use it. text: as it was written. names: the properties it reads, sorted."""

    __slots__ = ("_matches", "_verdict", "names", "text")

    def __init__(self, text: str) -> None:
        """Raises SqlError."""
        self.text = text
        node = parse(text)
        self.names = tuple(sorted(property_names(node)))
        self._matches = compile_matches(node, self.names)
        self._verdict: Judge | None = None

    def matches(self, properties: Mapping[str, str]) -> bool:
        """True if the verdict on a message is TRUE. FALSE, null and exceptions are no match, as in RocketMQ."""
        return self.matches_values([*map(properties.get, self.names)])

    def matches_values(self, values: Sequence[str | None]) -> bool:
        """Do the same as `matches` with the values of `names`, in that order; None for a property that is missing."""
        try:
            return bool(self._matches(values))
        except (ValueError, TypeError):
            return False

    def verdict(self, properties: Mapping[str, str]) -> bool | None:
        """Return TRUE, FALSE or null (None). Raises ValueError or TypeError where RocketMQ's evaluation throws."""
        judge = self._verdict
        if judge is None:
            # Seldom needed, so made on demand; two threads at once make two alike.
            judge = self._verdict = compile_verdict(parse(self.text), self.names)
        return judge([*map(properties.get, self.names)])


def compile_sql92(text: str) -> Sql92Expression:
    """Return the expression of a text, the same object as long as it is remembered. Raises SqlError. Any thread."""
    return _short(text) if len(text) <= _SHORT else _long(text)


# Consumers may send any number of them, of any length that is allowed: two caches bound what is remembered.
_short = lru_cache(maxsize=256)(Sql92Expression)
_long = lru_cache(maxsize=4)(Sql92Expression)
