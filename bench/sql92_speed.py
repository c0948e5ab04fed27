#!/usr/bin/env python3
"""How fast SQL92 expressions are read, and judge messages beside Apache's filter module in one run; prints markdown.

    bench/sql92_speed.py                      two minutes
    bench/sql92_speed.py --milliseconds 200 --rounds 1

A judgement starts at a record (Apache's: at its properties). Apache decodes all properties; ours is the way of a pull:
a thousand queue entries are settled out of a file in memory, by the compiled part where it is built (ROCKETBOX_PURE
says otherwise), and what was not seen before is judged. One thread each, in turns. Needs Java and Maven as
`bench/run.py` does. Reading an expression is timed in the thread's own time: the shortest of some rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.filter.sql92 import MAX_LENGTH, compile_sql92
from appliance.engine.filter.sql92.nodes import property_names
from appliance.engine.filter.sql92.parser import parse
from appliance.engine.filter.sql92.program import compile_matches
from appliance.engine.filter.sql_filter import SqlFilter
from appliance.engine.hotpath import values_of
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from appliance.engine.store.queues.consume_queue import ENTRY
from appliance.engine.store.settling import Settling
from tests.support.sql92.apache_filter import ApacheRates

EXPRESSIONS = {
    "one test": "a > 5",
    "two tests": "a > 5 AND b = 'x'",
    "IN": "region IN ('north', 'south', 'east', 'west', 'up', 'down')",
    "BETWEEN": "a BETWEEN 3 AND 6",
    "doubles": "price >= 1.5 AND price < 7.25",
    "text": "b STARTSWITH 'x' OR region CONTAINS 'ort'",
    "five names": "a > 5 AND b = 'x' AND region IN ('north', 'south') AND price < 5.0 AND vip IS NOT NULL",
    "a name that is not there": "absent = 'x'",
    "always an exception": "region > 5",
}
_REGIONS = ("north", "south", "middle", "abroad")


def properties_texts() -> list[str]:
    """A thousand messages as a Java client sends them, with some properties of its own."""
    return [
        encode_properties(
            {
                "KEYS": f"order-{number:08d}",
                "UNIQ_KEY": f"{number:032X}",
                "CLUSTER": "DefaultCluster",
                "a": str(number % 10),
                "b": "xyz"[number % 3],
                "region": _REGIONS[number % 4],
                "price": f"{number % 97 / 10}",
                "WAIT": "true",
                "TAGS": "TagA",
            }
        )
        for number in range(1000)
    ]


def write_log(path: Path, texts: list[str]) -> bytes:
    """A log of records of 1 KiB bodies with these properties; gives their queue entries."""
    host = b"\x7f\0\0\1\0\0\x2a\x9f"
    data, entries = bytearray(), bytearray()
    for text in texts:
        fields = (0, MAGIC_V1, 0, 0, 0, 0, len(data), 0, 0, None, 1_700_000_000_000, None, 0, 0)
        record = encode_record(Record(*fields, bytes(1024), "BenchSql92", text), host, host)
        entries += ENTRY.pack(len(data), len(record), 0)
        data += record
    path.write_bytes(data)
    return bytes(entries)


def settle(settling: Settling, entries: bytes, wanted: SqlFilter) -> tuple[int, int]:
    """How many were judged, and how many of them match."""
    settled = settling.settle(entries, wanted, len(entries), 10.0)
    assert settled is not None
    return len(settled) // ENTRY.size, settled[ENTRY.size - 1 :: ENTRY.size].count(1)


def rate(judge: Callable[[], tuple[int, int]], milliseconds: int) -> tuple[int, int]:
    """Judgements a second, each call giving those of all messages, and how many of them match."""
    began = time.perf_counter()
    end, judged = began + milliseconds / 1000, 0
    while time.perf_counter() < end:
        more, matched = judge()
        judged += more
    return int(judged / (time.perf_counter() - began)), matched


def microseconds(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times) * 1e6


def judge(path: Path, milliseconds: int, rounds: int) -> None:
    texts = properties_texts()
    maps = [decode_properties(text) for text in texts]
    entries = write_log(path, texts)
    with path.open("rb") as file, ApacheRates(milliseconds) as apache_rates:
        fd, size = file.fileno(), path.stat().st_size
        values = None if values_of is None else partial(values_of, fd, 0, size)
        settling = Settling(lambda offset, count: os.pread(fd, count, offset), values)
        print(f"{'Pure' if values is None else 'Compiled'}.\n")
        print("| expression | Apache 5.3.3 | ours | ours : Apache | values not seen before | verdict alone |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, text in EXPRESSIONS.items():
            expression = compile_sql92(text)
            forms: list[Callable[[], tuple[int, int]]] = [
                partial(settle, settling, entries, SqlFilter(text, expression)),
                lambda text=text, made=expression: settle(settling, entries, SqlFilter(text, made)),
                lambda made=expression: (len(maps), sum([made.matches(properties) for properties in maps])),
            ]
            samples: list[list[int]] = [[] for _ in range(4)]
            for _ in range(rounds):
                measured = [apache_rates.rate(text, texts)]
                measured += [rate(form, milliseconds) for form in forms]
                if len({matched for _, matched in measured}) > 1:
                    raise SystemExit(f"not the same verdicts: {text}: {measured}")
                for sample, (speed, _) in zip(samples, measured, strict=True):
                    sample.append(speed)
            apache, ours, fresh, alone = [median(sample) for sample in samples]
            cells = f"{apache:,} | {ours:,} | {ours / apache:.2f} | {fresh:,} | {alone:,}"
            print(f"| {name}: `{text}` | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--milliseconds",
        type=int,
        default=700,
        help="of one measurement",
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketbox-sql92-", dir="/dev/shm") as scratch:
        judge(Path(scratch) / "log", arguments.milliseconds, arguments.rounds)
    print("\n| read and compile | characters | read us | compile us |\n|---|---:|---:|---:|")
    for name, text in (
        ("two tests", EXPRESSIONS["two tests"]),
        ("five names", EXPRESSIONS["five names"]),
        ("longest, whole numbers", "a=1or " * (MAX_LENGTH // 6 - 2) + "b=2"),
        ("longest, doubles", "a>1.or " * (MAX_LENGTH // 7 - 2) + "b=2"),
    ):
        node = parse(text)
        names = sorted(property_names(node))
        read = microseconds(lambda text=text: parse(text), 5)
        made = microseconds(lambda node=node, names=names: compile_matches(node, names), 5)
        print(f"| {name} | {len(text):,} | {read:,.0f} | {made:,.0f} |")


if __name__ == "__main__":
    main()
