"""The order of measuring: which server runs when, and what is dropped.

A server that fails is left out of the rest of its row and counted as one error; the others go on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.columns import TITLES, make_column
from bench.delayed_load import DelayError
from bench.rows import Bench, LoadError, Row, Sample
from bench.servers import PURE, ApacheError, RocketBoxServer, Server, ServerError

FAILURES = (LoadError, DelayError, ServerError, ApacheError, OSError)


@dataclass(frozen=True)
class Starter:
    """How servers are made: their CPUs (a taskset list or None) and where their stores lie."""

    cpus: str | None
    scratch_root: Path

    def make(self, label: str, row: Row) -> Server:
        return make_column(label, row.flush, self.cpus, self.scratch_root)


def run_row(
    row: Row, labels: Sequence[str], bench: Bench, rounds: int | None, starter: Starter
) -> dict[str, list[Sample]]:
    """Every sample of a row by server label. rounds: None for the row's own number."""
    rounds = rounds or row.rounds
    samples: dict[str, list[Sample]] = {label: [] for label in labels if row.takes(label)}
    if row.fresh:
        _fresh_rounds(row, bench, rounds, starter, samples)
    else:
        _interleaved_rounds(row, bench, rounds, starter, samples)
    return samples


def _fresh_rounds(row: Row, bench: Bench, rounds: int, starter: Starter, samples: dict[str, list[Sample]]) -> None:
    """A new server for each sample, and one before them that does not count: its files were not in the page cache."""
    left = list(samples)
    for number in range(rounds + 1):
        for label in list(left):
            server = starter.make(label, row)
            try:
                if not row.starts_itself:
                    server.start()
                sample = row.measure(bench, server)
                require_twin(server)
            except FAILURES as failure:
                samples[label].append(_failed(label, failure))
                left.remove(label)
                continue
            finally:
                server.stop()
            if number > 0:
                samples[label].append(sample)
                _tell(row, label, number, sample)


def _interleaved_rounds(
    row: Row, bench: Bench, rounds: int, starter: Starter, samples: dict[str, list[Sample]]
) -> None:
    """All servers are up and warm; in each round one after the other is thawed, measured and frozen again."""
    servers: dict[str, Server] = {}
    try:
        for label in samples:
            server = servers[label] = starter.make(label, row)
            try:
                server.start()
                require_twin(server)
                row.warm(bench, server)
                server.freeze()
            except FAILURES as failure:
                samples[label].append(_failed(label, failure))
                servers.pop(label).stop()
        for number in range(1, rounds + 1):
            for label, server in list(servers.items()):
                os.sync()  # what the one before wrote is not this one's burden
                try:
                    server.thaw()
                    sample = row.measure(bench, server)
                    server.freeze()
                except FAILURES as failure:
                    samples[label].append(_failed(label, failure))
                    servers.pop(label).stop()
                    continue
                samples[label].append(sample)
                _tell(row, label, number, sample)
    finally:
        for server in servers.values():
            server.stop()


def require_twin(server: Server) -> None:
    """A column of one twin must not be filled by the other."""
    if not isinstance(server, RocketBoxServer):
        return
    compiled = server.runs_compiled()
    if server.label == PURE and compiled:
        raise ServerError("the compiled part is loaded in spite of ROCKETBOX_PURE")
    if server.label != PURE and not compiled:
        raise ServerError("the compiled part is not there: build it, unset ROCKETBOX_PURE, or measure `pure` alone")


def _failed(label: str, failure: Exception) -> Sample:
    note(f"{TITLES.get(label, label)} is out of this row: {failure}")
    return Sample({}, errors=1, raw={"first_error": str(failure)})


def _tell(row: Row, label: str, number: int, sample: Sample) -> None:
    values = ", ".join(f"{figure.title} {sample.values[figure.key]:,.3f} {figure.unit}" for figure in row.figures)
    errors = f", {sample.errors} errors: {sample.raw.get('first_error')}" if sample.errors else ""
    note(f"round {number}, {TITLES.get(label, label)}: {values}{errors}")


def note(text: str) -> None:
    """Progress, on standard error: standard output is the table."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
