"""Makes Spark find the data source `rocketbox` by itself.

Before the first use of any Python data source PySpark imports each top-level module whose name begins with `pyspark_`,
and registers its `DefaultSource` (PySpark 4: `pyspark/sql/worker/lookup_data_sources.py`). The code is in
`spark_reports/source`.
"""

from __future__ import annotations

from spark_reports.source.data_source import RocketBoxDataSource as DefaultSource

__all__ = ["DefaultSource"]
