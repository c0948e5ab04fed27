"""The API's description, for programs and for people; the pages load nothing from other servers."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from msgspec import json

from ..console.pages.curl import root_of
from .problems import PROBLEMS, TYPE_PREFIX

# The operations are imported in the functions: they take 18 MB, which pages do not need.


@require_safe
def openapi_json(request: HttpRequest) -> HttpResponse:
    """OpenAPI 3.1, as `rocketbox openapi` prints it; the server is where this one is reached."""
    from .api import openapi

    server = {"url": request.META.get("SCRIPT_NAME", "") or "/"}
    return HttpResponse(json.encode({**openapi(), "servers": [server]}), content_type="application/json")


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """The same as a page: every operation, what it needs, its parameters and its body."""
    from .api import openapi

    context = {"groups": _by_tag(openapi(), root_of(request)), "problems": PROBLEMS, "prefix": TYPE_PREFIX}
    return render(request, "api_docs.html", context)


def _by_tag(schema: dict[str, Any], address: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path, ways in schema["paths"].items():
        for method, operation in ways.items():
            row = {
                "method": method.upper(),
                "path": path,
                "operation": operation,
                "access": operation["x-access"],
                "parameters": [_parameter(schema, one) for one in operation["parameters"]],
                "fields": _fields(schema, _body(operation)),
                "answers": _answers(schema, operation),
                "curl": _curl(schema, address, path, method.upper(), operation),
            }
            found.setdefault(operation["tags"][0], []).append(row)
    return found


def _parameter(schema: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    shown = {"name": one["name"], "where": one["in"], "required": one["required"]}
    return shown | {
        "type": _type(schema, one["schema"]),
        "default": _default(one["schema"]),
        "meaning": one.get("description", ""),
    }


def _default(shape: dict[str, Any]) -> str:
    """Return the default as JSON; "" without one."""
    found = shape.get("default")
    return "" if found in (None, "") else json.encode(found).decode()


def _answers(schema: dict[str, Any], operation: dict[str, Any]) -> list[dict[str, Any]]:
    """status, what it is called, and its fields, of each answer that is no error."""
    found = []
    for status, answer in operation["responses"].items():
        if not str(status).startswith("2"):
            continue
        shape = answer.get("content", {}).get("application/json", {}).get("schema", {})
        name = shape.get("$ref", "").rpartition("/")[2]
        meaning = _resolved(schema, shape).get("description", "")
        found.append({"status": status, "name": name, "meaning": meaning, "fields": _fields(schema, shape)})
    return found


def _curl(schema: dict[str, Any], address: str, path: str, method: str, operation: dict[str, Any]) -> str:
    """Return a command line that calls the operation; the reader replaces $NAMES."""
    for one in operation["parameters"]:
        if one["in"] == "path":
            path = path.replace("{" + one["name"] + "}", "$" + one["name"].upper())
    asked = [f"{one['name']}=..." for one in operation["parameters"] if one["in"] == "query" and one["required"]]
    words = ["curl", *(["-X", method] if method != "GET" else []), '-H "Authorization: Bearer $TOKEN"']
    required = [one for one in _fields(schema, _body(operation)) if one["required"]]
    if _body(operation):
        body = ", ".join(f'"{one["name"]}": ...' for one in required)
        words += ['-H "Content-Type: application/json"', "-d '{" + body + "}'"]
    return " ".join([*words, f'"{address}{path}{"?" if asked else ""}{"&".join(asked)}"'])


def _body(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    return dict(content.get("application/json", {}).get("schema", {}))


def _fields(schema: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
    """name, type and whether it is required, of a body's fields."""
    shape = _resolved(schema, body)
    required = shape.get("required", ())
    properties = shape.get("properties", {})
    return [
        {
            "name": name,
            "type": _type(schema, one),
            "required": name in required,
            "default": _default(one),
            "meaning": one.get("description", ""),
        }
        for name, one in properties.items()
    ]


def _resolved(schema: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    name = shape.get("$ref", "").rpartition("/")[2]
    return dict(schema["components"]["schemas"][name]) if name else shape


def _type(schema: dict[str, Any], shape: dict[str, Any]) -> str:
    """A type in a few words: "integer | null", "NORMAL | FIFO", "{encoding, data}"."""
    shape = _resolved(schema, shape)
    if "anyOf" in shape:
        return " | ".join(dict.fromkeys(_type(schema, one) for one in shape["anyOf"]))
    if "enum" in shape:
        return " | ".join(map(str, shape["enum"]))
    if "const" in shape:
        return str(shape["const"])
    if shape.get("type") == "array":
        return f"[{_type(schema, shape['items'])}]"
    if "properties" in shape:
        return "{" + ", ".join(shape["properties"]) + "}"
    return str(shape.get("type", "any"))
