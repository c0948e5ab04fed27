"""`rocketbox bundle`: a support bundle of an installation, running or not. Reads only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..doctor.bundle import LEFT_OUT, Bundle, about, files_of
from ..doctor.reports import reports_machine
from ..doctor.scrubbing import Scrubber, secrets_of
from ..engine.config import Secret
from ..engine.errors import StartError
from ..engine.plain_text import plain

USAGE = """\
usage: rocketbox bundle FILE.zip [--manifest] [--json] [options of serve, as --data-dir DIR]

Writes diagnostics for support: the checks of doctor, options, names and sizes of files. --manifest
only says what would be in it. No messages, passwords, tokens or keys are in it; the page System / Support bundle of a
running console adds its figures and its log. Exit status: 0 written, 2 it was not."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError if it cannot be done."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    flags = {one for one in arguments if one in ("--manifest", "--json")}
    rest = [one for one in arguments if one not in flags]
    target = ""
    if rest and not rest[0].startswith("-"):
        target, rest = rest[0], rest[1:]
    if not target and "--manifest" not in flags:
        print(USAGE, file=sys.stderr)
        return 2
    bundle = gather(rest)
    if "--manifest" not in flags:
        _write(Path(target), bundle.zipped())
    if "--json" in flags:
        print(json.dumps(bundle.manifest()))
        return 0
    for part in bundle.parts:
        print(f"{part.bytes:>10}  {part.name:<14} {plain(part.what)}")
    print(f"Not in it: {'; '.join(LEFT_OUT)}.")
    return 0


def gather(options: Sequence[str]) -> Bundle:
    """Gather all parts of the bundle. Raises StartError for wrong options."""
    from ..command_line import load
    from .doctor import examine

    config, serve = load(options, os.environ)
    own = config.data_dir / "rocketbox"
    secrets = secrets_of(os.environ)
    for name in ("secret-key", "audit-key"):
        try:
            secrets.append((own / name).read_bytes().hex())
            secrets.append((own / name).read_text().strip())
        except (OSError, UnicodeDecodeError):
            continue
    bundle = Bundle(Scrubber(secrets))
    bundle.add_json("about.json", "the program and the machine", about(os.environ))
    bundle.add_json("doctor.json", "the checks of rocketbox doctor", [one._asdict() for one in examine(options).lines])
    bundle.add_json("reports.json", "Spark, Java and memory for reports", reports_machine())
    settings: dict[str, object] = {
        name: str(getattr(config, name))
        for name in ("data_dir", "store_dir", "bind", "broker_port", "namesrv_port", "roles", "advertise")
    }
    settings |= {"broker": _fields(config.broker), "store": _fields(config.store)}
    settings |= {"console": serve.console, "http_port": serve.http_port, "public_url": serve.public_url}
    bundle.add_json("options.json", "the options in force", settings)
    files = files_of({"store": config.store_dir, "rocketbox": own})
    bundle.add_json("files.json", "names, lengths and times of files, no contents", files)
    return bundle


def _fields(options: object) -> dict[str, object]:
    names: Any = getattr(options, "__dataclass_fields__", ()) or getattr(options, "__struct_fields__", ())
    found = {name: getattr(options, name) for name in names}
    return {name: str(value) if isinstance(value, Secret) else value for name, value in found.items()}


def _write(target: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(target, flags, 0o600), "wb") as out:
            out.write(data)
    except OSError as error:
        raise StartError(f"{target} cannot be written: {error.strerror}.") from None
