"""Reports, their runs and settings, as the API accepts and returns them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from . import forms
from .schemas import In, Out, PageOut, Text, not_given

RunState = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]
Engine = Literal["auto", "spark", "python"]
Value = int | Text | None


class ReportTileOut(Out):
    """One figure, in `unit`. before: of the day before. trend: the last days, this one last. where: what it speaks of,
    pairs of a key and a value."""

    key: str
    value: int | None
    unit: str
    before: int | None
    trend: list[int | None]
    where: list[tuple[str, Value]]


class ReportPlotOut(Out):
    """A plot at `/reports/days/{day}/{report}/plots/{key}`; its numbers are in the table `table`."""

    key: str
    table: str


class ReportTableOut(Out):
    """columns: pairs of a key and a unit. acts: what can be done about each row. left_out: rows there were besides."""

    key: str
    columns: list[tuple[str, str]]
    rows: list[list[Value]]
    acts: list[list[str]]
    left_out: int


class ReportNoteOut(Out):
    """Something one must know to trust the figures: pairs of a name and a value."""

    key: str
    values: list[tuple[str, Value]]


class ReportOut(Out):
    """One report of one day, without words: times in milliseconds since 1970, the day and its hours in `zone`.

    t0_at_ms: when the ends of the queues were taken."""

    report: str
    day: str
    zone: str
    t0_at_ms: int
    tiles: list[ReportTileOut]
    plots: list[ReportPlotOut]
    tables: list[ReportTableOut]
    notes: list[ReportNoteOut]
    figures: dict[str, int | None]

    @model_validator(mode="before")
    @classmethod
    def _of_document(cls, value: Any) -> Any:
        return {**value, "t0_at_ms": value["t0_ms"]} if isinstance(value, dict) and "t0_ms" in value else value


class ReportDaysOut(Out):
    """days: YYYY-MM-DD, newest first. reports: the names of the reports that each day has. next_at_ms: when they are
    made by themselves, null for never. missing: what Spark would need and is not there."""

    days: list[str]
    reports: list[str]
    next_at_ms: int | None
    missing: list[str]


class ReportStepOut(Out):
    step: str
    ms: int


class ReportProgressOut(Out):
    """step: what is under way. done, total: how far; total 0: not known."""

    step: str
    done: int
    total: int


class ReportRunOut(Out):
    """One run. engine: what counted; engine_why: why that did. error: why it failed. rows: messages read. gaps: parts
    of the log that were gone before they were read. corrupt: damaged places. peak_mib: the most memory that all its
    processes had together. inputs: what it read. progress: null when it does not run."""

    id: str
    day: str
    state: RunState
    started_at_ms: int
    ended_at_ms: int | None
    who: Text
    engine: str
    engine_why: Text
    error: Text
    rows: int
    bytes_read: int
    gaps: int
    corrupt: int
    steps: list[ReportStepOut]
    peak_mib: int
    versions: dict[str, str]
    inputs: dict[str, Any]
    progress: ReportProgressOut | None


class ReportRunPage(PageOut):
    items: list[ReportRunOut]
    total: int


class ReportLogOut(Out):
    """The end of what a run said."""

    text: Text


class ReportRunIn(In):
    """day: YYYY-MM-DD in the reports' time zone, "yesterday" (when left out), or "today" for its hours so far."""

    day: Annotated[str, Field(max_length=10, pattern=forms.DAY)] = "yesterday"


class ReportSettingsOut(Out):
    """Settings of the reports. at: HH:MM in `zone`. limits: minutes that a group may be behind, for groups with a limit
    of their own."""

    on: bool
    at: str
    zone: str
    engine: Engine
    master: str
    driver_mib: int
    memory_mib: int
    timeout_min: int
    keep_days: int
    limit_minutes: int
    limits: dict[str, int]
    digest_channels: list[str]


class ReportSettingsIn(In):
    """Fields that are left out keep their values."""

    on: bool = not_given()
    at: Annotated[str, Field(pattern=forms.TIME_OF_DAY)] = not_given()
    zone: Annotated[str, Field(max_length=64)] = not_given()
    engine: Engine = not_given()
    master: Annotated[str, Field(min_length=1, max_length=300)] = not_given()
    driver_mib: Annotated[int, Field(ge=256, le=1 << 20)] = not_given()
    memory_mib: Annotated[int, Field(ge=256, le=1 << 20)] = not_given()
    timeout_min: Annotated[int, Field(ge=1, le=24 * 60)] = not_given()
    keep_days: Annotated[int, Field(ge=1, le=3660)] = not_given()
    limit_minutes: Annotated[int, Field(ge=1, le=100_000)] = not_given()
    limits: Annotated[dict[str, Annotated[int, Field(ge=1, le=999_999)]], Field(max_length=1000)] = not_given()
    digest_channels: Annotated[list[str], Field(max_length=100)] = not_given()
