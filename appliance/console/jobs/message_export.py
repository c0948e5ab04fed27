"""Jobs that write the messages an expression selects in a topic to a file: whole, or as a list without bodies."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec
from django.utils.translation import gettext_lazy as _

from ..pages.spreadsheet import cell
from ..users.roles import VIEWER
from .message_lines import line_of, summary_of
from .registry import kind
from .work import Work

#: Writes whole messages, bodies included.
EXPORT = "message-export"
#: Both write no bodies. BODY_SEARCH has an expression that looks into bodies: for users who may read them.
SEARCH, BODY_SEARCH = "message-search", "message-body-search"
FORMATS = ("ndjson", "csv")

#: Milliseconds of one read, its rests included; and the length of a rest, as a multiple of the work before it.
SLICE_MS, GENTLE = 40.0, 1.5
_SHOWN = 20
NO_NAME = re.compile(r"[^0-9A-Za-z._%@-]")

SELECTED_WORDS = {
    "messages": _("messages"), "found": _("found"), "other": _("not wanted"), "unreadable": _("unreadable or expired"),
    "undecided": _("not judged"),
}  # fmt: skip


@kind(EXPORT, title=_("Export messages"), start=VIEWER.with_grants("may_read_bodies", "may_export"),
      words=SELECTED_WORDS, bad=("unreadable", "undecided"), about="topic")  # fmt: skip
def export(work: Work) -> None:
    _write(work, True)


@kind(SEARCH, title=_("Search messages"), start=VIEWER, words=SELECTED_WORDS, bad=("unreadable", "undecided"),
      about="topic")  # fmt: skip
def search(work: Work) -> None:
    _write(work, False)


@kind(BODY_SEARCH, title=_("Search message bodies"), start=VIEWER.with_grants("may_read_bodies"), words=SELECTED_WORDS,
      bad=("unreadable", "undecided"), about="topic")  # fmt: skip
def search_bodies(work: Work) -> None:
    _write(work, False)


def _write(work: Work, whole: bool) -> None:
    asked = work.parameters
    topic, form = asked["topic"], asked["format"]
    ask: Any = work.window.messages.copies if whole else work.window.messages.page
    first: list[str] = []
    path = work.file(f"messages-{NO_NAME.sub('_', topic)[:80]}.{form}")
    make = _lines(work, topic) if whole else summary_of
    selected = Selected(work)
    with path.open("wb") as file:
        out = CsvFile(file, make) if form == "csv" else LinesFile(file, make)
        for page in selected.pages(ask):
            for number, row in enumerate(page.rows):
                out.write(row)
                if not whole and len(first) < _SHOWN:
                    first.append(f"{row.topic}/{row.queue_id}/{row.queue_offset}")
                if number % 16 == 15:
                    work.check()
                    work.rest()
    work.result(
        {"read": page.seen, **selected.counts, "bytes": page.seen_bytes} | ({"first": " ".join(first)} if first else {})
    )


def _lines(work: Work, topic: str) -> Callable[[Any], dict[str, Any]]:
    """Return what makes the values of a line: if the topic has a schema, with the body decoded by it, or null."""
    schema = work.window.schemas.reader(topic)
    if schema is None:
        return line_of

    def line(copy: Any) -> dict[str, Any]:
        found = None if copy.compression else schema.decoded(copy.body)
        return line_of(copy) | {"decoded": None if found is None else msgspec.Raw(found)}

    return line


class Selected:
    """The messages that a job's parameters select, oldest first. counts: of those read so far."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.counts = dict.fromkeys(("found", "other", "unreadable", "undecided"), 0)

    def pages(self, ask: Callable[..., Any]) -> Iterator[Any]:
        """Yield the pages, and report progress behind each. ask: `page` or `copies` of the window's messages."""
        asked, counts = self._work.parameters, self.counts
        cursor, passed = None, 0
        while True:
            page = ask(
                asked["topic"], queue_id=asked.get("queue_id"), from_ms=asked.get("from_ms"), to_ms=asked.get("to_ms"),
                newest_first=False, cursor=cursor, limit=500, filter_text=asked.get("filter"), budget_ms=SLICE_MS,
                gentle=GENTLE, patient=True,
            )  # fmt: skip
            yield page
            counts["found"] += len(page.rows)
            counts["unreadable"] += page.skipped
            counts["undecided"] += page.undecided
            passed += page.scanned
            cursor = page.next_cursor
            if cursor is None:  # retention deleted the rest meanwhile, so no page counted it
                counts["unreadable"] += max(0, page.total - passed)
            counts["other"] = max(0, page.seen - sum(counts[name] for name in ("found", "unreadable", "undecided")))
            self._work.progress(page.seen, page.total, "messages", **counts)
            if cursor is None:
                return


class LinesFile:
    """Writes messages as NDJSON."""

    def __init__(self, file: BinaryIO, make_line: Callable[[Any], dict[str, Any]]) -> None:
        self._file = file
        self._line = make_line

    def write(self, row: Any) -> None:
        self._file.write(msgspec.json.encode(self._line(row)) + b"\n")


class CsvFile:
    """Writes messages as CSV. A spreadsheet runs a text that begins like a formula; such a cell gets a quote before."""

    def __init__(self, file: BinaryIO, make_line: Callable[[Any], dict[str, Any]]) -> None:
        self._file = file
        self._text = io.StringIO(newline="")
        self._rows = csv.writer(self._text)
        self._line = make_line
        self._titled = False

    def write(self, row: Any) -> None:
        line = self._line(row)
        line["keys"] = " ".join(line["keys"])
        if "body" in line:
            line["properties"] = json.dumps(line["properties"], ensure_ascii=False)
            body = line.pop("body")
            if (decoded := line.get("decoded")) is not None:
                line["decoded"] = bytes(decoded).decode()
            line |= {"body_encoding": body["encoding"], "body": body["data"]}
        if not self._titled:
            self._rows.writerow(line)
            self._titled = True
        self._rows.writerow([cell(value) for value in line.values()])
        self._file.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()
