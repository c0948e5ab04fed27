"""RocketBox's log in Spark, and the nightly reports made of it.

Importing this needs neither pyspark nor pyarrow nor numpy: access to `RocketBoxDataSource` imports them.
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
