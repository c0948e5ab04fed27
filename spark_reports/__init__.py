"""RocketBox's log in Spark, and the nightly reports made of it.

Importing this needs neither pyspark nor pyarrow nor numpy: access to `RocketBoxDataSource` imports them.

**The data source** (`source/`): the driver makes ranges of files (`options`, `store_view`, `filters`, `plan`), a task
reads one (`file_task`) and makes columns of whole records (`columns`, by numpy). Bytes that cannot be read are listed
in `findings`, a file for each task. `network/` pulls instead. `facts/one_file.py` reads the same log in plain Python.

Where to add, and the tests that fail until it is complete:

- A report: a module with `make` in `reports/`, and its name in `REPORTS`; its keys in `keys.py`, their words in
  `console/reports/words.py` and `sentences.py`, its plots in `console/reports/plots/`; docs/reports.md. ->
  `test_any_facts.py`, `test_report_words.py`.
- A table of facts: `facts/tables.py`; counted in `in_python.py` and in `transforms.py`; docs/facts.md. Days that lack
  the table are then left out (`keeping.py`). -> `test_oracle.py`, `test_tables_page.py`.
- A column of the data source: `source/schema.py`, `columns.py`; the plain twin in
  `tests/spark_reports/source/records.py`; docs/spark.md. -> `test_columns.py`, `test_spark_page.py`.
- A way for a run to fail: its sentence in `run/failures.py`, found by `of_exception` or raised as `RunFailed`.
  -> `test_translations.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .source.data_source import RocketBoxDataSource

__all__ = ["RocketBoxDataSource"]


def __getattr__(name: str) -> Any:
    if name == "RocketBoxDataSource":
        from .source.data_source import RocketBoxDataSource

        return RocketBoxDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
