"""The job that writes a group's dead letters to a file before they expire: whole messages, as an export writes them."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from ...engine.errors import NotFound
from ..users.roles import VIEWER
from .message_export import NO_NAME, SLICE_MS, CsvFile, LinesFile
from .message_lines import line_of
from .registry import kind
from .work import Work

NAME = "dead-letter-archive"
RULE = VIEWER.with_grants("may_read_bodies", "may_export")
_WORDS = {
    "dead letters": _("dead letters"), "archived": _("archived"), "left_out": _("left out by the filter"),
    "unreadable": _("unreadable or expired"),
}  # fmt: skip


@kind(NAME, title=_("Archive dead letters"), start=RULE, words=_WORDS, bad=("unreadable",), about="group")
def archive(work: Work) -> None:
    """parameters: group, format, and either picked, a list of (queue id, offset), or wanted, from_ms and to_ms."""
    asked = work.parameters
    group, form = asked["group"], asked["format"]

    def line(copy: Any) -> dict[str, Any]:
        """Return the line of an export, with the group, the topic it was first sent to and its message id there."""
        properties = copy.properties
        origin = {"origin_topic": properties.get("RETRY_TOPIC"), "origin_id": properties.get("ORIGIN_MESSAGE_ID")}
        return {"dead_letter_of": group} | origin | line_of(copy)

    path = work.file(f"dead-letters-{NO_NAME.sub('_', group)[:80]}.{form}")
    with path.open("wb") as file:
        out = CsvFile(file, line) if form == "csv" else LinesFile(file, line)
        if asked.get("picked"):
            counts = _picked(work, out)
        else:
            counts = _filtered(work, out)
    work.result(counts | {"bytes": path.stat().st_size})


def _picked(work: Work, out: Any) -> dict[str, int]:
    counts = {"archived": 0, "unreadable": 0}
    places = work.parameters["picked"]
    for number, (queue_id, offset) in enumerate(places, 1):
        try:
            out.write(work.window.dead_letters.copy(work.parameters["group"], queue_id, offset))
            counts["archived"] += 1
        except NotFound:
            counts["unreadable"] += 1
        work.progress(number, len(places), "dead letters", **counts)
    return counts


def _filtered(work: Work, out: Any) -> dict[str, int]:
    asked = work.parameters
    counts = {"archived": 0, "left_out": 0, "unreadable": 0}
    cursor = None
    while True:
        page = work.window.dead_letters.copies(
            asked["group"], from_ms=asked.get("from_ms"), to_ms=asked.get("to_ms"), wanted=asked.get("wanted"),
            cursor=cursor, limit=100, budget_ms=SLICE_MS,
        )  # fmt: skip
        for number, copy in enumerate(page.rows):
            out.write(copy)
            if number % 16 == 15:
                work.check()
        counts["archived"] += len(page.rows)
        counts["unreadable"] += page.skipped
        counts["left_out"] = max(0, page.seen - counts["archived"] - counts["unreadable"])
        work.progress(page.seen, page.total, "dead letters", **counts)
        cursor = page.next_cursor
        if cursor is None:
            return counts
