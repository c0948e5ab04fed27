"""Problem details (RFC 9457): the answers to requests that are not served.

`type` is `urn:rocketbox:problem:<code>`, and the codes are the table below: they do not change, the sentences may.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from msgspec import json

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rocketbox:problem:"

#: code -> (status, title).
PROBLEMS: dict[str, tuple[int, str]] = {
    "bad_request": (400, "Invalid request"),
    "unauthorized": (401, "Not signed in"),
    "forbidden": (403, "Not allowed"),
    "csrf": (403, "The form was not accepted"),
    "outside_pattern": (403, "Outside the token's pattern"),
    "confirm_password": (403, "Confirm your password"),
    "exceeds_caller": (403, "More than you are allowed"),
    "not_found": (404, "Not found"),
    "topic_not_found": (404, "No such topic"),
    "group_not_found": (404, "No such consumer group"),
    "queue_not_found": (404, "No such queue"),
    "message_not_found": (404, "No such message"),
    "option_not_found": (404, "No such option"),
    "user_not_found": (404, "No such user"),
    "wire_user_not_found": (404, "No such wire user"),
    "session_not_found": (404, "No such session"),
    "token_not_found": (404, "No such token"),
    "client_not_found": (404, "No such client"),
    "need_not_found": (404, "No such need"),
    "mute_not_found": (404, "No such mute"),
    "job_not_found": (404, "No such job"),
    "method_not_allowed": (405, "Method not allowed"),
    "too_slow": (408, "Too slow"),
    "conflict": (409, "Conflicts with what exists"),
    "blocked": (409, "Something would be lost"),
    "idempotency_in_progress": (409, "The first request is still running"),
    "idempotency_outcome_unknown": (409, "The first request did not finish"),
    "revision_mismatch": (412, "Changed since you read it"),
    "too_large": (413, "Too large"),
    "invalid_input": (422, "Invalid value"),
    "unknown_parameter": (422, "Unknown parameter"),
    "idempotency_key_reused": (422, "The key belongs to another request"),
    "too_many_streams": (429, "Too many at a time"),
    "internal": (500, "Internal error"),
    "engine_not_running": (503, "Not running"),
    "unavailable": (503, "Not available right now"),
}


def problem(request: HttpRequest, code: str, detail: str, **more: Any) -> HttpResponse:
    """The answer for one of PROBLEMS. more: members of its own (hint, errors, blockers, rocketmq_code)."""
    status, title = PROBLEMS[code]
    body = {
        "type": TYPE_PREFIX + code,
        "title": title,
        "status": status,
        "detail": clean(detail),
        "instance": request.get_full_path(),
        "code": code,
        "request_id": getattr(request, "request_id", ""),
        **more,
    }
    response = HttpResponse(json.encode(body), status=status, content_type=CONTENT_TYPE)
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


def clean(text: str) -> str:
    """Text that JSON can carry: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def encoded(value: Any) -> bytes:
    """JSON. Texts that strangers chose are cleaned, which few need."""
    try:
        return json.encode(value)
    except UnicodeEncodeError:
        return json.encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(one) for name, one in value.items()}
    return [_cleaned(one) for one in value] if isinstance(value, list | tuple) else value
