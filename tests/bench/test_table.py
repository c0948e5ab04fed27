"""The bench's tables: medians, the better Apache, ratios that point the right way."""

from __future__ import annotations

from dataclasses import replace

from bench import table
from bench.others import NATS, REDIS, RIG
from bench.rows import WARM_SECONDS, Bench, Figure, Row, Sample, is_steady
from bench.run import describe_memory
from bench.servers import APACHES, LABELS, PURE, ROCKETBOX, Server

OLD, NEW = APACHES


def row(key: str, *figures: Figure) -> Row:
    def measure(bench: Bench, server: Server) -> Sample:
        raise AssertionError("a table measures nothing")

    return Row(key, "async", figures, measure)


def samples(key: str, *values: float, errors: int = 0, p99: float | None = None) -> list[Sample]:
    latency = None if p99 is None else {"p50": 1000.0, "p99": p99, "p99.9": p99}
    return [Sample({key: value}, errors, latency) for value in values]


def cells(text: str, line: int) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[line].strip("|").split("|")]


def test_a_rate_is_held_against_the_faster_apache() -> None:
    rate = row("send", Figure("send", "sends", "msg/s", goal="≥ 1.3"))
    results = {
        "send": {
            ROCKETBOX: samples("send", 90_000, 60_000, 30_000),
            OLD: samples("send", 40_000, 30_000, 20_000),
            NEW: samples("send", 10_000, 10_000, 10_000, errors=2),
        }
    }
    line = cells(table.figures_table(results, [rate], LABELS), 2)
    assert line == ["sends", "msg/s", "60,000 ±50 %", "30,000 ±33 %", "10,000 ±0 %", "2.00", "1.50", "≥ 1.3", "0/0/6"]


def test_a_time_is_held_against_the_shorter_apache() -> None:
    time = row("p50", Figure("p50", "end to end", "ms", lower_is_better=True))
    results = {"p50": {ROCKETBOX: samples("p50", 0.25), OLD: samples("p50", 2.0), NEW: samples("p50", 1.0)}}
    assert cells(table.figures_table(results, [time], LABELS), 2)[2:6] == ["0.25 ±0 %", "2 ±0 %", "1 ±0 %", "0.25"]


def test_without_apache_there_is_no_ratio_and_a_failed_server_leaves_its_cell_empty() -> None:
    rate = row("send", Figure("send", "sends", "msg/s"))
    results = {"send": {ROCKETBOX: samples("send", 5), OLD: [Sample({}, errors=1)]}}
    assert cells(table.figures_table(results, [rate], [ROCKETBOX, OLD]), 2)[2:] == ["5 ±0 %", "", "", "", "", "0/1"]


def test_our_synchronous_flush_is_also_held_against_apaches_asynchronous_one() -> None:
    rows = [row(key, Figure(key, key, "msg/s")) for key in ("send-64-async", "send-64-sync")]
    results = {
        "send-64-async": {ROCKETBOX: samples("send-64-async", 90), OLD: samples("send-64-async", 40)},
        "send-64-sync": {ROCKETBOX: samples("send-64-sync", 50), OLD: samples("send-64-sync", 25)},
    }
    last = cells(table.figures_table(results, rows, [ROCKETBOX, OLD]), 4)
    assert "ours with sync flush / Apache with async flush" in last[0]
    assert last[4] == "1.25"


def test_latencies_are_medians_in_milliseconds() -> None:
    rate = row("send", Figure("send", "sends", "msg/s"))
    ours = [sample for p99 in (1000, 3000, 2000) for sample in samples("send", 1, p99=p99)]
    results = {"send": {ROCKETBOX: ours, OLD: samples("send", 1, p99=8000), NEW: samples("send", 1, p99=9000)}}
    line = cells(table.latency_table(results, [rate], LABELS), 2)
    assert line[:5] == ["sends", "1 / 2 / 2", "1 / 8 / 8", "1 / 9 / 9", "0.25"]


def test_both_twins_stand_beside_apache_and_the_c_server() -> None:
    rate = row("send", Figure("send", "sends", "msg/s"))
    labels = [ROCKETBOX, PURE, OLD, RIG]
    results = {
        "send": {
            ROCKETBOX: samples("send", 90, p99=1000),
            PURE: samples("send", 30, p99=3000),
            OLD: samples("send", 60, p99=6000),
            RIG: samples("send", 180, p99=500),
        }
    }
    rate = replace(rate, others=(RIG,))
    text = table.figures_table(results, [rate], labels)
    assert cells(text, 0)[6:12] == ["ratio", "pure: ratio", "to C", "pure: to C", "last round", "pure: last round"]
    assert cells(text, 2)[6:10] == ["1.50", "0.50", "0.50", "0.17"]
    assert cells(table.latency_table(results, [rate], labels), 2)[5:] == ["0.17", "0.50", "2.00", "6.00"]


def test_what_is_not_comparable_and_what_is_not_there_is_said() -> None:
    rows = [
        replace(row("send", Figure("send", "sends", "msg/s")), others=(NATS, REDIS)),
        row("pull", Figure("p", "p", "x")),
    ]
    results = {key: {ROCKETBOX: samples(key[0] if key == "pull" else key, 5), NATS: []} for key in ("send", "pull")}
    text = table.figures_table(results, rows, [ROCKETBOX, NATS, REDIS], absent=[REDIS])
    assert cells(text, 2)[2:5] == ["5 ±0 %", "", "not installed"]
    assert cells(text, 3)[2:5] == ["5 ±0 %", "-", "-"]
    assert cells(text, 2)[-1] == "0/0/-"


def test_cpu_time_is_held_against_the_apache_that_takes_less() -> None:
    rate = replace(row("send", Figure("send", "sends", "msg/s")), cpu_goal="≤ 1/2")

    def spent(*values: float) -> list[Sample]:
        return [Sample({}, cores=value / 10, cpu_ms=value, generator_cores=0.5) for value in values]

    results = {"send": {ROCKETBOX: spent(1, 2, 9), OLD: spent(8), NEW: spent(6)}}
    line = cells(table.cpu_table(results, [rate], LABELS), 2)
    assert line == ["sends", "2", "8", "6", "0.33", "≤ 1/2", "0.20 / 0.80 / 0.60", "0.50 / 0.50 / 0.50"]


def test_the_last_round_stands_beside_the_median() -> None:
    """A JVM that is still being compiled makes the median better than it will stay."""
    rate = row("send", Figure("send", "sends", "msg/s"))
    results = {
        "send": {
            ROCKETBOX: samples("send", 90, 90, 60),
            OLD: samples("send", 30, 45, 60),
            NEW: samples("send", 1, 1, 1),
        }
    }
    text = table.figures_table(results, [rate], LABELS)
    assert cells(text, 0)[5:7] == ["ratio", "last round"]
    assert cells(text, 2)[5:7] == ["2.00", "1.00"]


def test_a_server_that_compiles_is_warm_when_two_seconds_agree() -> None:
    rising = [1000.0 * number for number in range(1, WARM_SECONDS + 1)]
    assert not is_steady(rising)
    assert not is_steady([1000.0] * (WARM_SECONDS - 1))
    assert is_steady([*rising, rising[-1] * 1.04])


def test_the_head_tells_what_takes_memory_away(tmp_path) -> None:
    assert "reporting to the host absent, DAMON reclaim off, transparent huge pages unknown" in describe_memory(
        tmp_path
    )
    for name, text in (
        ("module/page_reporting/parameters/page_reporting_order", "10"),
        ("module/damon_reclaim/parameters/enabled", "Y"),
        ("kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text + "\n")
    assert "reporting to the host possible, DAMON reclaim on, transparent huge pages madvise" in describe_memory(
        tmp_path
    )
