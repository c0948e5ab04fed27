"""Runs the fixed conversations in this process and writes a digest of each outcome: `run_corpus.py FILE`."""

from __future__ import annotations

import hashlib
import sys

from appliance.engine.hotpath import COMPILED
from tests.hotpath.test_twins import corpus
from tests.support.twins import outcome


def main(path: str) -> None:
    lines = ["compiled" if COMPILED else "pure"]
    for steps, setting in corpus():
        found = outcome(steps, setting, COMPILED)
        found.taken = found.pulled = 0
        lines.append(hashlib.sha256(repr(found).encode()).hexdigest())
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
