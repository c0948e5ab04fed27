"""`pushFilters`, so that it is used where Spark pushes filters and not missed where it does not.

Spark refuses to read when a reader has `pushFilters` and spark.sql.python.filterPushdown.enabled is false, its default,
because it would leave out what the reader filters. Ours filters nothing, it only reads less. So it says that it is
Spark's own `pushFilters`, which is how Spark finds out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter


class _PushFilters:
    """The bound method, as Spark asks for it."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: PushesFilters) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        self._reader.take_filters(filters)
        return filters


class PushesFilters:
    """To be inherited in front of DataSourceReader."""

    @property
    def pushFilters(self) -> Any:
        return _PushFilters(self)

    def take_filters(self, filters: Iterable[Filter]) -> None:
        """Called at most once, before `partitions`; Spark applies the filters, too."""
        raise NotImplementedError
