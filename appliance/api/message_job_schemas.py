"""Requests that start jobs about messages, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .schemas import In
from .times import Moment


class ExportIn(In):
    """Selects messages: of a queue, stored between two times, found by a filter; all of the topic by default. bodies:
    with body and properties, so that they can be imported again; else only where they are."""

    queue_id: int | None = Field(None, ge=0, lt=1 << 31)
    from_ms: Moment | None = None
    to_ms: Moment | None = None
    filter: str = Field("", max_length=4096, description="As of GET /topics/{topic}/messages.")
    format: Literal["ndjson", "csv"] = "ndjson"
    bodies: bool = False


class CopyIn(In):
    """Selects messages as ExportIn does. to: the topic that gets the copies. to_ms: now by default, so that messages
    which come meanwhile are not among them. rate: messages a second."""

    to: str = Field(max_length=255)
    queue_id: int | None = Field(None, ge=0, lt=1 << 31)
    from_ms: Moment | None = None
    to_ms: Moment | None = None
    filter: str = Field("", max_length=4096, description="As of GET /topics/{topic}/messages.")
    rate: int = Field(500, ge=1, le=10_000)
