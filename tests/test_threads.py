"""Every thread of the engine has a row in ARCHITECTURE.md, and no row is of a thread that is gone."""

import re
import threading
from pathlib import Path

from tests.support.engine import start_engine

TABLE = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text().split("## Threads\n")[1].split("\n\n")[0]
#: Thread names; `<...>` stands for a varying part.
ROWS = {name for row in TABLE.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def row_of(thread: str) -> str:
    return next((row for row in ROWS if re.fullmatch(re.sub("<.*>", ".+", row), thread)), f"no row for {thread}")


def test_the_table_of_threads_has_every_thread_and_no_other(tmp_path):
    before = set(threading.enumerate())
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"})
    try:
        _ = engine.broker.replays  # made when there are jobs, or on first use
        running = {thread.name for thread in threading.enumerate() if thread not in before}
    finally:
        engine.stop()
    assert {row_of(name) for name in running} == ROWS
