"""What noting deliveries costs a pull: CPU of the I/O thread for one answer, recording on and off in turns.

    .venv/bin/python bench/delivery_events.py [--rounds 8] [--pulls 2000]

Each round starts a broker a twin and setting, in a process of its own, and takes the least time of one pull that finds
messages; printed is the least of all rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Messages a pull brings.
SIZES = (1, 32)


def measure(pulls: int, budget_bytes: int) -> dict[int, float]:
    """Messages a pull brings -> microseconds of CPU for its answer, the least of all."""
    sys.path.insert(0, str(ROOT))
    from appliance.engine.protocol.command import RemotingCommand, encode_command
    from appliance.engine.remoting.connection import Connection
    from tests.support.engine import Peer, pull_fields, send_fields, start_engine

    directory = tempfile.mkdtemp(prefix="deliveries", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    engine = start_engine(Path(directory), store={"max_delivery_event_bytes": budget_bytes})
    try:
        assert engine.broker_address is not None
        assert engine.broker is not None
        peer = Peer(engine.broker_address)
        for _ in range(64):
            peer.ask(310, send_fields("Bench"), b"x" * 1024)
        peer.close()
        engine.loop.stop()
        engine.loop._ident = threading.get_ident()  # this thread is the loop's from here on
        near, far = socket.socketpair()
        for one in (near, far):
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        conn = Connection(engine.server, near, engine.server._listeners[0].dispatcher, bytes(8))
        return {size: _least(engine, conn, far, size, pulls, RemotingCommand, encode_command, pull_fields)
                for size in SIZES}  # fmt: skip
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _least(engine, conn, far, size, pulls, command, encode, pull_fields) -> float:  # type: ignore[no-untyped-def]
    fields = {name: str(value) for name, value in pull_fields("Bench", 0, 0, maxMsgNums=size).items()}
    frame = memoryview(bytearray(encode(command(11, opaque=7, ext_fields=fields)) * 16))
    best = 1e9
    for _ in range(pulls // 16):
        begin = time.thread_time()
        conn._consume(frame, len(frame))
        best = min(best, time.thread_time() - begin)
        engine.server.flush_dirty()
        try:
            while far.recv(1 << 20):
                pass
        except BlockingIOError:
            pass
    return best / 16 * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--pulls", type=int, default=2000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.pulls, options.one)), flush=True)
        os._exit(0)  # the loop has ended in the middle of things
    best: dict[tuple[str, str, str], float] = {}
    for _ in range(options.rounds):
        for twin, pure in (("compiled", "0"), ("pure", "1")):
            for name, budget in (("off", 0), ("on", 64 << 20)):
                command = [sys.executable, __file__, "--pulls", str(options.pulls), "--one", str(budget)]
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=os.environ | {"ROCKETBOX_PURE": pure}
                )
                for size, found in json.loads(done.stdout.splitlines()[-1]).items():
                    key = (twin, size, name)
                    best[key] = min(best.get(key, 1e9), found)
    print("twin      messages   off us    on us")
    for twin in ("compiled", "pure"):
        for size in map(str, SIZES):
            print(f"{twin:10}{size:>8}{best[twin, size, 'off']:>9.2f}{best[twin, size, 'on']:>9.2f}")


if __name__ == "__main__":
    main()
