#!/usr/bin/env python3
"""A Model Context Protocol server for RocketBox, made of its OpenAPI description; standard library only.

    ROCKETBOX_URL=http://127.0.0.1:8080 ROCKETBOX_TOKEN=rbx_... python3 rocketbox_mcp.py

Every operation of the REST API is a tool of its operationId: its parameters and, as `body`, its request body are the
tool's input, by the same JSON schema. The description comes from the server, or from a file with --openapi FILE. Only
what reads is offered; --write offers what changes something, too. What a tool may do is what the token may do.

Speaks MCP over standard input and output, a JSON-RPC message a line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import sys
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
METHODS = ("get", "post", "patch", "put", "delete")
#: An answer that is longer is cut: it would fill the model's context.
ANSWER_CHARACTERS = 100_000
LIMIT_S = 60

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


class RocketBox:
    """The server's REST API."""

    def __init__(self, url: str, token: str) -> None:
        self._parts = urlsplit(url)
        self._token = token

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None) -> tuple[int, str]:
        """(status, text) of an answer."""
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=LIMIT_S)
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, data, sent)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        finally:
            connection.close()


class Tool:
    """One operation of the description."""

    def __init__(self, description: dict[str, Any], path: str, method: str) -> None:
        operation = description["paths"][path][method]
        self.name: str = operation["operationId"]
        self._method = method.upper()
        self._path = path
        self._where = {one["name"]: one["in"] for one in operation.get("parameters", ())}
        content = operation.get("requestBody", {}).get("content", {})
        body = content.get("application/json", {}).get("schema")
        properties = {one["name"]: _described(one) for one in operation.get("parameters", ())}
        required = [one["name"] for one in operation.get("parameters", ()) if one.get("required")]
        if body is not None:
            properties["body"] = body
            if operation["requestBody"].get("required"):
                required.append("body")
        self._input: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            self._input["required"] = required
        self._input = _with_definitions(self._input, description["components"]["schemas"])
        text = operation.get("description") or operation.get("summary") or ""
        self._text = f"{self._method} {path}: {text} (needs: {operation.get('x-access', 'a token')})"

    @property
    def reads(self) -> bool:
        return self._method == "GET"

    def described(self) -> dict[str, Any]:
        """As tools/list gives it."""
        hints = {"readOnlyHint": self.reads, "destructiveHint": self._method == "DELETE", "openWorldHint": False}
        return {"name": self.name, "description": self._text, "inputSchema": self._input, "annotations": hints}

    def call(self, server: RocketBox, arguments: dict[str, Any]) -> dict[str, Any]:
        """As tools/call gives it. Raises ValueError for arguments that the operation does not have."""
        unknown = sorted(set(arguments) - set(self._input["properties"]))
        missing = sorted(set(self._input.get("required", ())) - set(arguments))
        if unknown or missing:
            raise ValueError(f"{self.name}: unknown arguments {unknown}, missing arguments {missing}")
        path, query, headers = self._path, {}, {}
        for name, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            match self._where.get(name):
                case "path":
                    path = path.replace("{" + name + "}", quote(text, safe=""))
                case "query" if value is not None:
                    query[name] = text
                case "header" if value is not None:
                    headers[name] = text
        address = path + (f"?{urlencode(query)}" if query else "")
        try:
            status, answer = server.ask(self._method, address, headers, arguments.get("body"))
        except (OSError, http.client.HTTPException) as error:
            return _content(f"RocketBox does not answer: {error}", True)
        if len(answer) > ANSWER_CHARACTERS:
            answer = answer[:ANSWER_CHARACTERS] + "\n... (cut; ask for less, as with limit)"
        return _content(answer or f"status {status}", status >= 400)


def _described(parameter: dict[str, Any]) -> dict[str, Any]:
    return {**parameter["schema"], **({"description": parameter["description"]} if "description" in parameter else {})}


def _content(text: str, is_error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _with_definitions(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema with the parts it refers to below `$defs`, so that it stands alone."""
    found: dict[str, Any] = {}
    wanted = _names_in(schema)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = components[name]
            wanted |= _names_in(components[name])
    text = json.dumps({**schema, **({"$defs": found} if found else {})})
    return dict(json.loads(text.replace("#/components/schemas/", "#/$defs/")))


def _names_in(schema: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)))


class Session:
    """One client on standard input and output."""

    def __init__(self, server: RocketBox, description: dict[str, Any], write: bool) -> None:
        self._server = server
        self._version: str = description["info"]["version"]
        tools = [
            Tool(description, path, method)
            for path, ways in description["paths"].items() for method in ways if method in METHODS
        ]  # fmt: skip
        self._tools = {tool.name: tool for tool in tools if write or tool.reads}

    def answer(self, line: str) -> str | None:
        """The answer to one message; None to a notification."""
        try:
            message = json.loads(line)
        except ValueError:
            return _failed(None, PARSE_ERROR, "This is not JSON.")
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _failed(None, INVALID_REQUEST, "This is no request.")
        if "id" not in message:
            return None
        number, params = message["id"], message.get("params") or {}
        match message["method"]:
            case "initialize":
                return _done(number, self._welcome(params))
            case "ping":
                return _done(number, {})
            case "tools/list":
                return _done(number, {"tools": [tool.described() for tool in self._tools.values()]})
            case "tools/call":
                tool = self._tools.get(str(params.get("name")))
                if tool is None:
                    return _failed(number, INVALID_PARAMS, f"There is no tool {params.get('name')}.")
                try:
                    return _done(number, tool.call(self._server, params.get("arguments") or {}))
                except ValueError as error:
                    return _failed(number, INVALID_PARAMS, str(error))
        return _failed(number, NO_METHOD, f"There is no method {message['method']}.")

    def _welcome(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rocketbox", "version": self._version},
        }


def _done(number: Any, result: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result})


def _failed(number: Any, code: int, text: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="An MCP server for RocketBox's REST API.")
    parser.add_argument("--openapi", help="the description in a file; else it is fetched from the server")
    parser.add_argument("--write", action="store_true", help="offer operations that change something, too")
    options = parser.parse_args()
    url = os.environ.get("ROCKETBOX_URL")
    if not url:  # whoever listens on an assumed port would get the token
        print("Set ROCKETBOX_URL to the address of RocketBox's console.", file=sys.stderr)
        return 1
    server = RocketBox(url, os.environ.get("ROCKETBOX_TOKEN", ""))
    try:
        if options.openapi:
            with open(options.openapi, encoding="utf-8") as file:
                description = json.load(file)
        else:
            status, text = server.ask("GET", "/api/v1/openapi.json")
            if status != 200:
                print(f"RocketBox answered {status}; is ROCKETBOX_TOKEN set? {text[:300]}", file=sys.stderr)
                return 1
            description = json.loads(text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"No description of the API: {error}", file=sys.stderr)
        return 1
    session = Session(server, description, options.write)
    for line in sys.stdin:
        if line.strip() and (answer := session.answer(line)) is not None:
            print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
