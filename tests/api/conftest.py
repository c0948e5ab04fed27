"""A real engine behind the API, and callers of each role: with a token, or with a browser's session."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from appliance import runtime
from appliance.console.models import User
from appliance.console.users import tokens
from tests.console.conftest import _a_fresh_door, _pages_have_time, client_as, people, pretend_running, recorded
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

__all__ = ["_a_fresh_door", "_pages_have_time", "client_as", "people", "recorded"]

NAMES = (f"Orders-{number}" for number in itertools.count())


class Caller:
    """Speaks JSON to the API below /api/v1; every answer's body must be JSON."""

    def __init__(self, client: Client, secret: str = "") -> None:
        self.client = client
        self.secret = secret

    def ask(self, method: str, address: str, body: Any = None, **headers: str) -> Any:
        if self.secret:
            headers["authorization"] = f"Bearer {self.secret}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        data = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return self.client.generic(method, f"/api/v1{address}", headers=headers, **data)

    def get(self, address: str, **headers: str) -> Any:
        return self.ask("GET", address, **headers)

    def post(self, address: str, body: Any, **headers: str) -> Any:
        return self.ask("POST", address, body, **headers)

    def patch(self, address: str, body: Any, **headers: str) -> Any:
        return self.ask("PATCH", address, body, **headers)

    def put(self, address: str, body: Any, **headers: str) -> Any:
        return self.ask("PUT", address, body, **headers)

    def delete(self, address: str, **headers: str) -> Any:
        return self.ask("DELETE", address, **headers)


def problem_of(response: Any, status: int, code: str) -> dict[str, Any]:
    """Check the common parts of a refusal's problem details; return these."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == code
    assert problem["type"] == f"urn:rocketbox:problem:{code}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == response.headers["X-Request-Id"]
    return dict(problem)


def answer_of(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return response.json()


def encoded(name: str) -> str:
    return quote(name, safe="")


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    found = RunningEngine(shared_directory(request, "running"))
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _running(running: RunningEngine, _a_fresh_door: None) -> Iterator[None]:
    pretend_running(running.engine)
    yield
    runtime.set_running(None)
    running.hang_up()


@pytest.fixture
def by_token(people: dict[str, User]) -> Callable[..., Caller]:
    """`by_token("operator", "may_read_bodies", pattern="Orders-*")`."""

    def make(role: str, *grants: str, **options: Any) -> Caller:
        owner = people[role]
        User.objects.filter(pk=owner.pk).update(**dict.fromkeys(grants, True))
        owner.refresh_from_db()
        _, secret = tokens.create(owner, "a token", role, **dict.fromkeys(grants, True), **options)
        return Caller(Client(), secret)

    return make


@pytest.fixture
def viewer(by_token: Callable[..., Caller]) -> Caller:
    return by_token("viewer")


@pytest.fixture
def operator(by_token: Callable[..., Caller]) -> Caller:
    return by_token("operator")


@pytest.fixture
def admin(by_token: Callable[..., Caller]) -> Caller:
    return by_token("admin")


@pytest.fixture
def topic(running: RunningEngine) -> str:
    """A topic of four queues that no other test uses, without messages."""
    name = next(NAMES)
    running.window.topic_commands.create(name, read_queues=4, write_queues=4)
    return name
