#!/usr/bin/env python3
"""Measures looking for messages by an expression, and what it costs those who send. Prints markdown.

    bench/message_scan.py                           a million messages, about three minutes on two cores
    bench/message_scan.py --messages 100000 --rounds 1 --seconds 3       a quick look

pages: one page of a filtered list, and how far it came; jobs: the same over everything, as a job. Then the latency of
sends at a fixed rate to another topic, alone, beside pages one after another, and beside a job, in interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.browser import Browser
from bench.build import build
from bench.console_pages import make_users
from bench.filled_store import Wire
from bench.rounds import note
from bench.servers import ROCKETBOX, ConsoleServer

PASSWORD = "correct horse battery staple"
TOPIC, QUEUES = "Haystack", 8
FILTERS = {
    "tag and a number": "tag = 't7' AND n > 999990",
    "JSON path": "body('$.order.total') > 99999",
    "text in the body": "body CONTAINS 'no such text'",
    "regular expression": 'body REGEXP \'"city": *"U[lr]m"\'',
}
AS_A_JOB = ("JSON path",)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2000, help="sends a second beside the scan")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--flush", default="async", choices=("async", "sync"))
    parser.add_argument("--dir", default=None)
    options = parser.parse_args(arguments)
    server = ConsoleServer(ROCKETBOX, options.flush, None, options.dir)
    try:
        make_users(server.data_dir, ("anna",), PASSWORD)
        server.start()
        server.wait_for_page()
        server.create_topic(TOPIC, QUEUES)
        server.create_topic("Load", 8)
        fill(server.broker, options.messages)
        browser = Browser(server.http)
        browser.sign_in("anna", PASSWORD)
        print(measure_pages(browser) + "\n", flush=True)
        print(measure_sends(options, server, browser), flush=True)
    finally:
        server.stop()
    return 0


def fill(broker: str, count: int) -> None:
    begin = time.monotonic()
    wire = Wire(broker)
    wire.ask_all(
        (
            310,
            {
                "a": "BenchGroup", "b": TOPIC, "c": "TBW102", "d": "8", "e": str(n % QUEUES), "f": "0",
                "g": "1700000000000", "h": "0", "j": "0", "k": "false", "m": "false", "n": "broker-a",
                "i": f"KEYS\x01order-{n}\x02TAGS\x01t{n % 10}\x02n\x01{n}\x02region\x01north\x02WAIT\x01true\x02",
            },
            b'{"order": {"id": %d, "total": %d}, "city": "Ulmen", "text": "%s"}' % (n, n % 1000, b"x" * 100),
        )
        for n in range(count)
    )  # fmt: skip
    wire.close()
    note(f"{count:,} messages in {time.monotonic() - begin:.0f} s")


def measure_pages(browser: Browser) -> str:
    lines = ["| filter | a page, ms | looked through | as a job, s | messages/s |", "|---|---:|---:|---:|---:|"]
    for name, text in FILTERS.items():
        address = f"/messages/?topic={TOPIC}&filter={quote(text)}"
        times = []
        for _ in range(5):
            status, seconds, page = browser.get(address)
            assert status == 200, page
            times.append(seconds * 1000)
        scanned = re.sub(rb"[^0-9]", b"", re.search(rb"scanned (.*?) of", page, re.DOTALL)[1])  # type: ignore[index]
        job = "| |"
        if name in AS_A_JOB:
            seconds, total = run_job(browser, text)
            job = f"{seconds:.1f} | {total / seconds:,.0f} |"
        lines.append(f"| {name} | {median(times):.0f} | {int(scanned):,} | {job}")
        note(lines[-1])
    return "\n".join(lines)


def start_job(browser: Browser, text: str) -> str:
    place = browser.fill_in("/messages/export/", topic=TOPIC, filter=text, format="ndjson")
    return place.rstrip("/").rsplit("/", 1)[1]


def state_of(browser: Browser, job: str) -> dict[str, Any]:
    return dict(json.loads(browser.get(f"/api/v1/jobs/{job}")[2]))


def run_job(browser: Browser, text: str) -> tuple[float, int]:
    begin = time.monotonic()
    job = start_job(browser, text)
    while True:
        time.sleep(0.2)
        found = state_of(browser, job)
        if found["state"] == "done":
            return time.monotonic() - begin, found["done"]
        assert found["state"] in ("waiting", "running"), found


def measure_sends(options: argparse.Namespace, server: ConsoleServer, browser: Browser) -> str:
    def beside_pages(stop: threading.Event) -> None:
        while not stop.is_set():
            browser.get(f"/messages/?topic={TOPIC}&filter={quote(FILTERS['JSON path'])}")

    def beside_a_job(stop: threading.Event) -> None:
        while not stop.is_set():
            job = start_job(browser, FILTERS["regular expression"])
            while not stop.is_set() and state_of(browser, job)["state"] in ("waiting", "running"):
                stop.wait(0.5)
            if state_of(browser, job)["state"] in ("waiting", "running"):
                browser.fill_in(f"/jobs/{job}/", f"/jobs/{job}/cancel/")

    cases: dict[str, Callable[[threading.Event], None] | None] = {
        "alone": None, "beside pages": beside_pages, "beside a job": beside_a_job,
    }  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for number in range(options.rounds + 1):
        for name, beside in cases.items():
            stop = threading.Event()
            thread = threading.Thread(target=beside, args=(stop,)) if beside else None
            if thread:
                thread.start()
                time.sleep(1)
            latency = load(options, server)
            stop.set()
            if thread:
                thread.join()
            if number:  # the first round warms up
                found[name].append(latency)
                note(f"round {number}, {name}: p50 {latency['p50'] / 1000:.3f} ms, p99 {latency['p99'] / 1000:.3f} ms")
    lines = [
        f"Latency in ms of {options.rate:,} sends/s of 1 KiB ({options.flush} flush) to another topic, medians of "
        f"{options.rounds} interleaved rounds of {options.seconds:g} s.",
        "",
        "| quantile | alone | beside pages | beside a job | job: rise ms | job: ratio | goal |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for quantile in ("p50", "p99", "p99.9"):
        alone, pages, job = (median(one[quantile] for one in found[name]) / 1000 for name in cases)
        goal = "<= 1.5x or + 1 ms" if quantile == "p99" else ""
        lines.append(
            f"| {quantile} | {alone:.3f} | {pages:.3f} | {job:.3f} | {job - alone:+.3f} | {job / alone:.2f} | {goal} |"
        )
    return "\n".join(lines)


def load(options: argparse.Namespace, server: ConsoleServer) -> dict[str, float]:
    command = [
        str(build("loadgen")), "paced", "--broker", server.broker, "--topic", "Load", "--queues", "8",
        "--connections", "16", "--rate", str(options.rate), "--body", "1024", "--warm-up", "1",
        "--seconds", str(options.seconds),
    ]  # fmt: skip
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    result = json.loads(answer.stdout)
    assert not result["errors"], result["first_error"]
    return dict(result["latency_us"])


if __name__ == "__main__":
    sys.exit(main())
