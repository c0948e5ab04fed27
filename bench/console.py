#!/usr/bin/env python3
"""Measures the console beside the broker's work, and prints markdown.

    bench/console.py                        all four parts, about five minutes on two cores
    bench/console.py --parts start,pages    some of: start, pages, live, tail
    bench/console.py --topics 200 --groups 50 --rounds 1 --seconds 2     a quick look

start: from exec to the first acknowledged send, and memory, with an empty store; a browser then signs in and looks.
pages: every page and every GET of the API at many topics and groups, while a generator sends at a fixed rate.
live: the latency of those sends without watchers and with live pages open, in interleaved rounds.
tail: the same with live tails of the topic that is sent to; and how long a message takes from its acknowledgement to a
live tail of a quiet topic beside them.
See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import filled_store
from bench.browser import Browser, BrowserError, Tails, Viewers
from bench.build import build
from bench.console_pages import Address, addresses, make_reports, make_users
from bench.rounds import note
from bench.servers import ROCKETBOX, ConsoleServer, cpu_seconds, resident_bytes, shared_out_bytes
from tests.support.peer import Peer, send_fields
from tests.support.web_socket import WebSocket

PARTS = ("start", "pages", "live", "tail")
PASSWORD = "correct horse battery staple"
USERS = ("anna", "boris", "chen", "dora", "emil")  # a user may have eight live pages and four live tails open
GENERATOR_CONNECTIONS = 16
TAILED = 200


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"no such part: {', '.join(sorted(unknown))}")
    print(f"{time.strftime('%Y-%m-%d')}; medians of {options.rounds} rounds.\n")
    if "start" in parts:
        print(measure_start(options) + "\n", flush=True)
    if {"pages", "live", "tail"} & set(parts):
        with filled_server(options) as server:
            if "pages" in parts:
                print(measure_pages(options, server) + "\n", flush=True)
            if "live" in parts:
                print(measure_live(options, server, Viewers, "live pages") + "\n", flush=True)
            if "tail" in parts:
                print(measure_live(options, server, Tails, "live tails") + "\n", flush=True)
                print(measure_tail(options, server), flush=True)
    return 0


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma list of start, pages, live, tail")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one round of live (default 8)")
    parser.add_argument("--rate", type=int, default=20_000, help="sends a second (default 20,000)")
    parser.add_argument("--looks", type=int, default=5, help="times each page is fetched in a round (default 5)")
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--topics", type=int, default=filled_store.TOPICS)
    parser.add_argument("--groups", type=int, default=filled_store.GROUPS)
    parser.add_argument("--flush", choices=("async", "sync"), default="async")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where stores are written")
    return parser.parse_args(arguments)


# ---------------------------------------------------------------- start


def measure_start(options: argparse.Namespace) -> str:
    """One start before the counted ones: the files of Python and Django were not in the page cache."""
    lines = ["| start | unit | " + " | ".join(f"round {n + 1}" for n in range(options.rounds)) + " | median | goal |"]
    lines.append("|---|---|" + "---:|" * (options.rounds + 1) + "---|")
    samples: list[tuple[float, ...]] = []
    for number in range(options.rounds + 1):
        server = ConsoleServer(ROCKETBOX, options.flush, None, options.dir)
        server.environment |= {"ADMIN_USER": USERS[0], "ADMIN_PASSWORD": PASSWORD}
        try:
            to_ack = server.time_to_first_ack()
            to_page = server.wait_for_page()
            browser = Browser(server.http)
            browser.sign_in(USERS[0], PASSWORD)
            for path in ("/", "/topics/", "/groups/"):
                _require_page(browser, path)
            pages_rss, pages_pss = resident_bytes(server.pids), shared_out_bytes(server.pids)
            _require_page(browser, "/api/v1/topics")
            samples.append((to_ack, to_page, pages_rss / 1e6, pages_pss / 1e6, resident_bytes(server.pids) / 1e6))
            browser.close()
        finally:
            server.stop()
        if number == 0:
            samples.clear()
        else:
            note(f"start round {number}: {samples[-1]}")
    for column, (title, unit, goal) in enumerate(
        (
            ("process start to first ack, console on", "s", "≤ 0.7 s"),
            ("process start to the first page", "s", ""),
            ("RSS of arbiter and worker, three pages answered", "MB", "≤ 120 MB"),
            ("PSS of the same", "MB", ""),
            ("RSS with the API loaded, too", "MB", ""),
        )
    ):
        values = [sample[column] for sample in samples]
        shown = " | ".join(f"{value:.3g}" for value in [*values, median(values)])
        lines.append(f"| {title} | {unit} | {shown} | {goal} |")
    return "\n".join(lines)


def _require_page(browser: Browser, path: str) -> float:
    status, took, _ = browser.get(path)
    if status != 200:
        raise BrowserError(f"{path} was answered with {status}")
    return took


# ---------------------------------------------------------------- a filled broker


@contextmanager
def filled_server(options: argparse.Namespace) -> Iterator[ConsoleServer]:
    """Topics, groups, messages and clients; the users are there; stopped and removed afterwards."""
    server = ConsoleServer(ROCKETBOX, options.flush, None, options.dir)
    with ExitStack() as stack:
        stack.callback(server.stop)
        filled_store.write_configuration(server.data_dir / "store", options.topics, options.groups)
        make_users(server.data_dir, USERS, PASSWORD)
        make_reports(server.data_dir, options.groups)
        server.start()
        server.wait_for_page()
        filled_store.send_messages(server.broker, options.topics)
        filled_store.send_dead_letters(server.broker, filled_store.group_name(options.groups // 2))
        for wire in filled_store.connect_clients(server.broker, options.topics, options.groups):
            stack.callback(wire.close)
        server.create_topic("Load", 8)
        wait_until_settled(server)
        note(f"{options.topics} topics, {options.groups} groups; {resident_bytes(server.pids) / 1e6:.0f} MB")
        yield server


def wait_until_settled(server: ConsoleServer, timeout_s: float = 120.0) -> None:
    """Until it has written what the filling left behind: the files of new queues, above all."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        before = cpu_seconds(server.pids)
        time.sleep(1.0)
        if cpu_seconds(server.pids) - before < 0.05:
            return
    note(f"the broker was still busy {timeout_s:.0f} s after it was filled")


class Load:
    """The generator at a fixed rate; `result()` waits for its end."""

    def __init__(self, options: argparse.Namespace, server: ConsoleServer, seconds: float) -> None:
        command = [
            str(build("loadgen")), "paced", "--broker", server.broker, "--topic", "Load", "--queues", "8",
            "--connections", str(GENERATOR_CONNECTIONS), "--rate", str(options.rate), "--body", "1024",
            "--warm-up", "1", "--seconds", str(seconds),
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        time.sleep(1.0)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def result(self) -> dict:
        return json.loads(self._process.communicate()[0])

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.running:
            self._process.kill()
        self._process.wait()


# ---------------------------------------------------------------- pages


def measure_pages(options: argparse.Namespace, server: ConsoleServer) -> str:
    browser = Browser(server.http)
    browser.sign_in(USERS[0], PASSWORD)
    found = addresses(browser, options.topics, options.groups)
    times: dict[Address, list[list[float]]] = {address: [] for address in found}
    elsewhere: dict[str, int] = {}
    sent: list[dict] = []
    for number in range(options.rounds):
        with Load(options, server, seconds=300) as load:
            begin = time.monotonic()
            for address in list(found):
                looks = []
                for _ in range(options.looks):
                    status, took, _ = browser.get(address.path)
                    if status == 405:  # not for looking at
                        break
                    if status != 200:
                        elsewhere[address.path] = status
                    looks.append(took)
                    if status == 0:  # it is reported, and the others are looked at
                        note(f"{address.path}: no answer in {took:.0f} s")
                        break
                if looks:
                    times[address].append(looks)
                else:
                    found.remove(address)
                    del times[address]
            note(f"pages round {number + 1}: {len(found)} addresses in {time.monotonic() - begin:.1f} s")
            if not load.running:
                sent.append(load.result())
    if sent:
        raise BrowserError(f"the generator ended before the pages were through: {sent}")
    browser.close()
    lines = [
        f"{len(found)} addresses, {options.looks} looks each a round, while {options.rate:,}/s are sent; "
        f"{options.topics:,} topics, {options.groups} groups, {options.groups // filled_store.GROUPS_EACH} clients.",
        "",
        "| page | p50 ms | max ms | largest of round medians |",
        "|---|---:|---:|---:|",
    ]
    rows = []
    for address, rounds in times.items():
        looks = [took * 1000 for one in rounds for took in one]
        status = elsewhere.get(address.path)
        name = address.path if status is None else f"{address.path} ({status})"
        rows.append((max(looks), name, median(looks), max(median(one) * 1000 for one in rounds)))
    rows.sort(reverse=True)
    lines += [f"| `{name}` | {middle:.0f} | {top:.0f} | {worst:.0f} |" for top, name, middle, worst in rows]
    over = [name for top, name, _, _ in rows if top > 300]
    lines.append("")
    lines.append(f"Over 300 ms at any time: {', '.join(over) or 'none'}; the slowest took {rows[0][0]:.0f} ms.")
    return "\n".join(lines)


# ---------------------------------------------------------------- live


def measure_live(
    options: argparse.Namespace, server: ConsoleServer, watch: type[Viewers] | type[Tails], what: str
) -> str:
    browsers = []
    for username in USERS:
        browser = Browser(server.http)
        browser.sign_in(username, PASSWORD)
        browsers.append(browser)
    columns: dict[int, list[dict]] = {0: [], int(options.viewers): []}
    with Load(options, server, seconds=min(3, options.seconds)) as warm:
        warm.result()
    for number in range(options.rounds):
        for count, results in columns.items():
            viewers = watch(browsers, count) if count else None
            time.sleep(1.0)
            with Load(options, server, options.seconds) as load:
                result = load.result()
            if viewers is not None:
                viewers.close()
                if viewers.frames < count * options.seconds * 0.8:
                    raise BrowserError(f"{count} viewers saw only {viewers.frames} frames")
            if result["errors"]:
                raise BrowserError(f"the generator counted errors: {result['first_error']}")
            results.append(result["latency_us"] | {"rate": result["rate"]})
            latency = result["latency_us"]
            note(
                f"live round {number + 1}, {count} viewers: {result['rate']:,.0f}/s, "
                + ", ".join(f"{name} {latency[name] / 1000:.3f} ms" for name in ("p50", "p99", "p99.9", "max"))
            )
    for browser in browsers:
        browser.close()
    lines = [
        f"Latency in ms of {options.rate:,} sends/s ({GENERATOR_CONNECTIONS} connections, {options.flush} flush), "
        f"{options.rounds} interleaved rounds of {options.seconds:g} s.",
        "",
        f"| quantile | none | {options.viewers} {what} | rise ms | ratio | goal |",
        "|---|---:|---:|---:|---:|---|",
    ]
    goals = {"p50": "≤ 1.1x", "p99": "≤ 1.5x or + 1 ms", "p99.9": "", "max": ""}
    for name, goal in goals.items():
        alone, watched = (median(one[name] / 1000 for one in results) for results in columns.values())
        lines.append(
            f"| {name} | {alone:.3f} | {watched:.3f} | {watched - alone:+.3f} | {watched / alone:.2f} | {goal} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- tail


def measure_tail(options: argparse.Namespace, server: ConsoleServer) -> str:
    """From a message's acknowledgement to the frame that shows it, one message after the other on a quiet topic."""
    browsers = []
    for username in USERS:
        browser = Browser(server.http)
        browser.sign_in(username, PASSWORD)
        browsers.append(browser)
    server.create_topic("Quiet", 4)
    lines = [
        f"From a message's acknowledgement to its frame in a live tail of a quiet topic, {TAILED} messages, in ms.",
        "",
        "| beside it | p50 | p99 | max | goal |",
        "|---|---:|---:|---:|---|",
    ]
    for title, others, loaded in (
        ("nothing", 0, False),
        (f"{options.rate:,} sends/s", 0, True),
        (f"{options.rate:,} sends/s and {options.viewers - 1} live tails of them", options.viewers - 1, True),
    ):
        with ExitStack() as stack:
            if others:
                stack.callback(Tails(browsers[1:] + browsers[:1], others).close)
            if loaded:
                stack.enter_context(Load(options, server, seconds=300))
            took = sorted(_tailed(server, browsers[0]))
        shown = " | ".join(f"{took[int(len(took) * part)]:.1f}" for part in (0.5, 0.99))
        lines.append(f"| {title} | {shown} | {took[-1]:.1f} | p50 ≤ 50 |")
        note(lines[-1])
    for browser in browsers:
        browser.close()
    return "\n".join(lines)


def _tailed(server: ConsoleServer, browser: Browser) -> Iterator[float]:
    peer = Peer(server.broker)
    with WebSocket(server.http, "/messages/tail/?topic=Quiet", {"Cookie": browser.cookie}) as socket:
        socket.next(10)
        for number in range(TAILED):
            time.sleep(0.031 + number % 7 * 0.003)  # not in step with the looks
            assert peer.ask(310, send_fields("Quiet", number % 4), b"x" * 200).code == 0
            begin = time.perf_counter()
            while '"rows":[{' not in (socket.next(10) or ""):
                pass
            yield (time.perf_counter() - begin) * 1000
    peer.close()


if __name__ == "__main__":
    sys.exit(main())
