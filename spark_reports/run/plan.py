"""Files in the run's directory, by which the console and the run communicate.

plan.json       Plan: the work to do. Written by the console before the start
snapshot.json   the input (`spark_reports/snapshot.py`)
deliveries/     the delivery files as they were at T0
process         pid and start time of the keeper, written by it before anything else
progress.json   Progress, replaced whole twice a second while it runs
outcome.json    Outcome, written last; without it the keeper itself was killed
log             output of the processes and of Spark
lag.jsonl, incidents.jsonl    rows of the tables LAG and INCIDENTS, one JSON object a line
reports/        REPORT.json: moved to DATA/rocketbox/reports/days/DAY by the console
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from appliance.engine.file_sync import replace_file

PLAN, PROGRESS, OUTCOME, PROCESS = "plan.json", "progress.json", "outcome.json", "process"
LOG, REPORTS, DELIVERIES = "log", "reports", "deliveries"
LAG, INCIDENTS = "lag.jsonl", "incidents.jsonl"
#: Variable in the environment of each process of a run, so that a sweep ends those and no others.
MARK = "ROCKETBOX_REPORT_RUN"


@dataclass(frozen=True, slots=True)
class Plan:
    """engine: "spark" or "python". master: as Spark takes it, "local[2]". driver_mib: the JVM's heap. facts_dir: with
    the facts of all days, TABLE/day=YYYY-MM-DD/. scratch_dir: for Spark's own files, removed when the run ends.
    memory_mib: limit of all processes of the run together. timeout_s: longest time of the run. keep_days: days of which
    facts are kept. history_dir: with the console's measurements, "" for none."""

    run_id: str
    engine: str
    master: str
    driver_mib: int
    facts_dir: str
    scratch_dir: str
    memory_mib: int = 2048
    timeout_s: int = 3600
    keep_days: int = 35
    history_dir: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """step: "starting", "reading", "counting", "writing" or "reports". done, total: tasks of Spark, or bytes of the log
    for plain Python; total 0 while unknown. at_ms: when this was written."""

    step: str
    done: int
    total: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """ok: the reports are whole. error: one sentence; why, values: its key and values, to translate it (`failures.py`).
    steps: (step, ms). rows: messages of the day. bytes_read: of the log files that hold them. versions: of code,
    Python, Spark, Java. peak_mib: the most memory that all processes had together. cancelled: on request."""

    ok: bool
    error: str = ""
    steps: tuple[tuple[str, int], ...] = ()
    rows: int = 0
    bytes_read: int = 0
    gaps: int = 0
    corrupt: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    why: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    peak_mib: int = 0
    cancelled: bool = False


#: Names that Java, Spark's options and Hadoop's paths all accept unchanged.
_PLAIN = re.compile(r"[A-Za-z0-9_./+@=-]+", re.ASCII)


def scratch_as_spark_has_it(plan: Plan) -> Path:
    """Return the scratch directory by a name without blanks, commas, brackets or letters that a locale may lack, which
    Spark would misread: /proc/self/cwd, since every process of a run on this machine works in it. On a cluster
    executors work elsewhere."""
    scratch = Path(plan.scratch_dir)
    if _PLAIN.fullmatch(plan.scratch_dir) or not plan.master.startswith("local") or sys.platform != "linux":
        return scratch
    return Path("/proc/self/cwd")


_T = TypeVar("_T")


def write(path: Path, value: object, durable: bool = False) -> None:
    """Write a dataclass as JSON, whole or not at all, for this user only. durable: on the disk when this returns.
    Raises OSError."""
    text = json.dumps(asdict(value), ensure_ascii=False)  # type: ignore[call-overload]
    replace_file(path, text.encode(errors="surrogatepass"), durable)


def read(path: Path, kind: type[_T]) -> _T | None:
    """Read a file that `write` wrote; None if there is none, or it cannot be understood."""
    try:
        found = json.loads(path.read_bytes())
        if "steps" in found:
            found["steps"] = tuple((str(step), int(ms)) for step, ms in found["steps"])
        made = kind(**found)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    wrong = (one for one in fields(made) if not _fits(getattr(made, one.name), str(one.type)))  # type: ignore[arg-type]
    return made if next(wrong, None) is None else None


_KINDS: dict[str, type | tuple[type, ...]] = {
    "int": int, "str": str, "bool": bool, "int | None": (int, type(None)), "dict": dict,
}  # fmt: skip


def _fits(value: object, kind: str) -> bool:
    """True if a field may have the value; the content of a dict or tuple is not checked."""
    return isinstance(value, _KINDS.get(kind.partition("[")[0], object))
