"""`rocketbox backup`: a copy of a whole data directory; a broker may be running in it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import __version__
from ..engine.backup import LogEnd, Spared, check_backup, make_backup
from ..engine.backup.manifest import SECRETS, Manifest
from ..engine.plain_text import plain
from ..engine.store_tools.offline_store import find_store
from ..engine.store_tools.small_files_check import recovery_position

USAGE = """\
usage: rocketbox backup TARGET [--json] [--quiet] [options of serve, as --data-dir DIR]
       rocketbox backup --check TARGET [--json] [--quiet]

Copies the data directory: the log up to one offset, topics, groups, offsets, what waits, the console's database. The
broker may be running. TARGET is a file NAME.tar, or a directory that does not exist yet. --check compares a backup with
its manifest. A backup holds message bodies, password hashes, secrets and keys: only its owner may read it; keep it so.
Exit status: 0 made and whole, 1 it is damaged, 2 it was not made."""

_TELL_S = 1.0
#: Share of the time that the copy works while a broker runs.
_DUTY = 0.5


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError and BackupError if it cannot be done."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    flags = {one for one in arguments if one in ("--json", "--quiet", "--check")}
    rest = [one for one in arguments if one not in flags]
    if not rest or rest[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    target, options = Path(os.path.abspath(rest[0])), rest[1:]
    step = _nothing if "--quiet" in flags or "--json" in flags else Told(sys.stderr.isatty())
    if "--check" in flags:
        return checked(target, step, "--json" in flags)
    from ..command_line import load

    config, _ = load(options, os.environ)
    store_dir = config.store_dir or config.data_dir / "store"
    own_dir = config.data_dir / "rocketbox"
    store = find_store(store_dir, own_dir)
    try:
        in_use = store.lock_holder() is not None
    finally:
        store.close()
    made = make_backup(
        target,
        store_dir,
        own_dir,
        version=__version__,
        log_end=LogEnd(
            lambda: end_of_log(store_dir, own_dir),
            spared=Spared.by(config.store, 2 * config.store.mapped_file_size_commit_log) if in_use else None,
        ),
        step=Gently(step) if in_use else step,
    )
    say(made.manifest, target, "--json" in flags)
    return 0


def checked(target: Path, step: Callable[[int, int], None], as_json: bool) -> int:
    """Compare a backup with its manifest; return the exit status."""
    from ..engine.backup import Damaged

    try:
        manifest = check_backup(target, step)
    except Damaged as error:
        print(json.dumps({"whole": False, "why": str(error)}) if as_json else plain(str(error)))
        return 1
    say(manifest, target, as_json)
    return 0


def say(manifest: Manifest, target: Path, as_json: bool) -> None:
    facts = {
        "path": str(target),
        "made_at_ms": manifest.made_at_ms,
        "version": manifest.version,
        "begin_offset": manifest.begin_offset,
        "end_offset": manifest.end_offset,
        "files": len(manifest.files),
        "bytes": manifest.total_bytes,
        "secrets": manifest.secrets,
    }
    if as_json:
        print(json.dumps(facts))
        return
    print(f"{target}: {len(manifest.files)} files, {manifest.total_bytes} bytes, the log up to {manifest.end_offset}.")
    print(f"In it are {', '.join(SECRETS)}: keep it as private as the data directory.")


def end_of_log(store_dir: Path, own_dir: Path) -> int:
    """Return the physical offset behind the last whole record, where a start after a crash would end the log."""
    from ..engine.store.log.log_scan import LogScan

    store = find_store(store_dir, own_dir)
    try:
        position, durable = recovery_position(store)
        begin = store.log.min_offset if position is None else max(position.offset, store.log.min_offset)
        end = begin
        for behind, _ in LogScan(store.raw, _Reporter(), durable if durable >= 0 else None).records(begin):
            end = behind
        return end
    finally:
        store.close()


class _Reporter:
    """Ignores damage, which is copied as it is: `rocketbox store verify` reports it."""

    def damage(self, begin: int, end: int, reason: str) -> None:
        pass


def _nothing(_done: int, _total: int) -> None:
    pass


class Gently:
    """Pauses between the steps, for the broker that uses the disk."""

    def __init__(self, step: Callable[[int, int], None]) -> None:
        self._step = step
        self._begun = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        self._step(done, total)
        time.sleep(min(0.5, (time.monotonic() - self._begun) * (1 / _DUTY - 1)))
        self._begun = time.monotonic()


class Told:
    """Prints the progress on stderr, once a second."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._at = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._live and (now - self._at >= _TELL_S or done == total):
            self._at = now
            end = "\n" if done == total else ""
            print(f"\r{done >> 20} of {total >> 20} MiB", end=end, file=sys.stderr, flush=True)
