"""Reading through the data source, as a user does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    """read(store=..., topic=...): the frame of the data source with these options."""
    from spark_reports import RocketBoxDataSource

    spark.dataSource.register(RocketBoxDataSource)

    def load(**options: Any) -> DataFrame:
        reader = spark.read.format("rocketbox")
        for name, value in options.items():
            reader = reader.option(name.rstrip("_"), str(value).lower() if isinstance(value, bool) else str(value))
        return reader.load()

    return load
