"""A process that has imported what pytest needs, and nothing of this project; each run of tests is a fork of it.

So a run begins in a fraction of the time, and imports the project as its files are by then. On stdin each line is a
run, as JSON: its arguments, variables and the file for what it writes. For each come two lines on stdout: its process
id at once, and how it ended, negative for a signal.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest


def main() -> None:
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(asked: dict[str, Any]) -> None:
    os.setsid()
    os.environ.update(asked["variables"])
    output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.exit(pytest.main(asked["arguments"]))


if __name__ == "__main__":
    main()
