"""The whole API: its routers, its errors, and its description, with the access rule of each operation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest
from msgspec import json
from ninja import NinjaAPI
from ninja.parser import Parser
from ninja.renderers import BaseRenderer
from ninja.utils import replace_path_param_notation

from .. import __version__
from ..console.users.access import rule_for
from ..console.users.roles import Rule
from . import auth, errors, questions
from .problems import CONTENT_TYPE, encoded
from .routers import (
    account,
    alerts,
    audit,
    backups,
    clean_ups,
    clients,
    connect,
    dead_letters,
    definitions,
    groups,
    jobs,
    message_jobs,
    messages,
    needs,
    offset_resets,
    replica_set,
    replication,
    reports,
    support,
    system,
    topics,
    users,
    waiting,
    wire_users,
)
from .schemas import MEDIA_TYPE, Asked, ProblemOut

ROOT = "api/v1/"
DESCRIPTION = """\
Everything the console does, for programs. Send a token as `Authorization: Bearer rbx_...`; a browser's session works \
too, with its CSRF token in `X-CSRFToken`. Errors are problem details (RFC 9457) with a stable `type` and `code`. \
Times end in `_at_ms` (milliseconds since 1970, UTC) and may be given as text instead (RFC 3339, `10:00`, \
`yesterday 18:00`, `2 h ago`); what is not known is null, and its `_why` says why. A parameter that an operation does \
not have is refused."""


#: Words of the window's docstrings -> those of JSON.
_IN_JSON = {"None": "null", "True": "true", "False": "false"}
_PYTHONS = re.compile(rf"\b({'|'.join(_IN_JSON)})\b")


class StrictParser(Parser):
    """JSON as the standard has it: no NaN, no invalid UTF-8."""

    def parse_body(self, request: HttpRequest) -> Any:
        return json.decode(request.body)


class JsonRenderer(BaseRenderer):
    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return encoded(data)


def _made() -> NinjaAPI:
    api = NinjaAPI(
        title="RocketBox",
        version=__version__,
        description=DESCRIPTION,
        urls_namespace="api",
        # Access is decided before a view is called, by console.access: operations that it does not list are refused.
        auth=None,
        docs_url=None,
        openapi_url=None,
        parser=StrictParser(),
        renderer=JsonRenderer(),
    )
    errors.install(api)
    # The two addresses below /messages/<ref>/ come before /messages/<ref>, whose ref may hold slashes: order matters.
    for part in (
        account,
        alerts,
        users,
        wire_users,
        audit,
        jobs,
        message_jobs,
        backups,
        definitions,
        support,
        system,
        replication,
        needs,
        topics,
        groups,
        clean_ups,
        offset_resets,
        replica_set,
        reports,
        dead_letters,
        waiting,
        clients,
        connect,
        messages,  # the last
    ):
        api.add_router("", part.router)
    auth.install(api)
    questions.install(api)
    return api


api = _made()


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address. route: as `console.access` names it; path: as OpenAPI does; name: its function's."""

    method: str
    route: str
    path: str
    name: str


def operations() -> list[Operation]:
    """Every operation there is."""
    return [
        Operation(
            method,
            ROOT + replace_path_param_notation(path).lstrip("/"),
            "/" + ROOT + _without_converters(path),
            operation.view_func.__name__,
        )
        for bound in api._get_bound_routers()
        for path, view in bound.path_operations.items()
        for operation in view.operations
        for method in operation.methods
    ]


def _without_converters(path: str) -> str:
    return re.sub(r"{\w+:", "{", path).lstrip("/")


@cache
def openapi() -> dict[str, Any]:
    """The OpenAPI 3.1 description. Each operation says in `x-access` what its caller needs."""
    schema: dict[str, Any] = dict(api.get_openapi_schema(path_prefix="/" + ROOT))
    components = schema["components"]
    problem = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    components["schemas"] |= problem.pop("$defs", {}) | {"Problem": problem}
    for parameters in Asked.__subclasses__():
        components["schemas"].pop(parameters.__name__)
    for one in components["schemas"].values():
        if "description" in one:
            one["description"] = _PYTHONS.sub(lambda word: _IN_JSON[word[0]], one["description"])
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    components["responses"] = {"Problem": {"description": "Not served", "content": {CONTENT_TYPE: reference}}}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "An API token, rbx_..."},
        "session": {"type": "apiKey", "in": "cookie", "name": "rocketbox_session"},
    }
    schema["security"] = [{"token": []}, {"session": []}]
    for one in operations():
        operation = schema["paths"][one.path][one.method.lower()]
        # Ninja would make the id of the module's path and the function's name.
        operation["operationId"] = one.name
        for parameter in operation["parameters"]:
            parameter["schema"] = _without_null(parameter["schema"])
        if media_type := operation.pop(MEDIA_TYPE, ""):
            is_document = media_type == "application/yaml"
            described = {"type": "object"} if is_document else {"type": "string", "format": "binary"}
            operation["responses"][200]["content"] = {media_type: {"schema": described}}
        operation["x-access"] = rule_text(rule_for("", one.method, one.route))
        for status in ("4XX", "503"):
            operation["responses"][status] = {"$ref": "#/components/responses/Problem"}
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """An address or a header can leave a value out, but not say null."""
    ways = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return {**{name: one for name, one in schema.items() if name != "anyOf"}, **ways[0]} if len(ways) == 1 else schema


def rule_text(rule: Rule | None) -> str:
    """Return a rule as text, like "operator", "viewer, may_read_bodies" or "nobody"."""
    return "nobody" if rule is None else ", ".join((rule.role or "everyone", *rule.grants))
