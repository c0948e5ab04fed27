"""`rocketbox restore`: makes a data directory from a backup."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..engine.backup import restore_backup
from .backup import Told, _nothing, say

USAGE = """\
usage: rocketbox restore BACKUP --into DIR [--json] [--quiet]

DIR must be empty or not exist. Every file is compared with the manifest while it is written; a damaged backup is
refused, and nothing is left of it. Queues and the key index are made from the log when `rocketbox serve --data-dir DIR`
is first started. Exit status: 0 restored, 2 it was not."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises BackupError if it cannot be done."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    flags = {one for one in arguments if one in ("--json", "--quiet")}
    words = [one for one in arguments if one not in flags]
    places: list[str] = []
    into = ""
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "--into":
            into = value if equals else (words.pop(0) if words else "")
        else:
            places.append(word)
    if len(places) != 1 or not into or places[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    step = _nothing if flags else Told(sys.stderr.isatty())
    target = Path(os.path.abspath(into))
    manifest = restore_backup(Path(os.path.abspath(places[0])), target, step)
    say(manifest, target, "--json" in flags)
    return 0
