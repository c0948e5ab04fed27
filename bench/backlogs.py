"""What a great many messages cost that wait for a decision or a date, while nothing happens to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.delayed_load import Wait, fill
from bench.servers import Server, resident_bytes
from tests.support.apache import ask

#: Two hours: nothing of it comes due while a row is measured.
FAR_MS = 7_200_000
#: Apache's `transactionTimeOut`, and how often it checks a half message.
TIME_OUT_S, INTERVAL_S = 6.0, 30.0
SETTLE_S = 5.0


def running_seconds(pids: tuple[int, ...]) -> float:
    """CPU time of all threads that are there, to the nanosecond; those of threads that ended are not in it."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:  # it has just ended
                continue
    return total / 1e9


def cpu_share(pids: tuple[int, ...], seconds: float) -> float:
    """CPUs used over the next `seconds`."""
    begin, before = time.monotonic(), running_seconds(pids)
    time.sleep(seconds)
    return (running_seconds(pids) - before) / (time.monotonic() - begin)


def settle(server: Server, idle: float, seconds: float = 60.0) -> None:
    """Wait until it uses hardly more CPU than `idle`, or until time is over: Apache never rests with a backlog."""
    deadline = time.monotonic() + seconds
    while cpu_share(server.pids, 2.0) > idle + 0.01 and time.monotonic() < deadline:
        pass


def max_offset(server: Server, topic: str, queue_id: int) -> int:
    header, _ = ask(server.broker, 30, {"topic": topic, "queueId": str(queue_id)})
    return int(header["extFields"]["offset"]) if header["code"] == 0 else 0


def until_all(server: Server, topic: str, queues: int, wanted: int, seconds: float = 20.0) -> int:
    """How many of `wanted` messages a topic of so many queues holds, once it holds them or time is over."""
    deadline = time.monotonic() + seconds
    while True:
        count = sum(max_offset(server, topic, queue) for queue in range(queues))
        if count >= wanted or time.monotonic() > deadline:
            return count
        time.sleep(0.05)


def measure_timers(server: Server, topic: str, messages: int, warm: Callable[[], None]) -> dict[str, float]:
    """Memory that messages due in two hours add beside as many that wait for nothing, in MB; seconds from SIGKILL's
    next start to the first acknowledgement. The server is not started yet. warm: makes it ready to take so much at
    once."""
    server.start()
    warm()
    server.create_topic(topic, 1)
    fill(server, topic, Wait(), messages)
    time.sleep(SETTLE_S)
    plain = resident_bytes(server.pids)
    fill(server, topic, Wait(timer_ms=FAR_MS), messages)
    time.sleep(SETTLE_S)
    filled = resident_bytes(server.pids)
    server.kill()
    start_s = server.time_to_first_ack()
    time.sleep(SETTLE_S)
    return {"rss": (filled - plain) / 1e6, "again": resident_bytes(server.pids) / 1e6, "start": start_s}
