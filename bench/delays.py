#!/usr/bin/env python3
"""What a backlog of delayed messages costs. How exactly they come is a row of run.py.

    bench/delays.py                                a million messages that wait two hours, RocketBox and Apache 5.3.3
    bench/delays.py --messages 20000 --servers rocketbox

Printed for each server: the resident memory of all its processes with an empty store, after the messages were sent, and
after a restart with them, each 5 s after the start, and the time from that start to the first acknowledged send. Beside
it the same for as many messages that do not wait: what they cost is the store's, not the delay's. See bench/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.delayed_load import Wait, fill
from bench.rounds import note
from bench.servers import APACHES, LABELS, ROCKETBOX, TITLES, Server, make_server, resident_bytes

#: Two hours: nothing of it comes due while anybody measures.
LAST_LEVEL = 18
_SETTLE_S = 5.0


def measure_backlog(server: Server, level: int, messages: int) -> dict[str, float]:
    """Resident MB empty, filled and started again, and that start's seconds to the first acknowledgement."""
    server.start()
    try:
        server.create_topic("Backlog", 1)
        time.sleep(_SETTLE_S)
        empty = resident_bytes(server.pids)
        took = fill(server, "Backlog", Wait(level), messages)
        time.sleep(_SETTLE_S)
        filled = resident_bytes(server.pids)
        server._end()
        start_s = server.time_to_first_ack()
        time.sleep(_SETTLE_S)
        again = resident_bytes(server.pids)
    finally:
        server.stop()
    return {"fill": took, "empty": empty / 1e6, "filled": filled / 1e6, "again": again / 1e6, "start": start_s}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--servers", default=f"{ROCKETBOX},{APACHES[-1]}", help=f"some of {','.join(LABELS)}")
    parser.add_argument("--scratch", type=Path, default=None, help="where the stores go: a gigabyte for a million")
    options = parser.parse_args(arguments)
    print(f"{time.strftime('%Y-%m-%d')}; async flush, {options.messages:,} messages of 256 bytes.\n")
    print("| | messages | sent in | RSS empty | RSS filled | RSS after a restart | start to first ack |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        for label in options.servers.split(","):
            for level, title in ((LAST_LEVEL, "waiting"), (0, "not delayed")):
                note(f"{TITLES[label]}: {title}")
                server = make_server(label, "async", None, Path(scratch))
                found = measure_backlog(server, level, options.messages)
                print(
                    f"| {TITLES[label]} | {title} | {found['fill']:.0f} s | {found['empty']:.1f} MB | "
                    f"{found['filled']:.1f} MB | {found['again']:.1f} MB | {found['start']:.2f} s |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
