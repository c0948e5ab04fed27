"""`pushFilters` that works both when Spark pushes filters and when it does not.

Spark refuses to read when a reader has `pushFilters` and spark.sql.python.filterPushdown.enabled is false, its default,
because filters of the reader would not be applied. This one filters nothing, it only reads less. So it pretends to be
Spark's own `pushFilters`, which is what Spark checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter


class _PushFilters:
    """The bound method, as Spark calls it."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: PushesFilters) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self._reader.take_filters(filters)
        return filters


class PushesFilters:
    """Base class, to be inherited before DataSourceReader."""

    @property
    def pushFilters(self) -> Any:
        return _PushFilters(self)

    def take_filters(self, filters: Iterable[Filter]) -> None:
        """Take filters; called at most once, before `partitions`. Spark applies the filters, too."""
        raise NotImplementedError
