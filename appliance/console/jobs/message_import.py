"""Jobs that send the messages of an NDJSON file to a topic, or only check them, line by line.

If RocketBox is killed in between, no message is sent twice and none is left out. Before it sends a batch, the job
stores durably how far it has come and where the log ended then (`mark`). Each copy has a unique id made of the job, its
line number and a keyed digest of that number. So after a restart the job reads the topic from the mark on and counts
the lines whose copies it finds as sent. Only the job has the key, so a reader of one copy cannot make the id of another
line. If that part of the log has expired, the copies cannot be found: the job fails and names the lines in doubt.
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
from ..users.roles import OPERATOR
from .message_lines import BadLine, item_of
from .registry import kind
from .work import JobFailed, Work

NAME, CHECK = "message-import", "message-import-check"
#: Messages a second.
MAX_RATE, DEFAULT_RATE = 10_000, 500
#: Most lines and bytes of a batch; some ten batches are sent a second.
BATCH_LINES, BATCH_BYTES = 200, 512 << 10
#: Longer lines hold no message that the broker accepts: maxMessageSize is 4 MiB unless an operator raised it.
LINE_BYTES = 32 << 20
#: Most problems in the job's file, and in its summary.
_PROBLEMS, _SHOWN = 10_000, 10
_TRIES, _TRY_S = 30, 1.0
#: Hex digits of a unique id that identify the job, that give the line's number, and that are the digest's.
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
        #: "" in a job that an older version began: its ids consist of the job's digits and the line's number only.
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
        # Until the job has passed the lines found after a restart, the mark stays before their copies: RocketBox may
        # restart again.
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
        """Read the lines of the next batch; return them with their numbers, and the position of the next line."""
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
            if number == 1:  # some editors begin a file with a byte order mark
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
        """Send a batch; return the outcome of each item. Tries again when the broker is unavailable, unless part of the
        batch was or may have been stored. Raises JobFailed."""
        for _number in range(_TRIES):
            mark = self._work.window.messages.log_span()[1]
            try:
                return self._work.window.imports.send(self._topic, items, dry_run=self._dry_run, by=self._by)
            except Unavailable as error:
                # When RocketBox stops, the job ends here; later it goes on from what it kept.
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
        """Return the line whose copy has this unique id; None for an id that this job did not make."""
        if not _HEX.match(unique_id):
            return None
        text = unique_id[len(self._unique) :]
        number = int(text[:_OF_LINE] if self._secret else text, 16)
        return number if hmac.compare_digest(self._unique_id(number), unique_id) else None

    def _keep(self) -> None:
        """Store the job's progress before it sends a batch, with the physical offset behind which the copies will
        be."""
        mark = self._found_behind if self._line < self._found_up_to else self._work.window.messages.log_span()[1]
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
        """Return the lines after the kept one whose copies are in the topic. Raises JobFailed if the log right behind
        the mark has expired."""
        mark = self._work.kept.get("mark")
        if mark is None:
            return set()
        if self._work.window.messages.log_span()[0] > mark:
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
            page = self._work.window.messages.page(
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
        """Sleep until the rate allows `count` more messages."""
        due = self._began + self._sent_since / self._rate
        while (left := due - time.monotonic()) > 0:
            self._work.check()
            time.sleep(min(left, 0.1))
        if left < -1:  # more than a second late: begin anew instead of catching up
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
    """Return the number of lines in a file."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while piece := file.read(1 << 18):
            count += piece.count(b"\n")
            last = piece[-1:]
            work.check()
    return count + (last != b"\n")
