"""SQL92 expressions as filters: one object for each text that is in use, with its verdicts on values it has seen.

An expression is parsed once as long as it is remembered, even if it is wrong. All that is kept is bounded, since
clients can bring as many expressions as they like: those out of use, those in use together, the errors, and the
verdicts of all of them together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ..digests import blake2b
from .message_filter import QUICK_CHARS, MessageFilter
from .projection import SEPARATOR, needles, property_values
from .shelf import Shelf, shelf_of
from .sql92 import Sql92Expression, SqlError, compile_sql92

_SEPARATOR = SEPARATOR.decode()
#: Most errors that are remembered, each by the digest of its expression.
_ERRORS_KEPT = 1024
#: Most verdicts that are remembered, of all expressions together, some 300 bytes each; and the longest values that are
#: worth it.
_VERDICTS_KEPT = 50_000
_LONGEST_KEY = 200
#: When new values exceed half of all values by this many, verdicts are no longer remembered.
_MOST_DIFFERENT = 2000
#: With more names it is cheaper to decode all properties, and hardly two messages have the same values.
_MOST_NAMES = 16


class SqlFilter(MessageFilter):
    """Lets the messages through whose properties fulfil an expression. Any thread."""

    __slots__ = ("__weakref__", "_compiled", "_differ", "_verdicts", "_wanted", "expression")
    lasts = False

    def __init__(self, expression: str, compiled: Sql92Expression) -> None:
        names = compiled.names
        super().__init__(None, reads_records=True, costly=len(expression) > QUICK_CHARS or len(names) > _MOST_NAMES)
        self.expression = expression
        self._compiled = compiled
        if len(names) <= _MOST_NAMES:
            self.names = tuple(name.encode() for name in names)
        self._wanted = needles(names)
        self._verdicts: dict[bytes, bool] = {}
        # New values less half of all values, never below zero. In sixteenths, so that few values at once count as well.
        self._differ = 0

    def matches(self, properties: Mapping[str, str]) -> bool:
        return self._compiled.matches(properties)

    def verdicts(self, data: bytes, places: Sequence[tuple[int, int]]) -> list[bool]:
        if self.names is None:
            return super().verdicts(data, places)
        return self.verdicts_of(property_values(data, places, self._wanted))

    def verdicts_of(self, keys: Sequence[bytes | None]) -> list[bool]:
        known = self._verdicts
        found = []
        if self._differ > 16 * _MOST_DIFFERENT:
            # Hardly two have the same values: looking for them costs more than it saves.
            self._differ -= len(keys)  # so that from time to time it is tried again
            judge = self._judge
            return [key is None or judge(key) for key in keys]
        for key in keys:
            if key is None:
                found.append(True)
                continue
            verdict = known.get(key)
            if verdict is None:
                verdict = self._judge(key)
                self._differ += 16
                if len(key) <= _LONGEST_KEY:
                    _remember(self, key, verdict)
            found.append(verdict)
        self._differ -= min(8 * len(keys), self._differ)
        return found

    def _judge(self, key: bytes) -> bool:
        """Return the verdict on the joined values of `names`."""
        try:
            values = key.decode().split(_SEPARATOR)
        except UnicodeDecodeError:
            return True  # not UTF-8: the reader of the record finds it damaged
        if "" in values:
            return self._compiled.matches_values([value or None for value in values])
        return self._compiled.matches_values(values)


# --- what is kept, for all threads: each step on a dict is one C call, so no lock is needed


#: A compiled expression takes some 60 bytes for each character: 200 MB in the worst case, all of them together.
_shelves: tuple[Shelf[SqlFilter], ...] = (
    Shelf(200, 1024, 8192, 4),
    Shelf(2000, 128, 512, 1),
    Shelf(1 << 30, 16, 32, 1),
)
_errors: OrderedDict[bytes, SqlError] = OrderedDict()
_remembered = 0


def sql_filter(expression: str | None, peer: bytes | None = None) -> SqlFilter:
    """Return the filter of an expression, made once as long as it is in use or was made lately. peer: the connection
    that brings it, see `Shares`.

    Raises SqlError for a text that is no expression, TooManyExpressions.
    """
    text = expression or ""
    found = known_filter(text)
    if found is not None:
        return found
    try:
        made = SqlFilter(text, compile_sql92(text))
    except SqlError as error:
        # A copy is kept, because this error holds on to the frames that it comes through, requests and all.
        _errors[_digest(text)] = SqlError(error.message, error.line, error.column)
        if len(_errors) > _ERRORS_KEPT:
            _errors.popitem(last=False)
        raise
    shelf_of(_shelves, text).keep(text, made, peer)
    return made


def known_filter(expression: str) -> SqlFilter | None:
    """Return the filter if it is there; None when it would have to be compiled. Raises the SqlError if the text is
    known to be wrong."""
    found = shelf_of(_shelves, expression).in_use.get(expression)
    if found is not None:
        return found
    error = _errors.get(_digest(expression)) if _errors else None
    if error is None:
        return None
    raise SqlError(error.message, error.line, error.column)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), 16)


def _remember(judge: SqlFilter, key: bytes, verdict: bool) -> None:
    """Keep a verdict; when all expressions have too many together, drop all verdicts."""
    global _remembered
    judge._verdicts[key] = verdict
    _remembered += 1
    if _remembered > _VERDICTS_KEPT:
        _remembered = 0
        for shelf in _shelves:
            for reference in shelf.in_use.valuerefs():
                one = reference()
                if one is not None:
                    one._verdicts.clear()
