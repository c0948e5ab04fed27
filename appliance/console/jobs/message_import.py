"""Messages of an NDJSON file, sent to a topic; or only looked at, line by line.

Nothing is sent twice, and nothing is left out, when RocketBox is killed in between. Before a batch is sent the job
keeps, durably, how far it came and where the log ended then (`mark`). Each copy has a unique id made of the job, the
number of its line and a keyed digest of that, so after a restart the topic is read from the mark on, and lines whose
copy is there count as sent. Only the job has the key: who has read a line's id has read its copy, and makes no other.
When that part of the log has expired nobody can tell any more: then the job fails and says which lines are in doubt.
"""

from __future__ import annotations

import codecs
import hashlib
import hmac
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from ...engine.errors import AdminError, Unavailable
from ..access import OPERATOR
from .message_lines import BadLine, item_of
from .registry import kind
from .work import JobFailed, Work

NAME, CHECK = "message-import", "message-import-check"
#: Messages a second.
MAX_RATE, DEFAULT_RATE = 10_000, 500
#: Lines and bytes of a batch; a second has some ten of them.
BATCH_LINES, BATCH_BYTES = 200, 512 << 10
#: Longer lines hold no message that the broker takes: maxMessageSize is 4 MiB unless somebody raised it.
LINE_BYTES = 32 << 20
#: Problems that are written down, and how many of them the summary names.
_PROBLEMS, _SHOWN = 10_000, 10
_TRIES, _TRY_S = 30, 1.0
#: Hex digits of a unique id that are the job's, those of the line's number, and those of the digest.
_OF_JOB, _OF_LINE, _OF_DIGEST = 8, 8, 16
_HEX = re.compile(r"[0-9A-F]{32}\Z")

_WORDS = {
    "lines": _("lines"), "sent": _("sent"), "valid": _("valid"), "failed": _("failed"), "skipped": _("skipped (empty)"),
}  # fmt: skip


@kind(CHECK, title=_("Check messages for import"), start=OPERATOR, words=_WORDS, bad=("failed",), about="topic")
def check(work: Work) -> None:
    _Import(work, True).run()


@kind(NAME, title=_("Import messages"), start=OPERATOR, words=_WORDS, bad=("failed",), goes_on=True, about="topic")
def send(work: Work) -> None:
    _Import(work, False).run()


class _Import:
    def __init__(self, work: Work, dry_run: bool) -> None:
        self._work = work
        self._dry_run = dry_run
        self._good = "valid" if dry_run else "sent"
        self._topic: str = work.parameters["topic"]
        self._rate: int = work.parameters.get("rate", DEFAULT_RATE)
        self._by = f"{work.job.who} (job {work.job.id})"
        kept = work.kept
        #: "" in a job that an older version began: its ids are the job's digits and the number.
        self._secret: str = kept.get("secret", "") if kept else secrets.token_hex(16)
        of_job = _OF_JOB if self._secret else 20
        self._unique = hashlib.sha256(work.job.id.encode()).hexdigest()[:of_job].upper()
        self._at: int = kept.get("at", 0)
        self._line: int = kept.get("line", 0)
        self._counts: dict[str, int] = kept.get("counts") or dict.fromkeys((self._good, "failed", "skipped"), 0)
        self._problems_end: int = kept.get("problems_end", 0)
        self._left_out: set[str] = set(kept.get("left_out", ()))
        self._shown: list[str] = kept.get("shown", [])
        self._written = self._counts["failed"]
        self._problems: BinaryIO | None = None
        # While lines found after a restart lie ahead, the mark stays before their copies: there may be another restart.
        self._found_up_to, self._found_behind = 0, -1
        self._began, self._sent_since = time.monotonic(), 0

    def run(self) -> None:
        work = self._work
        try:
            source = work.input.open("rb")
        except FileNotFoundError:
            raise JobFailed(gettext_noop("The file that was to be imported is not there any more.")) from None
        with source:
            size = os.fstat(source.fileno()).st_size
            total = _lines_of(work.input, work)
            source.seek(self._at)
            known = self._sent_before_the_restart()
            while True:
                batch, at = self._read(source)
                if not batch:
                    break
                self._handle(batch, at, known)
                work.progress(self._line, max(total, self._line), "lines", **self._counts)
        if self._problems is not None:
            self._problems.close()
        work.result(
            {"read": self._line, **self._counts, "topic": self._topic, "bytes": size}
            | ({"properties_left_out": " ".join(sorted(self._left_out))} if self._left_out else {})
            | ({"first_problems": "; ".join(self._shown)} if self._shown else {})
        )

    def _read(self, source: BinaryIO) -> tuple[list[tuple[int, bytes]], int]:
        """Some lines with their numbers, and where the next ones begin."""
        found: list[tuple[int, bytes]] = []
        most, size = max(1, min(BATCH_LINES, self._rate // 10)), 0
        while len(found) < most and size < BATCH_BYTES:
            line = source.readline(LINE_BYTES)
            if not line:
                break
            if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                while (rest := source.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                line = b"too long"
            number = self._line + len(found) + 1
            if number == 1:  # what some editors put before a text
                line = line.removeprefix(codecs.BOM_UTF8)
            found.append((number, line))
            size += len(line)
        return found, source.tell()

    def _handle(self, batch: list[tuple[int, bytes]], at: int, known: set[int]) -> None:
        items: list[dict[str, Any]] = []
        numbers: list[int] = []
        counts = dict(self._counts)
        problems: list[tuple[int, str]] = []
        for number, line in batch:
            if not line.strip():
                counts["skipped"] += 1
            elif number in known:
                counts["sent"] += 1
            else:
                try:
                    items.append(item_of(line) | {"unique_id": self._unique_id(number)})
                    numbers.append(number)
                except BadLine as error:
                    problems.append((number, str(error.told)))
        if items:
            if not self._dry_run:
                self._keep()
                self._hold_rate(len(items))
            for number, outcome in zip(numbers, self._send(items, numbers), strict=True):
                self._left_out.update(outcome.left_out)
                if outcome.status == "failed":
                    problems.append((number, str(outcome.reason)))
                else:
                    counts[self._good] += 1
        counts["failed"] += len(problems)
        for number, why in sorted(problems):
            self._write_problem(number, why)
        self._counts, self._line, self._at = counts, batch[-1][0], at

    def _send(self, items: list[dict[str, Any]], numbers: list[int]) -> Any:
        """What became of them. What is passing is tried again, while nothing of the batch was stored."""
        for _number in range(_TRIES):
            mark = self._work.window.log_span()[1]
            try:
                return self._work.window.import_messages(self._topic, items, dry_run=self._dry_run, by=self._by)
            except Unavailable as error:
                # Whoever stops RocketBox ends the job here; it goes on from what it kept.
                self._work.check()
                why = error
                silent = error.sentence is not None and error.sentence.code == "no_answer_in_time"  # type: ignore[attr-defined]
                if silent or self._lines_sent_since(mark):
                    break
                time.sleep(_TRY_S)
                self._work.check()
            except AdminError as error:
                raise JobFailed(
                    gettext_noop("It stopped before line %(line)d: %(why)s"), line=numbers[0], why=str(error)
                ) from None
        raise JobFailed(
            gettext_noop("It stopped: lines %(first)d to %(last)d may have been sent, those behind them not. %(why)s"),
            first=numbers[0], last=numbers[-1], why=str(why),
        )  # fmt: skip

    # --- nothing twice

    def _unique_id(self, number: int) -> str:
        if not self._secret:
            return f"{self._unique}{number:012X}"
        digest = hmac.digest(self._secret.encode(), b"%d" % number, "sha256").hex()[:_OF_DIGEST].upper()
        return f"{self._unique}{number:0{_OF_LINE}X}{digest}"

    def _line_of(self, unique_id: str) -> int | None:
        """The line whose copy has this unique id; None for an id that is not the job's own."""
        if not _HEX.match(unique_id):
            return None
        text = unique_id[len(self._unique) :]
        number = int(text[:_OF_LINE] if self._secret else text, 16)
        return number if hmac.compare_digest(self._unique_id(number), unique_id) else None

    def _keep(self) -> None:
        """Before a batch: how far the job came, and where its copies will lie behind."""
        mark = self._found_behind if self._line < self._found_up_to else self._work.window.log_span()[1]
        if self._problems is not None:
            self._problems.flush()
            self._problems_end = self._problems.tell()
        self._work.keep(
            {
                "at": self._at, "line": self._line, "counts": self._counts, "mark": mark,
                "problems_end": self._problems_end, "left_out": sorted(self._left_out), "shown": self._shown,
                "secret": self._secret,
            }
        )  # fmt: skip

    def _sent_before_the_restart(self) -> set[int]:
        """The lines behind the kept one whose copies are in the topic."""
        mark = self._work.kept.get("mark")
        if mark is None:
            return set()
        if self._work.window.log_span()[0] > mark:
            raise JobFailed(
                gettext_noop(
                    "RocketBox ended while it ran, and what was sent then has expired. Lines up to %(line)d are done; "
                    "whether those right behind it were sent cannot be told."
                ),
                line=self._line,
            )
        found = self._lines_sent_since(mark)
        self._found_up_to, self._found_behind = max(found, default=0), mark
        return found

    def _lines_sent_since(self, mark: int) -> set[int]:
        found: set[int] = set()
        cursor = None
        wanted = f"UNIQ_KEY STARTSWITH '{self._unique}'"
        while True:
            page = self._work.window.messages(
                self._topic, newest_first=False, cursor=cursor, limit=500, filter_text=wanted, budget_ms=8.0, since=mark
            )
            lines = (self._line_of(row.unique_id) for row in page.rows if row.unique_id)
            found.update(line for line in lines if line is not None)
            self._work.progress(self._line, self._work.job.total, "lines", **self._counts)
            cursor = page.next_cursor
            if cursor is None:
                return found

    # --- what else it minds

    def _hold_rate(self, count: int) -> None:
        """Sleep until so many more are due."""
        due = self._began + self._sent_since / self._rate
        while (left := due - time.monotonic()) > 0:
            self._work.check()
            time.sleep(min(left, 0.1))
        if left < -1:  # what was missed is not made up for
            self._began, self._sent_since = time.monotonic(), 0
        self._sent_since += count

    def _write_problem(self, number: int, why: str) -> None:
        self._written += 1
        if len(self._shown) < _SHOWN:
            self._shown.append(f"line {number}: {why}"[:300])
        if self._written > _PROBLEMS:
            return
        if self._problems is None:
            path: Path = self._work.file("problems.ndjson")
            self._problems = path.open("r+b")
            self._problems.truncate(self._problems_end)
            self._problems.seek(self._problems_end)
        self._problems.write(msgspec.json.encode({"line": number, "problem": why}) + b"\n")


def _lines_of(path: Path, work: Work) -> int:
    """How many lines a file has."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while piece := file.read(1 << 18):
            count += piece.count(b"\n")
            last = piece[-1:]
            work.check()
    return count + (last != b"\n")
