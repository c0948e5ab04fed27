"""What the history costs: processor time of a sample and of a write, and bytes on disk, at many topics and groups.

    python -m bench.history [topics] [groups] [hours]

All topics and all groups move between any two samples, which is the worst case. Time is the process's own; the hours
pass on a clock that is turned.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

QUEUES = 4


def main(topics: int, groups: int, hours: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
    os.environ.setdefault("ROCKETBOX_DATA_DIR", tempfile.mkdtemp())
    from appliance.console.history import codes, series
    from appliance.console.history.file import FINE_MS, HOUR_MS, NAME
    from appliance.console.history.recorder import Recorder
    from appliance.engine.clock import FakeClock
    from tests.support.engine import RunningEngine

    class Restless(FakeClock):
        def wait(self, gate: Any, seconds: float | None) -> bool:
            return False

    with tempfile.TemporaryDirectory() as directory:
        running = RunningEngine(Path(directory) / "data", store={"flush_disk_type": "ASYNC_FLUSH"})
        broker = running.engine.broker
        assert broker is not None
        names = [f"topic-{n:04}" for n in range(topics)]
        for name in names:
            running.window.topic_commands.create(name, read_queues=QUEUES, write_queues=QUEUES)
            running.put(name, *[b"x" * 64] * 3)
        for n in range(groups):
            broker.groups.find(f"group-{n:04}")
            broker.offsets.commit(f"group-{n:04}", names[n % topics], 0, 1)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clock = Restless(1_800_000_000_000 // HOUR_MS * HOUR_MS)
        recorder = Recorder(Path(directory), clock=clock, measure=lambda: running.window.measurements.take(30))
        series.use(recorder)
        samples = 0
        for hour in range(hours):
            for slot in range(HOUR_MS // FINE_MS):
                if hour == 0 and slot < 4:  # the engine's own part is the same each time
                    for name in names:
                        running.put(name, b"y" * 64)
                    for n in range(groups):
                        broker.offsets.commit(f"group-{n:04}", names[n % topics], 0, 2 + slot)
                    running.sample()
                    recorder.step()
                    samples += 1
                    sample_ms = recorder.sample_s * 1000 / samples
                else:  # figures of an hour in which everything moves
                    assert recorder.hour is not None
                    number, place = clock.wall_ms() // HOUR_MS, clock.wall_ms() % HOUR_MS // FINE_MS
                    if recorder.hour.number != number:
                        recorder.write()
                        recorder.hour = recorder._take_up(number)
                    figures = [
                        (one, codes.encode(float((one * 37 + slot * 11 + hour) % 997)))
                        for of_name in recorder._ids.values()
                        for one in of_name.values()
                    ]
                    recorder.hour.put(place, figures)
                    if slot % 10 == 9:
                        recorder.write()
                clock.advance(FINE_MS)
        count = sum(map(len, recorder._ids.values()))
        wrote = time.thread_time()
        recorder.hour.changed |= recorder.hour.rows.keys() if recorder.hour else set()
        recorder.write()
        wrote = time.thread_time() - wrote
        recorder._close()
        size = (Path(directory) / NAME).stat().st_size
        after_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{topics} topics, {groups} groups, {count} series, all of them moving")
        print(f"a sample: {sample_ms:.1f} ms of processor time each 30 s ({sample_ms / 300:.2f} % of a processor)")
        print(f"a write of the whole hour: {wrote * 1000:.0f} ms each 300 s ({wrote / 3:.2f} %)")
        print(f"on disk after {hours} h: {size / 1e6:.1f} MB, {size / hours / count:.0f} bytes a series and hour")
        begun = time.perf_counter()
        now = clock.wall_ms()
        series.series("group_lag", "group-0001", now - 24 * HOUR_MS, now, points=300)
        print(f"a question of 24 h: {(time.perf_counter() - begun) * 1000:.1f} ms")
        print(f"most memory: {before_kib / 1024:.0f} MiB before, {after_kib / 1024:.0f} MiB after")
        series.use(None)
        running.stop()


if __name__ == "__main__":
    main(*(int(text) for text in (*sys.argv[1:], *("2000", "2000", "3")[len(sys.argv) - 1 :])))
