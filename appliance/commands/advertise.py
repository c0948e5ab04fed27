"""`rocketbox advertise`: have a server of `rocketbox serve --test` tell clients another address of its broker.

A container's port is mapped when it runs. The program that started it gets the port from Docker, and runs this inside.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engine import file_sync
from ..engine.disk import holder_of
from ..engine.errors import StartError
from ..serve_for_tests import READDRESS_LIMIT_S, parse_told_address, server_file, wish_file

USAGE = "usage: rocketbox advertise HOST:PORT [--data-dir DIR]"
_LOOK_S = 0.02


def run(arguments: Sequence[str]) -> int:
    """Return when clients get the address. Raises StartError."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    address, directory = _read(list(arguments))
    directory = directory or _usual_directory()
    server = _server(directory)
    if server is None:
        raise StartError(
            f"No server of `rocketbox serve --test` runs with the directory {directory}; others get the address for "
            "clients at their start, by --advertise."
        )
    number = time.time_ns()
    try:
        wish = {"address": address, "number": number, "life": server.get("life")}
        file_sync.publish(wish_file(directory), wish)
        os.kill(server["pid"], signal.SIGHUP)
    except OSError as error:
        raise StartError(f"The server cannot be told: {error.strerror}.") from None
    until = time.monotonic() + 2 * READDRESS_LIMIT_S
    while (server := _server(directory)) is not None and time.monotonic() < until:
        if server.get("wish") == number:
            if server["refused"]:
                raise StartError(f"Clients get {address}, but {server['refused']}.")
            sys.stdout.write(f"clients get {server['broker']}\n")
            return 0
        time.sleep(_LOOK_S)
    raise StartError(f"The server of {directory} {'has ended' if server is None else 'does not answer'}.")


def _read(arguments: list[str]) -> tuple[str, Path | None]:
    """Return (the address, the directory if it is said)."""
    directory = None
    if "--data-dir" in arguments[:-1]:
        at = arguments.index("--data-dir")
        directory = Path(os.path.abspath(arguments[at + 1]))
        del arguments[at : at + 2]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise StartError(USAGE)
    try:
        return parse_told_address(arguments[0]), directory
    except ValueError as error:
        raise StartError(f"HOST:PORT {error}.") from None


def _usual_directory() -> Path:
    """Return the directory of the image's variable, or of the only server for tests here that has a temporary one."""
    if os.environ.get("ROCKETBOX_DATA_DIR"):
        return Path(os.path.abspath(os.environ["ROCKETBOX_DATA_DIR"]))
    files = server_file(Path(tempfile.gettempdir(), "rocketbox-test-*"))
    found = [path.parent for path in files.parent.parent.glob(f"{files.parent.name}/{files.name}")]
    running = [directory for directory in found if _server(directory) is not None]
    if len(running) != 1:
        raise StartError(
            f"{len(running) or 'No'} servers of `rocketbox serve --test` run here with a temporary directory: say "
            "which by --data-dir. Other servers get the address for clients at their start, by --advertise."
        )
    return running[0]


def _server(directory: Path) -> dict[str, Any] | None:
    """Return what a server of this user's says of itself, None if none runs."""
    file = server_file(directory)
    try:
        if file.stat().st_uid != os.geteuid():
            return None
        said = json.loads(file.read_text(encoding="utf-8"))
        return said if holder_of(Path(said["lock"])) == said["pid"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
