"""The job that sends messages which were cut from this broker's log to the replica set's present leader.

After a restart the job goes on where it was. A message whose unique id the leader already has is not sent again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from ... import runtime
from ...engine.errors import Unavailable
from ..users.roles import OPERATOR
from .job import Job
from .job_board import start as start_job
from .registry import kind
from .work import JobFailed, Work

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ...engine.window.replicas.quarantine import SentAgain

NAME = "quarantine-send"
#: Messages of one step; each is looked up at the leader before it is sent.
_STEP = 50
_TRIES, _TRY_S = 30, 1.0
_WORDS = {
    "messages": _("messages"), "sent": _("sent"), "there": _("there already"), "left_out": _("left out"),
    "failed": _("failed"),
}  # fmt: skip


def start(request: HttpRequest, name: str) -> Job:
    """Start the job for one quarantine file. Raises NotFound and Unavailable, and Conflict while another one runs."""
    runtime.window().quarantine.page(name, limit=1)
    return start_job(request, NAME, {"name": name}, target=name)


@kind(NAME, title=_("Send quarantined messages again"), start=OPERATOR, words=_WORDS, bad=("failed",), goes_on=True,
      alone=True)  # fmt: skip
def send(work: Work) -> None:
    """Send the messages of one quarantine file. parameters: name, that of the file. The job's file lists the messages
    that were not sent, with reasons."""
    name = work.parameters["name"]
    counts: dict[str, int] = work.kept.get("counts") or dict.fromkeys(("sent", "there", "left_out", "failed"), 0)
    offset: int | None = work.kept.get("offset")
    total = work.window.quarantine.page(name, limit=1).records
    with work.file("not-sent.ndjson").open("ab") as problems:
        while True:
            results, offset = _step(work, name, offset)
            for one in results:
                counts[one.outcome] += 1
                if one.why is not None:
                    line = {"offset": one.offset, "topic": one.topic, "unique_id": one.unique_id, "why": str(one.why)}
                    problems.write(msgspec.json.encode(line) + b"\n")
            problems.flush()
            work.progress(sum(counts.values()), max(total, sum(counts.values())), "messages", **counts)
            if offset is None:
                break
            work.keep({"offset": offset, "counts": counts})
    work.result({**counts, "file": name})


def _step(work: Work, name: str, offset: int | None) -> tuple[list[SentAgain], int | None]:
    """Send the next messages from `offset` on; return their outcomes and the next offset, None at the end.

    Tries again while the set elects a leader. Raises JobFailed after `_TRIES` attempts."""
    why = ""
    for _number in range(_TRIES):
        try:
            return work.window.quarantine.send(name, offset=offset, limit=_STEP, by=f"{work.job.who} ({work.job.id})")
        except Unavailable as error:
            work.check()
            why = str(error)
            time.sleep(_TRY_S)
            work.check()
    raise JobFailed(gettext_noop("It stopped: %(why)s Start it again; nothing is sent twice."), why=why)
