"""Turns every kind of error of a request into one of the `problems`."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import HttpError, ValidationError

from .. import runtime
from ..console.serving.database import is_damage
from ..console.serving.secret_addresses import without_secret
from ..console.users.user_acts import ExceedsCaller
from ..engine.errors import AdminError, Blocked, Conflict, InvalidInput, NotFound, StoreBroken, Unavailable
from . import forms
from .problems import PROBLEMS, clean, problem

if TYPE_CHECKING:
    from ninja import NinjaAPI

logger = logging.getLogger(__name__)


class Refused(Exception):
    """A request the API itself turns down. code: a line of PROBLEMS."""

    def __init__(self, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.more = more


def install(api: NinjaAPI) -> None:
    """Give every kind of error its answer."""
    answers: tuple[tuple[type[Exception], Any], ...] = (
        (Refused, _refused),
        (AdminError, _admin_error),
        (StoreBroken, _store_broken),
        (ExceedsCaller, _exceeds_caller),
        (runtime.EngineNotRunning, _not_running),
        (ValidationError, _invalid),
        (HttpError, _malformed),
        (Http404, _not_found),
        (RequestDataTooBig, _too_large),
        (SuspiciousOperation, _suspicious),
        (Exception, _internal_error),
    )
    for kind, answer in answers:
        api.add_exception_handler(kind, answer)


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return problem(request, error.code, error.detail, **error.more)


def _exceeds_caller(request: HttpRequest, error: ExceedsCaller) -> HttpResponse:
    return problem(request, "exceeds_caller", str(error))


def _admin_error(request: HttpRequest, error: AdminError) -> HttpResponse:
    code = "conflict"
    more: dict[str, Any] = {"rocketmq_code": error.rocketmq_code}
    match error:
        case NotFound():
            code = f"{error.kind}_not_found" if f"{error.kind}_not_found" in PROBLEMS else "not_found"
        case InvalidInput():
            code = "invalid_input"
            more["errors"] = [{"field": error.field, "message": clean(str(error))}]
        case Blocked():
            from .schemas import SentenceOut

            code = "blocked"
            more["blockers"] = [SentenceOut.model_validate(one).model_dump() for one in error.blockers]
            more["hint"] = "Add force=true to do it anyway."
        case Conflict() if "if-match" in request.headers:
            code = "revision_mismatch"
            more["hint"] = "Read it again and use its new ETag."
        case Unavailable():
            code = "unavailable"
    return problem(request, code, str(error), **more)


def _store_broken(request: HttpRequest, error: StoreBroken) -> HttpResponse:
    return problem(request, "unavailable", str(error), rocketmq_code=14)


def _not_running(request: HttpRequest, error: runtime.EngineNotRunning) -> HttpResponse:
    return problem(request, "engine_not_running", "RocketBox is starting or stopping. Try again in a moment.")


def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    found = {(_field(one), _message(one)): None for one in error.errors}  # each branch of a union repeats it
    errors = [{"field": field, "message": message} for field, message in found]
    detail = "; ".join(f"{one['field']}: {one['message']}" for one in errors[:3])
    return problem(request, "invalid_input", detail, errors=errors[:50])


#: Pydantic's kinds of errors -> text instead of its own, which names types of Python.
_MESSAGES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "dict_attributes_type"), "must be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "must be an array"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("string_type", "string_sub_type"), "must be text"),
    "string_unicode": "must be text of whole characters",
    "missing": "is required",
    "extra_forbidden": "is not a field here",
    "none_required": "must be null",
    "recursion_loop": "is nested too deeply",
}
#: Part that pydantic appends to a field for each branch of a union.
_BRANCH = re.compile(r"(bool|int|str|float|none|list|dict|tuple|model)(\[.*)?\Z|(function|constrained|lax|tagged)-")
_MODEL = re.compile(r"[A-Z][A-Za-z0-9]*In\Z")
_SHOULD = re.compile(r"(Input|Value|String|List|Tuple|Set|Dictionary|Data) should (be|have|match) ")


def _message(error: dict[str, Any]) -> str:
    if error["type"] == "string_pattern_mismatch":
        return forms.WORDS.get(error["ctx"]["pattern"], "does not have the form that it needs")
    return _MESSAGES.get(error["type"]) or clean(_SHOULD.sub(r"must \2 ", error["msg"].removeprefix("Value error, ")))


def _field(error: dict[str, Any]) -> str:
    """("body", "body", "name") -> "name": the source and, for bodies, the parameter's own name say nothing."""
    location = error["loc"]
    parts = location[2:] if location[0] == "body" and len(location) > 2 else location[1:]
    parts = tuple(part for part in parts if not _MODEL.match(str(part)))
    while len(parts) > 1 and isinstance(parts[-1], str) and _BRANCH.match(parts[-1]):
        parts = parts[:-1]
    return clean(".".join(str(part) for part in parts)) or str(location[0])


def _malformed(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem(request, "bad_request", f"{error.message}: it is not valid JSON.")


def _not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return problem(request, "not_found", "There is nothing at this address.")


def _too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem(request, "too_large", f"A request has at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes.")


def _suspicious(request: HttpRequest, error: SuspiciousOperation) -> HttpResponse:
    return problem(request, "bad_request", "The request could not be understood.")


def _internal_error(request: HttpRequest, error: Exception) -> HttpResponse:
    if is_damage(error):
        raise error  # as for a page: damage that is found before a handler runs is answered there, too
    number, path = getattr(request, "request_id", ""), without_secret(request.path)
    logger.error("api: failed request=%s path=%r", number, path, exc_info=error)
    return problem(request, "internal", "The log has the details under the number of this request.")
