"""The columns, for Spark and for Arrow. Their names and types are fixed: users' jobs depend on them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: (name, type in Spark's words). Times are UTC.
META = (
    ("topic", "string"),
    ("queue_id", "int"),
    ("queue_offset", "bigint"),
    ("msg_id", "string"),
    ("keys", "string"),
    ("tags", "string"),
    ("born_ts", "timestamp"),
    ("store_ts", "timestamp"),
    ("reconsume_times", "int"),
    ("body_size", "int"),
    ("size", "int"),
    ("flag", "int"),
    ("sys_flag", "int"),
    ("physical_offset", "bigint"),
    ("properties", "map<string,string>"),
    ("broker", "string"),
    ("born_host", "string"),
    ("store_host", "string"),
    ("producer_group", "string"),
)
BODY = (*META, ("body", "binary"), ("body_encoding", "string"))
#: Columns of `columns=latest`.
LATEST = (("offsets", "string"),)


def columns(body: bool) -> tuple[tuple[str, str], ...]:
    """Return the columns. body: with `body` and `body_encoding`."""
    return BODY if body else META


def in_sql(columns: tuple[tuple[str, str], ...]) -> str:
    """Return the schema in SQL."""
    return ", ".join(f"{name} {kind}" for name, kind in columns)


@cache
def arrow_schema(body: bool) -> pa.Schema:
    """Return the schema that Spark's Arrow reader expects of the batches, field by field."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        "binary": pa.binary(),
    }
    return pa.schema([(name, types[kind]) for name, kind in (BODY if body else META)])
