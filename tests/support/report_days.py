"""Reports of a day as a run leaves them, for tests of those who show them: small, empty, large, and with odd names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_reports.reports.document import REPORTS, Document, Note, Plot, Table, Tile

DAY = "2026-03-20"
#: 2026-03-20 in Europe/Berlin begins then.
BEGIN_MS = 1_773_961_200_000
HOUR_MS = 3_600_000
GROUPS = ("shipping", "billing")
RUN, FAILED_RUN = "20260321-020000-0123abcd", "20260321-040000-0123abce"


def documents(day: str = DAY, groups: tuple[str, ...] = GROUPS, shift: int = 0) -> list[Document]:
    """The document of each report. groups: rows of the tables; none for a day on which nothing was."""
    made = []
    for report in REPORTS:
        first = groups[0] if groups else None
        tiles = (
            Tile("messages", 41_200_000 + shift, "messages", 40_000_000, (1, 2, None, 4, 5, 6, 7)),
            Tile("bytes", 3 << 30, "bytes"),
            Tile(
                "worst_behind_ms", 2_460_000 if groups else None, "ms", 60_000 if groups else None, (),
                (("group", first), ("time_ms", BEGIN_MS + 10 * HOUR_MS + 1_200_000)) if first else (),
            ),
            Tile("dead_letters", len(groups), "messages", 0, (0, 0, 0, 0, 0, 0, len(groups))),
        )  # fmt: skip
        table = Table(
            "groups",
            (("group", "group"), ("worst_ms", "ms"), ("worst_at", "time_ms"), ("messages", "messages")),
            tuple(
                (name, 2_460_000 - at, BEGIN_MS + 10 * HOUR_MS + 1_200_000, 4_812_007 + at)
                for at, name in enumerate(groups)
            ),
            tuple(("open-group", "set-alert", "replay") for _ in groups),
            left_out=2 if groups else 0,
        )
        legend = (("h4", "text", "> 15 min"), *(("c0", "group", name) for name in groups[:1]))
        plots = (Plot("behind", f"{report}-behind.svg", "groups", legend),) if groups else ()
        notes = (Note("gap", (("places", 1), ("first", "0" * 20), ("messages", 0), ("bytes", 4096))),) if groups else ()
        made.append(
            Document(
                report, day, "Europe/Berlin", BEGIN_MS + 26 * HOUR_MS, tiles, plots, (table,), notes,
                {"messages": 41_200_000 + shift},
            )
        )  # fmt: skip
    return made


def put(data_dir: Path, day: str = DAY, groups: tuple[str, ...] = GROUPS, shift: int = 0) -> Path:
    """Lay them where the console looks. data_dir: of the server. Returns the day's directory."""
    directory = data_dir / "rocketbox" / "reports" / "days" / day
    directory.mkdir(parents=True, exist_ok=True)
    for document in documents(day, groups, shift):
        (directory / f"{document.report}.json").write_bytes(document.to_json())
    (directory / "made.json").write_text(json.dumps(_made(day)))
    return directory


def _made(day: str) -> dict[str, Any]:
    return {"run_id": RUN, "t0_ms": BEGIN_MS + 26 * HOUR_MS, "from_ms": BEGIN_MS, "to_ms": BEGIN_MS + 24 * HOUR_MS,
            "whole": True, "engine": "spark"}  # fmt: skip


def record(**values: Any) -> dict[str, Any]:
    """A run's record.json: the one that made DAY, unless values say otherwise."""
    begin = BEGIN_MS + 26 * HOUR_MS
    known = {
        "id": RUN, "day": DAY, "state": "done", "started_ms": begin, "ended_ms": begin + 134_000, "who": "schedule",
        "engine": "spark", "steps": [["starting", 6400], ["counting", 120_000], ["reports", 900]], "rows": 41_200_000,
        "bytes_read": 44 << 30, "gaps": 1,
        "versions": {"python": "3.12.3", "spark": "4.3.0", "java": "17.0.15", "master": "local[2]"},
        "inputs": {"t0_ms": begin, "from_ms": BEGIN_MS, "to_ms": BEGIN_MS + 24 * HOUR_MS, "log_begin": 0,
                   "log_end": 44 << 30, "queues": 64, "groups": 31},
        "peak_mib": 1420,
    }  # fmt: skip
    return {**known, **values}


def failed_record(**values: Any) -> dict[str, Any]:
    """One that took too long, two hours later."""
    begin = BEGIN_MS + 28 * HOUR_MS
    known = {"id": FAILED_RUN, "day": "2026-03-21", "state": "failed", "started_ms": begin, "rows": 0, "gaps": 0,
             "ended_ms": begin + 3_600_000, "error": "The run was not done after 60 minutes, and was ended.",
             "why": "timeout", "values": {"minutes": 60}, "steps": [], "bytes_read": 0}  # fmt: skip
    return record(**{**known, **values})


def put_run(data_dir: Path, found: dict[str, Any], log: str = "", progress: dict[str, Any] | None = None) -> Path:
    """One run's directory."""
    directory = data_dir / "rocketbox" / "reports" / "runs" / str(found["id"])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "record.json").write_text(json.dumps(found))
    (directory / "log").write_text(log)
    if progress is not None:
        (directory / "progress.json").write_text(json.dumps(progress))
    return directory


def put_runs(data_dir: Path) -> None:
    """The run that made DAY, and a later one that failed."""
    put_run(data_dir, record(), "26/03/21 02:00:01 INFO SparkContext: Running Spark version 4.3.0\n")
    put_run(data_dir, failed_record(), "26/03/21 04:59:59 WARN TaskSetManager: Lost task 3.0\nended: time is over\n")
