#!/usr/bin/env python3
"""How many of 200 sends each broker acknowledges in SYNC_FLUSH while the disk makes nothing durable.

    bench/false_acks.py                      RocketBox, Apache 4.9.7 and 5.3.3, one after the other: about a minute
    bench/false_acks.py --only rocketbox

Each broker runs under the same preloaded library (tests/crash/shim). After some good sends fsync, fdatasync and msync
of its commit log begin to fail with EIO; from then on an acknowledgement promises what is not on disk. Prints markdown;
exits 1 when RocketBox gave a false acknowledgement.
"""

from __future__ import annotations

import argparse
import errno
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.servers import LABELS, ROCKETBOX, TITLES
from tests.support.apache import ApacheRocketMQ, ask
from tests.support.faults import Faults
from tests.support.server import Server

SENDS = 200
GOOD_SENDS = 20
SEND_CODE = 310
TOPIC = "FalseAcks"
ANSWER_TIMEOUT_S = 15.0

#: Title of a case -> how often a sync fails: with once, the next ones say that all is well (ATC'20).
CASES = {"every sync fails with EIO": -1, "one sync fails with EIO": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma list of " + ", ".join(LABELS))
    options = parser.parse_args(arguments)
    labels = [label for label in LABELS if not options.only or label in options.only.split(",")]
    print(f"| of {SENDS} sends, SYNC_FLUSH: acknowledged | " + " | ".join(TITLES[label] for label in labels) + " |")
    print("|---|" + "---|" * len(labels))
    false_acks = 0
    for title, times in CASES.items():
        cells = []
        for label in labels:
            codes, failed = measure(label, times)
            cells.append(f"{codes[0]} ({said(codes)}; {failed} calls failed)")
            if label == ROCKETBOX:
                false_acks += codes[0]
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
    return 1 if false_acks else 0


def measure(label: str, times: int) -> tuple[Counter[object], int]:
    """(answers by code, calls of the disk that failed)."""
    scratch = Path(tempfile.mkdtemp(prefix="false-acks-"))
    try:
        faults = Faults(scratch)
        with started(label, scratch, faults) as broker:
            for number in range(GOOD_SENDS):
                code = send(broker, number)
                if code != 0:
                    raise SystemExit(f"{TITLES[label]} refused a send on a good disk: {code}")
            # Apache syncs through a mapping, we by descriptor. Memory has no path: all of a process counts.
            faults.arm("sync", error=errno.EIO, path="/commitlog/", times=times)
            faults.arm("msync", error=errno.EIO, times=times)
            codes = Counter(send(broker, number) for number in range(SENDS))
            failed = faults.hits("sync") + faults.hits("msync")
            faults.disarm()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not failed:
        raise SystemExit(f"no sync of {TITLES[label]} failed: the library was not there")
    return codes, failed


@contextmanager
def started(label: str, scratch: Path, faults: Faults) -> Iterator[str]:
    """The address of a running broker with synchronous flush."""
    if label == ROCKETBOX:
        with Server(scratch / "data", "--flush", "sync", environment=faults.environment) as server:
            yield server.broker
    else:
        version = label.removeprefix("apache-")
        (scratch / "apache").mkdir()
        with ApacheRocketMQ(
            version, flush="sync", scratch=scratch / "apache", environment=faults.environment
        ) as apache:
            yield apache.broker


def send(broker: str, number: int) -> object:
    """The answer's code, or what came instead of one."""
    fields = {
        "a": "FalseAcksGroup", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    try:
        answer, _ = ask(broker, SEND_CODE, fields, b"message %d" % number, ANSWER_TIMEOUT_S)
    except OSError as error:
        return type(error).__name__
    return answer["code"]


def said(codes: Counter[object]) -> str:
    return ", ".join(f"code {code}: {count}" for code, count in codes.most_common())


if __name__ == "__main__":
    sys.exit(main())
