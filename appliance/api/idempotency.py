"""A request that may be repeated safely: the answer to an Idempotency-Key is kept for 24 hours and given again.

The key is claimed before the act. Of an act whose end was not seen (the server stopped, or the wait was over) it is not
known whether it happened; the same key is refused then, for a second message would break the promise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from pydantic import BaseModel

from ..console.models import IdempotentAnswer, now_ms
from ..engine.errors import StoreBroken, Unavailable
from .errors import Refused
from .problems import encoded

KEPT_MS = 24 * 3600 * 1000
# The longest an act takes; a claim older than this has lost its worker.
_UNDER_WAY_MS = 60_000
_UNKNOWN = 503
_JSON = "application/json; charset=utf-8"


def once(
    request: HttpRequest,
    key: str | None,
    status: int,
    act: Callable[[], Any],
    place: Callable[[Any], str] | None = None,
) -> HttpResponse:
    """The answer of act(), or the one it had when the key first came (with `Idempotency-Replayed: true`).

    Keys of two callers never meet. A request that was refused leaves its key free. act returns a model or a value of
    the window; place: the Location of what it made.
    """
    headers: Callable[[Any], dict[str, str]] = lambda made: {} if place is None else {"Location": place(made)}  # noqa: E731
    if key is None:
        made = act()
        return _answer(_encoded(made), status, headers(made))
    claim = _claim(request, key)
    if claim.status:
        return _answer(bytes(claim.body), claim.status, claim.headers | {"Idempotency-Replayed": "true"})
    try:
        made = act()
        body = _encoded(made)
    except (Unavailable, StoreBroken):
        _settle(claim, _UNKNOWN)
        raise
    except Exception:
        claim.delete()
        raise
    claim.headers = headers(made)
    _settle(claim, status, body)
    return _answer(body, status, claim.headers)


def _claim(request: HttpRequest, key: str) -> IdempotentAnswer:
    """A new claim (status 0), or the kept answer. Raises Refused."""
    caller, digest, now = _caller(request), _digest(request), now_ms()
    IdempotentAnswer.objects.filter(created_at_ms__lt=now - KEPT_MS).delete()
    try:
        with transaction.atomic():
            return IdempotentAnswer.objects.create(key=key, caller=caller, request_digest=digest, created_at_ms=now)
    except IntegrityError:
        kept = IdempotentAnswer.objects.get(key=key, caller=caller)
    if kept.request_digest != digest:
        raise Refused("idempotency_key_reused", "This Idempotency-Key was already used for a different request.")
    if kept.status == 0 and now - kept.created_at_ms < _UNDER_WAY_MS:
        raise Refused("idempotency_in_progress", "A request with this Idempotency-Key is still running.")
    if kept.status in (0, _UNKNOWN):
        raise Refused(
            "idempotency_outcome_unknown",
            "The first request with this Idempotency-Key did not finish; it may have been carried out.",
            hint="Check whether it was, then use a new key.",
        )
    return kept


def _settle(claim: IdempotentAnswer, status: int, body: bytes = b"") -> None:
    claim.status, claim.body = status, body
    claim.save(update_fields=["status", "headers", "body"])


def _caller(request: HttpRequest) -> str:
    user: Any = request.user
    return f"token:{user.token.pk}" if user.kind == "token" else f"user:{user.pk}"


def _digest(request: HttpRequest) -> str:
    head = f"{request.method} {request.get_full_path()}\n".encode("utf-8", "replace")
    return hashlib.sha256(head + request.body).hexdigest()


def _encoded(answer: Any) -> bytes:
    return encoded(answer.model_dump() if isinstance(answer, BaseModel) else asdict(answer))


def _answer(body: bytes, status: int, headers: Mapping[str, str]) -> HttpResponse:
    return HttpResponse(body, status=status, content_type=_JSON, headers=headers)
