"""The example MCP server, started as its users start it, over the description in docs/ and a real appliance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.api.api import openapi
from tests.support.directories import shared_directory
from tests.support.server import ROOT, Server

PROGRAM = ROOT / "examples/mcp/rocketbox_mcp.py"
ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "Vogel-Nest-42-Kran"}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "mcp")
    with Server(directory / "data", "--http-port", "0", roles="broker,namesrv,console", environment=ADMIN) as running:
        yield running


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    done = subprocess.run(
        [sys.executable, "-m", "appliance.main", "token", "create", "mcp", "--role", "operator", "--json",
         "--data-dir", str(server.data_dir)],
        cwd=ROOT, env=clean, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return str(json.loads(done.stdout)["secret"])


class Client:
    """Speaks to the program over its pipes, as a model's host does."""

    def __init__(self, server: Server, token: str, *options: str) -> None:
        environment = {"ROCKETBOX_URL": f"http://{server.ready['http']}", "ROCKETBOX_TOKEN": token, "PATH": "/usr/bin"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), *options], env=environment, text=True, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._number = 0

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}))
        answer = self.read()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._number)
        return answer

    def call(self, name: str, **arguments: Any) -> tuple[bool, Any]:
        """Call a tool; return (True if it succeeded, the API's JSON)."""
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        [content] = result["content"]
        assert content["type"] == "text"
        return not result["isError"], json.loads(content["text"])

    def close(self) -> str:
        _, errors = self._process.communicate(timeout=60)
        return errors


@pytest.fixture
def client(server: Server, token: str, tmp_path) -> Iterator[Client]:
    (tmp_path / "openapi.json").write_text(json.dumps(openapi()))
    found = Client(server, token, "--openapi", str(tmp_path / "openapi.json"), "--write")
    yield found
    assert found.close() == ""


def test_a_tool_is_listed_and_called(client: Client):
    welcome = client.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test"})
    assert welcome["result"]["protocolVersion"] == "2025-06-18"
    assert welcome["result"]["serverInfo"]["name"] == "rocketbox"
    client.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    assert tools["list_topics"]["annotations"]["readOnlyHint"]
    assert tools["create_topic"]["inputSchema"]["required"] == ["body"]
    well, made = client.call("create_topic", body={"name": "by-model", "read_queues": 2, "write_queues": 2})
    assert (well, made["applied"]) == (True, True)
    well, shown = client.call("topic_settings", topic="by-model")
    assert (well, shown["read_queues"]) == (True, 2)
    well, page = client.call("list_topics", q="by-model", system=False, limit=10)
    assert [row["name"] for row in page["items"]] == ["by-model"]
    well, _ = client.call(
        "send_message", topic="by-model", body={"body": {"data": "hello"}}, **{"Idempotency-Key": "1"}
    )
    assert well


def test_what_is_refused_is_an_error_that_the_model_can_read(client: Client):
    assert client.call("topic_settings", topic="no such topic?")[1]["code"] == "topic_not_found"
    well, problem = client.call("delete_topic", topic="by-model")
    assert (well, problem["code"]) == (False, "forbidden"), "the token is an operator's"
    assert client.ask("tools/call", name="no_such")["error"]["code"] == -32602
    assert "unknown" in client.ask("tools/call", name="list_topics", arguments={"x": 1})["error"]["message"]
    assert "missing" in client.ask("tools/call", name="topic_settings")["error"]["message"]
    assert client.ask("resources/list")["error"]["code"] == -32601
    client.send("{")
    assert client.read()["error"]["code"] == -32700
    client.send("[]")
    assert client.read()["error"]["code"] == -32600
    assert client.ask("ping")["result"] == {}


def test_every_operation_is_a_tool_whose_schema_stands_alone(client: Client):
    tools = {tool["name"]: tool for tool in client.ask("tools/list")["result"]["tools"]}
    names = [one["operationId"] for ways in openapi()["paths"].values() for one in ways.values()]
    assert sorted(tools) == sorted(names)
    assert len(set(names)) == len(names), "two operations of one name"
    for tool in tools.values():
        text = json.dumps(tool["inputSchema"])
        assert "#/components" not in text
        for reference in {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}:
            assert reference in tool["inputSchema"]["$defs"]


def test_without_write_only_what_reads_is_offered_and_the_server_describes_itself(server: Server, token: str):
    client = Client(server, token)
    tools = client.ask("tools/list")["result"]["tools"]
    assert tools
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert client.ask("tools/call", name="create_topic", arguments={"body": {"name": "x"}})["error"]["code"] == -32602
    assert client.call("list_topics")[0]
    client.close()


def test_a_wrong_token_is_said(server: Server):
    client = Client(server, "rbx_wrong")
    assert "ROCKETBOX_TOKEN" in client.close()


def test_without_an_address_nothing_is_sent_anywhere():
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM)], env={"ROCKETBOX_TOKEN": "rbx_x"}, input="", text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "Set ROCKETBOX_URL" in done.stderr


def test_the_kept_description_makes_tools(server: Server, token: str):
    client = Client(server, token, "--openapi", str(ROOT / "docs/openapi.json"))
    assert {"list_topics", "topic_settings"} <= {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
    assert client.call("list_topics")[0]
    client.close()
