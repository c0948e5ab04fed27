"""Jobs that copy the messages an expression selects in a topic to another topic, or only check them.

A copy job first collects the messages as lines in a file of its own, durably, and sends nothing before. Then it sends
that file as an import does (`message_import`): with a mark in the log before each batch and ids of its own, so that
after a kill no message is sent twice and none is left out. The originals stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from ...engine.disk import Disk
from ...engine.errors import InvalidInput
from ..models import now_ms
from ..users.roles import OPERATOR
from .message_export import SELECTED_WORDS, Selected
from .message_import import IMPORT_WORDS, Import
from .message_lines import BadLine, item_of, line_of
from .registry import kind
from .work import JobFailed, Work

if TYPE_CHECKING:
    from ...engine.window.window import Window
    from .job import Job

NAME, CHECK = "message-copy", "message-copy-check"

_WORDS = IMPORT_WORDS | SELECTED_WORDS
_BAD = ("failed", "unreadable", "undecided")


def parameters_of(
    window: Window,
    topic: str,
    to: str,
    queue_id: int | None,
    from_ms: int | None,
    to_ms: int | None,
    filter_text: str | None,
) -> dict[str, Any]:
    """Return the parameters of a job. Raises InvalidInput or NotFound if it could not begin. to_ms: None for now, and
    not later than now: a purge of the originals up to that time must not hit messages that came after the copying."""
    if to == topic:
        raise InvalidInput("to", gettext_noop("Choose another topic: the messages are in this one."))
    to_ms = now_ms() if to_ms is None else min(to_ms, now_ms() + 1)
    window.messages.page(topic, queue_id=queue_id, from_ms=from_ms, to_ms=to_ms, limit=1, filter_text=filter_text)
    window.imports.send(to, (), dry_run=True)
    return {"topic": topic, "to": to, "queue_id": queue_id, "from_ms": from_ms, "to_ms": to_ms, "filter": filter_text}


@kind(CHECK, title=_("Check messages for copying"), start=OPERATOR, words=_WORDS, bad=_BAD, about="topic")
def check(work: Work) -> None:
    """Count the messages, and those that the target would refuse."""
    collected = _Collected(work)
    valid = failed = 0
    reason = ""
    for lines in collected.read():
        items = []
        for line in lines:
            try:
                items.append(item_of(line))
            except BadLine as error:
                failed, reason = failed + 1, reason or str(error.told)
        for outcome in work.window.imports.send(work.parameters["to"], items, dry_run=True) if items else ():
            if outcome.status == "failed":
                failed, reason = failed + 1, reason or str(outcome.reason)
            else:
                valid += 1
    work.result(
        {"valid": valid, "failed": failed, **collected.counts, "bytes": collected.size}
        | ({"first_problem": reason[:300]} if reason else {})
    )


@kind(NAME, title=_("Copy messages"), start=OPERATOR, words=_WORDS, bad=_BAD, goes_on=True, about="topic")
def copy(work: Work) -> None:
    """Collect the messages, then send them. The collected ones are deleted when the job ends, not when RocketBox
    stops."""
    if "collected" not in work.kept:
        collected = _Collected(work)
        Disk(work.input.parent).write_new(work.input, collected.within(work.file_bytes_left))
        work.keep({"collected": collected.counts})
    Import(work, False, topic=work.parameters["to"]).run()
    work.input.unlink(missing_ok=True)


def copied_all(job: Job) -> bool:
    """Return whether the job copied every message up to its `to_ms`, so that a purge of the originals loses none."""
    asked = job.parameters
    selects_some = bool(asked["filter"] or asked["from_ms"]) or asked["queue_id"] is not None
    return job.state == "done" and not selects_some and not any(job.result.get(name) for name in _BAD)


class _Collected:
    """The messages that a job's parameters select, as lines. counts, size: of those read so far."""

    def __init__(self, work: Work) -> None:
        self._selected = Selected(work)
        self._ask = work.window.messages.copies
        self.counts = self._selected.counts
        self.size = 0

    def read(self) -> Iterator[list[bytes]]:
        """Yield the lines of each page, oldest first, and report progress."""
        for page in self._selected.pages(self._ask):
            lines = [msgspec.json.encode(line_of(row)) for row in page.rows]
            self.size += sum(len(line) + 1 for line in lines)
            yield lines

    def within(self, most_bytes: int) -> Iterator[bytes]:
        """Yield the lines of each page as one piece. Raises JobFailed if they take more than `most_bytes`."""
        for lines in self.read():
            if self.size > most_bytes:
                raise JobFailed(
                    gettext_noop("The messages take more than %(limit_bytes)d bytes. Copy them in parts."),
                    limit_bytes=most_bytes,
                )
            yield b"".join(line + b"\n" for line in lines)
