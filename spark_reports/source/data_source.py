"""The data source that Spark calls: `spark.dataSource.register(RocketBoxDataSource)`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .bare_errors import bare
from .options import OptionError, Options, check_batch, check_sink, parse
from .schema import LATEST, columns, in_sql


@bare("schema", "reader", "streamReader", "writer", "streamWriter")
class RocketBoxDataSource(DataSource):
    """Messages of a RocketMQ log as rows: from a store's files, or from brokers; to brokers, rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "rocketbox"

    @cached_property
    def parsed(self) -> Options:
        return parse(self.options)

    def schema(self) -> str:
        return in_sql(self._columns)

    @property
    def _columns(self) -> tuple[tuple[str, str], ...]:
        return LATEST if self.parsed.latest else columns(self.parsed.body)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_batch(self.options)
        self._check(schema)
        if self.parsed.latest:
            from .latest import LatestReader

            return LatestReader(self.parsed)
        if self.parsed.brokers:
            from .network.reader import NetworkReader

            return NetworkReader(self.parsed)
        from .files_reader import FilesReader

        return FilesReader(self.parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check(schema)
        if self.parsed.brokers:
            from .network.stream import NetworkStreamReader

            return NetworkStreamReader(self.parsed)
        from .stream import FilesStreamReader

        return FilesStreamReader(self.parsed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .network.sink import BatchSink

        check_sink(self.options)
        return BatchSink(self.parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .network.sink import StreamSink

        check_sink(self.options)
        # Of a stream, `overwrite` is the output mode "complete".
        return StreamSink(self.parsed, schema, overwrite)

    def _check(self, schema: StructType) -> None:
        """Raise OptionError if the user gave another schema: Spark would only report how many columns it has."""
        ours = self._columns
        given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if given == list(ours):
            return
        other = next((one for one, right in zip(given, ours, strict=False) if one != right), None)
        raise OptionError(
            "The columns of the data source rocketbox are fixed"
            + (f", and {' '.join(other)} is not where it should be" if other else f": {len(ours)}, not {len(given)}")
            + ". Leave the schema out, and take what you need with select()."
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "parsed"}
