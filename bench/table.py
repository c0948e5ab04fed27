"""Samples to markdown: medians, spreads and the ratio to the better Apache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.rows import Figure, Row, Sample
from bench.servers import APACHES, ROCKETBOX, TITLES

# Samples of one row by server label, in the order of the rounds.
Samples = Mapping[str, Sequence[Sample]]

# The promise of a synchronous flush is also held against Apache's asynchronous one: (ours, Apache's, what is said).
CROSSINGS = (
    ("send-64-sync", "send-64-async", "64 connections, ours with sync flush / Apache with async flush", ""),
    ("latency-sync", "latency-async", "end-to-end p50, ours with sync flush / Apache with async flush", "≤ 1/2"),
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


def ratio_text(ours: float | None, theirs: float | None) -> str:
    if ours is None or not theirs:
        return ""
    return f"{ours / theirs:.2f}"


def figures_table(results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str]) -> str:
    """One line a figure: medians (and spread) by server, our ratio to the better Apache, the goal, errors by server."""
    lines = [
        "| measure | unit | " + " | ".join(TITLES[label] for label in labels) + " | ratio | goal | errors |",
        "|---|---|" + "---:|" * len(labels) + "---:|---|---|",
    ]
    for row in rows:
        samples = results.get(row.key)
        if samples is None:
            continue
        errors = "/".join(str(sum(sample.errors for sample in samples.get(label, ()))) for label in labels)
        for figure in row.figures:
            summaries = [summarise(samples.get(label, ()), figure.key) for label in labels]
            ours = summarise(samples.get(ROCKETBOX, ()), figure.key)
            ratio = ratio_text(ours.value if ours else None, better_apache(figure, samples))
            cells = " | ".join(_cell(summary) for summary in summaries)
            lines.append(f"| {figure.title} | {figure.unit} | {cells} | {ratio} | {figure.goal} | {errors} |")
    return "\n".join(lines + _crossings(results, rows, labels))


def _crossings(results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str]) -> list[str]:
    by_key = {figure.key: figure for row in rows for figure in row.figures}
    lines = []
    for ours_key, theirs_key, title, goal in CROSSINGS:
        if ours_key not in results or theirs_key not in results:
            continue
        ours = summarise(results[ours_key].get(ROCKETBOX, ()), ours_key)
        theirs = better_apache(by_key[theirs_key], results[theirs_key])
        ratio = ratio_text(ours.value if ours else None, theirs)
        if ratio:
            lines.append(f"| {title} | | " + " | " * len(labels) + f"{ratio} | {goal} | |")
    return lines


def latency_table(results: Mapping[str, Samples], rows: Sequence[Row], labels: Sequence[str]) -> str:
    """p50 / p99 / p99.9 of the same runs in ms (medians of the rounds), the ratio of p99, and CPUs the broker used."""
    lines = [
        "| latency, ms: p50 / p99 / p99.9 | "
        + " | ".join(TITLES[label] for label in labels)
        + " | p99 ratio | broker CPUs |",
        "|---|" + "---:|" * len(labels) + "---:|---|",
    ]
    for row in rows:
        samples = results.get(row.key, {})
        if not any(sample.latency_us for label in labels for sample in samples.get(label, ())):
            continue
        cells = [_latency_cell(samples.get(label, ())) for label in labels]
        p99 = {label: _latency(samples.get(label, ()), "p99") for label in labels}
        apaches = [value for label in APACHES if (value := p99.get(label)) is not None]
        ratio = ratio_text(p99.get(ROCKETBOX), min(apaches) if apaches else None)
        cores = " / ".join(_cores(samples.get(label, ())) for label in labels)
        lines.append(f"| {row.figures[-1].title} | {' | '.join(cells)} | {ratio} | {cores} |")
    return "\n".join(lines)


def _cell(summary: Summary | None) -> str:
    return "" if summary is None else f"{_number(summary.value)} ±{summary.spread * 50:.0f} %"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _latency(samples: Sequence[Sample], quantile: str) -> float | None:
    found = [sample.latency_us[quantile] / 1000 for sample in samples if sample.latency_us]
    return median(found) if found else None


def _latency_cell(samples: Sequence[Sample]) -> str:
    quantiles = [_latency(samples, name) for name in ("p50", "p99", "p99.9")]
    return " / ".join(f"{value:.3g}" for value in quantiles if value is not None)


def _cores(samples: Sequence[Sample]) -> str:
    found = [sample.cores for sample in samples if sample.cores is not None]
    return f"{median(found):.2f}" if found else "-"
