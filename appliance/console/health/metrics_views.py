"""/metrics: the engine's numbers as Prometheus text, exposition format 0.0.4."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse

from ... import __version__, runtime

if TYPE_CHECKING:
    from ...engine.window.figures.upstream_metrics import Sample

#: Prefix of the figures that have the names of Apache's own exporter.
UPSTREAM = "rocketmq_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}

#: A scrape sleeps _REST_S after each _TURN_S of work; the time is checked every _PIECE samples.
_TURN_S, _REST_S, _PIECE = 0.002, 0.0002, 32
#: Most cached texts of labels. Each entry keeps its tuple, so that no other tuple can get the same id.
_LABELS_KEPT = 16

Labels = tuple[tuple[str, str], ...]

_lock = threading.Lock()


def metrics(request: HttpRequest) -> HttpResponse:
    """Return every number of the engine, or 503 if no engine runs."""
    try:
        running = runtime.running()
    except runtime.EngineNotRunning:
        return HttpResponse("# no engine runs in this process\n", content_type=CONTENT_TYPE, status=503)
    numbers: dict[str, float] = {f'build_info{{version="{__version__}"}}': 1, "uptime_seconds": running.uptime_s}
    numbers |= {name: value for name, value in runtime.window().metrics().items() if not name.startswith(UPSTREAM)}
    numbers |= _of_reports()
    return HttpResponse(prometheus_text(numbers) + _upstream_part(), content_type=CONTENT_TYPE)


def _of_reports() -> dict[str, float]:
    """Return when the newest day's reports were made, in seconds since 1970, and the messages that they count; nothing
    without reports."""
    from ..reports import published

    for day in published.days():
        made = published.made(day)
        if made is None:
            continue
        found: dict[str, float] = {"reports_made_timestamp_seconds": made.t0_ms / 1000}
        try:
            figures = (published.document(day, "digest") or {}).get("figures", {})
        except published.DamagedReport:
            figures = {}
        if isinstance(count := figures.get("messages"), int):
            found["reports_messages"] = count
        return found
    return {}


def _upstream_part() -> str:
    """Return the figures with upstream's names. One scrape at a time, since it goes through all groups."""
    with _lock:
        return upstream_text(runtime.window().upstream_metrics())


def upstream_text(samples: Iterable[Sample]) -> str:
    """Return samples with labels as text. Samples of one name stay together, as the format demands."""
    families: dict[str, list[str]] = {}
    # Ten samples of one group follow each other with the same three tuples.
    shown: dict[int, tuple[Labels, str]] = {}
    begun = time.perf_counter()
    for count, (name, kind, labels, value) in enumerate(samples, 1):
        lines = families.get(name)
        if lines is None:
            lines = families[name] = [f"# TYPE {name} {kind}"]
        known = shown.get(id(labels))
        if known is None:
            if len(shown) > _LABELS_KEPT:
                shown.clear()
            known = shown[id(labels)] = (labels, _labels_text(labels))
        lines.append(f"{name}{known[1]} {_number(value)}")
        if not count % _PIECE and time.perf_counter() - begun > _TURN_S:
            time.sleep(_REST_S)  # sends and acknowledgements need the same interpreter
            begun = time.perf_counter()
    return "".join("\n".join(lines) + "\n" for lines in families.values())


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{label}="{text.translate(_ESCAPED)}"' for label, text in labels]) + "}"


def prometheus_text(numbers: Mapping[str, float]) -> str:
    """Return one sample a line, prefixed `rocketbox_` unless the name is upstream's (`rocketmq_...`). Names that end in
    `_total` are counters, all others gauges.

    numbers: name, or name and labels as Prometheus writes them (`disk_bytes{kind="log"}`), to value. Samples of one
    name stay together, as the format demands.
    """
    families: dict[str, list[str]] = {}
    for name, value in numbers.items():
        family, brace, labels = name.partition("{")
        family = re.sub(r"[^a-zA-Z0-9_]", "_", family)
        if not family.startswith(UPSTREAM):
            family = "rocketbox_" + family
        families.setdefault(family, []).append(f"{family}{brace}{labels} {_number(value)}")
    lines = []
    for family, samples in families.items():
        lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
        lines.extend(samples)
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, (bool, int)) else repr(float(value))
