#!/usr/bin/env python3
"""A large backlog of delayed messages, seen and acted on through the window; prints markdown.

    bench/waiting.py                        1,000,000 messages that wait, of 1,000 groups
    bench/waiting.py --messages 10000

The store is made in this process, through the broker's own appends, in batches; then the engine starts over it. Of each
question: how often it had to be asked until it was whole, the slowest call, what memory it left, and how long another
thread of the process was kept from running meanwhile (the GIL, D10). See bench/README.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.broker.delays.levels import Place, make_wait
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.protocol.properties import RETRY_TOPIC, UNIQUE_KEY, encode_properties
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from bench.rounds import note
from bench.servers import resident_bytes
from tests.support.engine import RunningEngine

LEVELS = "1h 2h 3h 4h 5h"
GROUPS = 1000
BODY = b"x" * 100
BATCH = 500


class Ticks:
    """A thread that wants to run every 0.2 ms, and the longest it was kept from it."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._ended:
            time.sleep(0.0002)
            now = time.perf_counter()
            self.longest_ms = max(self.longest_ms, (now - before) * 1000)
            before = now

    def stop(self) -> float:
        self._ended = True
        self._thread.join()
        return self.longest_ms


def fill(running: RunningEngine, messages: int) -> None:
    """Messages of all groups in turn, over all levels."""
    broker = running.engine.broker
    assert broker is not None
    levels = broker.delay_levels.highest
    under_way = []
    for begin in range(0, messages, BATCH):
        batch = []
        for number in range(begin, min(messages, begin + BATCH)):
            properties = {RETRY_TOPIC: f"Orders-{number % 7}", UNIQUE_KEY: f"{number:032X}"}
            level = number % levels + 1
            make_wait(properties, level, Place(f"%RETRY%group-{number % GROUPS}", 0))
            batch.append(
                OwnMessage(
                    SCHEDULE_TOPIC,
                    level - 1,
                    BODY,
                    encode_properties(properties),
                    properties[UNIQUE_KEY],
                    born_ms=0,
                    reconsume_times=1,
                )
            )
        under_way.append(broker.own_appends.submit(batch))
        if len(under_way) >= 8:
            under_way.pop(0).result(60)
    for future in under_way:
        future.result(60)


def ask(title: str, question: Callable[[], bool]) -> None:
    """question: whether its answer was whole."""
    gc.collect()
    before = resident_bytes([os.getpid()])
    ticks = Ticks()
    calls, slowest = 0, 0.0
    begin = time.perf_counter()
    whole = False
    while not whole and calls < 1000:
        at = time.perf_counter()
        whole = question()
        slowest = max(slowest, time.perf_counter() - at)
        calls += 1
    took = time.perf_counter() - begin
    kept = ticks.stop()
    gc.collect()
    grown = (resident_bytes([os.getpid()]) - before) / (1 << 20)
    print(f"| {title} | {calls} | {slowest * 1000:.0f} | {took:.2f} | {kept:.1f} | {grown:+.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    sys.setswitchinterval(0.0001)  # as the product does
    with tempfile.TemporaryDirectory(prefix="rocketbox-waiting-") as directory:
        store = {"message_delay_level": LEVELS, "mapped_file_size_commit_log": 256 << 20}
        running = RunningEngine(Path(directory) / "data", store=store)
        try:
            begin = time.perf_counter()
            fill(running, options.messages)
            note(f"{options.messages} messages stored in {time.perf_counter() - begin:.1f} s")
            running.restart()
            window = running.window
            for name in ("group-7", "group-8", "group-9"):
                window.group_commands.create(name)
            print("| question | calls | slowest ms | all s | others kept waiting, ms | memory, MiB |")
            print("|---|---:|---:|---:|---:|---:|")
            ask("levels", lambda: bool(window.waiting.levels()))
            ask("histogram", lambda: not window.waiting.by_due(60_000, 400).truncated)
            ask("first page", lambda: len(window.waiting.page().rows) == 50)
            ask("a group's ladder, until it is whole", lambda: not window.waiting.ladder("group-7").truncated)
            ask("the same again", lambda: not window.waiting.ladder("group-8").truncated)
            ask("a page of one group", lambda: len(window.waiting.page(group="group-7").rows) > 0)
            ask("drop 1,000 of a group", lambda: window.waiting_commands.run("drop", group="group-9").done >= 0)
            ask("its ladder after that", lambda: not window.waiting.ladder("group-9").truncated)
        finally:
            running.stop()


if __name__ == "__main__":
    main()
