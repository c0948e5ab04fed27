"""Jobs as the API returns them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from .schemas import Out, PageOut, SentenceOut, Text

State = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]


class JobFileOut(Out):
    """A file at `/jobs/{job}/files/{name}`."""

    name: str
    bytes: int


class JobOut(Out):
    """A long act. done, total: how far it is, in `unit`; total null: not known. counts: parts of `done`, by name. why:
    why it failed or was interrupted. interrupted: RocketBox ended while it ran."""

    id: str
    kind: str
    state: State
    target: Text
    who: str
    parameters: dict[str, Any]
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    done: int
    total: int | None
    unit: str
    counts: dict[str, int]
    cancelling: bool
    why: SentenceOut | None
    result: dict[str, Any]
    files: list[JobFileOut]
    files_removed: bool

    @model_validator(mode="before")
    @classmethod
    def _of_job(cls, job: Any) -> Any:
        if isinstance(job, dict):
            return job
        found = {name: getattr(job, name) for name in cls.model_fields if name not in ("cancelling", "why")}
        why = None if job.why is None else {"code": "job", "text": str(job.why), "args": job.why.args}
        return found | {"cancelling": bool(job.cancel_asked_by) and not job.ended, "why": why}


class JobPage(PageOut):
    items: list[JobOut]
    total: int
