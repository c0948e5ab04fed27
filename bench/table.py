"""Samples to markdown: medians, spreads and the ratio to the better Apache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.columns import TITLES
from bench.others import RIG
from bench.rows import Figure, Row, Sample
from bench.servers import APACHES, PURE, ROCKETBOX

# Samples of one row by server label, in the order of the rounds.
Samples = Mapping[str, Sequence[Sample]]

# The promise of a synchronous flush is also held against Apache's asynchronous one: (ours, Apache's, what is said).
CROSSINGS = (
    ("send-64-sync", "send-64-async", "64 connections, ours with sync flush / Apache with async flush", "≥ 1.2"),
    ("latency-sync", "latency-async", "end-to-end p50, ours with sync flush / Apache with async flush", "≤ 1/3"),
)


@dataclass(frozen=True)
class Summary:
    """Median of the rounds; `spread` is the distance of the extremes as a share of it."""

    value: float
    spread: float


def summarise(samples: Sequence[Sample], key: str) -> Summary | None:
    values = [sample.values[key] for sample in samples if key in sample.values]
    if not values:
        return None
    middle = median(values)
    return Summary(middle, (max(values) - min(values)) / middle if middle else 0.0)


def better_apache(figure: Figure, samples: Samples) -> float | None:
    found = [summary.value for label in APACHES if (summary := summarise(samples.get(label, ()), figure.key))]
    if not found:
        return None
    return min(found) if figure.lower_is_better else max(found)


def last_rounds(figure: Figure, samples: Samples) -> tuple[dict[str, float | None], float | None]:
    """Return each server's value in the last round, and the better Apache's there: it is the warmest by then."""
    last = {label: some[-1].values.get(figure.key) for label, some in samples.items() if some}
    apaches = [value for label in APACHES if (value := last.get(label)) is not None]
    if not apaches:
        return last, None
    return last, min(apaches) if figure.lower_is_better else max(apaches)


def ratio_text(ours: float | None, theirs: float | None) -> str:
    if ours is None or not theirs:
        return ""
    return f"{ours / theirs:.2f}"


def _ratio_titles(labels: Sequence[str], what: str = "ratio") -> list[str]:
    """The columns behind the servers': ours, and those of what else of us is measured."""
    titles = [what]
    if PURE in labels:
        titles.append(f"pure: {what}")
    if RIG in labels:
        titles.append("to C")
        if PURE in labels:
            titles.append("pure: to C")
    return titles


def _ratios(values: Mapping[str, float | None], apache: float | None, labels: Sequence[str]) -> list[str]:
    """Both twins over the better Apache, then over the C server, as _ratio_titles names them."""
    cells = [ratio_text(values.get(ROCKETBOX), apache)]
    if PURE in labels:
        cells.append(ratio_text(values.get(PURE), apache))
    if RIG in labels:
        cells.append(ratio_text(values.get(ROCKETBOX), values.get(RIG)))
        if PURE in labels:
            cells.append(ratio_text(values.get(PURE), values.get(RIG)))
    return cells


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _heading(first: Sequence[str], labels: Sequence[str], last: Sequence[str], texts: int) -> list[str]:
    """The two lines over a table; the last `texts` columns are not numbers."""
    titles = [*first, *(TITLES[label] for label in labels), *last]
    numbers = len(titles) - len(first) - texts
    return [_line(titles), "|" + "---|" * len(first) + "---:|" * numbers + "---|" * texts]


def figures_table(
    results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str], absent: Sequence[str] = ()
) -> str:
    """One line a figure: medians (and spread) by server, our ratios, the goal, errors by server. `absent` servers are
    not here to be measured."""
    ours = [label for label in (ROCKETBOX, PURE) if label == ROCKETBOX or label in labels]
    last = ["last round", "pure: last round"][: len(ours)]
    lines = _heading(["measure", "unit"], labels, [*_ratio_titles(labels), *last, "goal", "errors"], 2)
    for row in rows:
        samples = results.get(row.key)
        if samples is None:
            continue
        errors = "/".join(
            str(sum(sample.errors for sample in samples.get(label, ()))) if _measured(row, label, absent) else "-"
            for label in labels
        )
        for figure in row.figures:
            summaries = {label: summarise(samples.get(label, ()), figure.key) for label in labels}
            values = {label: summary.value for label, summary in summaries.items() if summary}
            cells = [_no_cell(row, label, absent) or _cell(summaries[label]) for label in labels]
            ratios = _ratios(values, better_apache(figure, samples), labels)
            values_then, apache_then = last_rounds(figure, samples)
            ratios += [ratio_text(values_then.get(label), apache_then) for label in ours]
            lines.append(_line([figure.title, figure.unit, *cells, *ratios, figure.goal, errors]))
    return "\n".join(lines + _crossings(results, rows, labels, len(ours)))


def _crossings(results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str], more: int) -> list[str]:
    """more: cells between the ratios and the goal."""
    by_key = {figure.key: figure for row in rows for figure in row.figures}
    lines = []
    for ours_key, theirs_key, title, goal in CROSSINGS:
        if ours_key not in results or theirs_key not in results:
            continue
        ours = {label: summarise(results[ours_key].get(label, ()), ours_key) for label in (ROCKETBOX, PURE)}
        theirs = better_apache(by_key[theirs_key], results[theirs_key])
        values = {label: summary.value for label, summary in ours.items() if summary}
        ratios = _ratios(values, theirs, labels)
        if any(ratios):
            lines.append(_line([title, "", *("" for _ in labels), *ratios, *("" for _ in range(more)), goal, ""]))
    return lines


def latency_table(
    results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str], absent: Sequence[str] = ()
) -> str:
    """p50 / p99 / p99.9 of the same runs in ms (medians of the rounds), and the ratios of p99."""
    lines = _heading(["latency, ms: p50 / p99 / p99.9"], labels, _ratio_titles(labels, "p99 ratio"), 0)
    for row in rows:
        samples = results.get(row.key, {})
        if not any(sample.latency_us for label in labels for sample in samples.get(label, ())):
            continue
        cells = [_no_cell(row, label, absent) or _latency_cell(samples.get(label, ())) for label in labels]
        p99 = {label: _latency(samples.get(label, ()), "p99") for label in labels}
        apaches = [value for label in APACHES if (value := p99.get(label)) is not None]
        ratios = _ratios(p99, min(apaches) if apaches else None, labels)
        lines.append(_line([row.figures[-1].title, *cells, *ratios]))
    return "\n".join(lines)


def cpu_table(
    results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str], absent: Sequence[str] = ()
) -> str:
    """What the server's processes took of the CPU for 1,000 messages, and how many CPUs they and the generator used: a
    server well below its CPUs beside a generator that uses its one is a measurement of the generator."""
    last = [*_ratio_titles(labels, "CPU ratio"), "goal", "CPUs: servers", "CPUs: generator"]
    lines = _heading(["CPU of the server, ms per 1,000 messages"], labels, last, 3)
    for row in rows:
        samples = results.get(row.key, {})
        spent = {label: _median(sample.cpu_ms for sample in samples.get(label, ())) for label in labels}
        if not any(spent.values()):
            continue
        cells = [_no_cell(row, label, absent) or _number_cell(spent[label]) for label in labels]
        apaches = [value for label in APACHES if (value := spent.get(label)) is not None]
        ratios = _ratios(spent, min(apaches) if apaches else None, labels)
        used = [
            " / ".join(_two_digits(_median(pick(sample) for sample in samples.get(label, ()))) for label in labels)
            for pick in (_cores, _generator_cores)
        ]
        lines.append(_line([row.figures[-1].title, *cells, *ratios, row.cpu_goal, *used]))
    return "\n".join(lines)


def _measured(row: Row, label: str, absent: Sequence[str]) -> bool:
    return label not in absent and row.takes(label)


def _no_cell(row: Row, label: str, absent: Sequence[str]) -> str:
    """What stands where nothing was to be measured."""
    if not row.takes(label):
        return "-"
    return "not installed" if label in absent else ""


def _cell(summary: Summary | None) -> str:
    return "" if summary is None else f"{_number(summary.value)} ±{summary.spread * 50:.0f} %"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _number_cell(value: float | None) -> str:
    return "" if value is None else _number(value)


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _latency(samples: Sequence[Sample], quantile: str) -> float | None:
    return _median(sample.latency_us[quantile] / 1000 for sample in samples if sample.latency_us)


def _latency_cell(samples: Sequence[Sample]) -> str:
    quantiles = [_latency(samples, name) for name in ("p50", "p99", "p99.9")]
    return " / ".join(f"{value:.3g}" for value in quantiles if value is not None)


def _cores(sample: Sample) -> float | None:
    return sample.cores


def _generator_cores(sample: Sample) -> float | None:
    return sample.generator_cores


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
