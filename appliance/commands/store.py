"""`rocketbox store inspect|verify|export DIR`: reads a store without a broker; nothing is written into it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from ..engine.errors import StartError
from ..engine.plain_text import plain, plain_json
from ..engine.store_tools.export import Wanted, json_line, raw_record, records
from ..engine.store_tools.inspection import damage_of, inspect, text_of
from ..engine.store_tools.offline_store import OfflineStore, find_store
from ..engine.store_tools.problems import Problem, Problems
from ..engine.store_tools.small_files_check import recovery_position
from ..engine.store_tools.verification import Progress, verify
from .moment import moment

USAGE = """\
usage: rocketbox store inspect DIR [--json]
       rocketbox store verify DIR [--json] [--quiet]
       rocketbox store export DIR [--topic T]... [--queue N] [--from TIME] [--to TIME]
                              [--body auto|text|base64] [--decompress] [--raw] [--output FILE]

DIR is a data directory or Apache's storePathRootDir; --own-dir names the directory rocketbox if it is not beside the
store. TIME is in ms since 1970, or like 2026-01-31T12:00:00Z, "2026-01-31 12:00", 10:00,
"yesterday 18:00" or "2 h ago" in this machine's zone. Nothing in DIR is changed.
Exit status: 0 no damage, 1 something is damaged, 2 there is no store or the command is wrong."""

_FLAGS = {"inspect": {"--json"}, "verify": {"--json", "--quiet"}, "export": {"--decompress", "--raw", "--quiet"}}
_VALUES = {
    "inspect": {"--own-dir"},
    "verify": {"--own-dir"},
    "export": {"--own-dir", "--topic", "--queue", "--from", "--to", "--body", "--output"},
}
_PROGRESS_S = 1.0


class Arguments:
    """The arguments of one command. Raises StartError for unknown ones."""

    def __init__(self, command: str, words: Sequence[str]) -> None:
        self.flags: set[str] = set()
        self.values: dict[str, list[str]] = {}
        places = []
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if name in _FLAGS[command] and not equals:
                self.flags.add(name)
            elif name in _VALUES[command]:
                if not equals and (value := next(rest, "")) == "":
                    raise StartError(f"{name} needs a value.")
                self.values.setdefault(name, []).append(value)
            elif word.startswith("-"):
                raise StartError(f"There is no option {name} of rocketbox store {command}.")
            else:
                places.append(word)
        if len(places) != 1:
            raise StartError(f"rocketbox store {command} needs one directory.")
        self.directory = Path(places[0])

    def one(self, name: str) -> str | None:
        return self.values.get(name, [None])[-1]

    def open(self) -> OfflineStore:
        own = self.one("--own-dir")
        return find_store(self.directory, None if own is None else Path(os.path.abspath(own)))


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError if it cannot be done."""
    command = arguments[0] if arguments else ""
    if command not in _COMMANDS or {"--help", "-h"} & set(arguments):
        print(USAGE, file=sys.stdout if {"--help", "-h"} & set(arguments) else sys.stderr)
        return 0 if {"--help", "-h"} & set(arguments) else 2
    wanted = Arguments(command, arguments[1:])
    store = wanted.open()
    try:
        holder = store.lock_holder()
        if holder is not None:
            _say(f"process {holder} has this store open: what it is writing may look unfinished")
        return _COMMANDS[command](store, wanted)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of the output has ended
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        store.close()


def _say(text: str) -> None:
    print(f"rocketbox: {plain(text)}", file=sys.stderr, flush=True)


def _inspect(store: OfflineStore, wanted: Arguments) -> int:
    found = inspect(store)
    print(json.dumps(found, indent=1) if "--json" in wanted.flags else text_of(found))
    return 1 if damage_of(found) else 0


def _verify(store: OfflineStore, wanted: Arguments) -> int:
    as_json = "--json" in wanted.flags

    def tell(problem: Problem) -> None:
        if not as_json:
            print(problem, flush=True)

    problems = Problems(tell)
    result = verify(store, problems, _progress("--quiet" in wanted.flags))
    if as_json:
        counts = [{"level": level, "kind": kind, "count": count} for (level, kind), count in problems.counts.items()]
        told = [problem._asdict() for problem in problems.kept]
        print(
            json.dumps({**result._asdict(), "damaged": problems.damaged, "counts": counts, "problems": told}, indent=1)
        )
    else:
        if problems.untold:
            print(f"... and {problems.untold} more of the same kinds")
        print(
            f"{result.records} records in [{result.log_begin}, {result.log_end}), {result.queues} queues, "
            f"{result.index_entries} index entries, {result.sealed_files} log files with block checksums: "
            f"{f'{problems.damaged} are damaged' if problems.damaged else 'no damage'} ({result.seconds:.1f} s)"
        )
    return 1 if problems.damaged else 0


def _export(store: OfflineStore, wanted: Arguments) -> int:
    encoding = wanted.one("--body") or "auto"
    if encoding not in ("auto", "text", "base64"):
        raise StartError(f"--body must be auto, text or base64, not {encoding!r}.")
    chosen = Wanted(
        frozenset(wanted.values.get("--topic", ())),
        _number("--queue", wanted.one("--queue")),
        _moment("--from", wanted.one("--from")),
        _moment("--to", wanted.one("--to")),
    )
    output = wanted.one("--output")
    if output is None:
        return _write(store, wanted, chosen, encoding, sys.stdout.buffer)
    path = Path(os.path.abspath(output))
    if path.is_relative_to(store.paths.root):
        raise StartError(f"{path} is in the store, which is only read.")
    try:
        with open(path, "wb") as file:
            return _write(store, wanted, chosen, encoding, file)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}.") from None


def _write(store: OfflineStore, wanted: Arguments, chosen: Wanted, encoding: str, file: BinaryIO) -> int:
    problems = Problems(lambda problem: print(problem, file=sys.stderr, flush=True))
    to_terminal = file.isatty()
    if to_terminal and "--raw" in wanted.flags:
        raise StartError("--raw writes binary data, which can upset a terminal: use --output FILE, or redirect it.")
    count = 0
    _, durable = recovery_position(store)
    for record in records(store, chosen, problems, durable, _progress("--quiet" in wanted.flags)):
        if "--raw" in wanted.flags:
            file.write(raw_record(store, record))
        else:
            line = json_line(record, encoding, "--decompress" in wanted.flags)
            file.write(plain_json(line) if to_terminal else line)
        count += 1
    file.flush()
    _say(f"{count} messages exported")
    return 1 if problems.damaged else 0


def _number(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise StartError(f"{name} must be a number, not {value!r}.")
    return int(value)


def _moment(name: str, value: str | None) -> int | None:
    return None if value is None else moment(name, value)


def _progress(quiet: bool) -> Progress:
    """Return a function that prints the progress on stderr now and then, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        return lambda what, done, total: None
    last = [time.monotonic()]

    def told(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last[0] >= _PROGRESS_S:
            last[0] = now
            print(
                f"\r{what} {done * 100 // max(total, 1)} % of {total >> 20} MiB ", end="", file=sys.stderr, flush=True
            )

    return told


_COMMANDS: dict[str, Callable[[OfflineStore, Arguments], int]] = {
    "inspect": _inspect,
    "verify": _verify,
    "export": _export,
}
