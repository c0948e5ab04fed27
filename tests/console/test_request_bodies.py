"""The size of body that each address takes. Over real sockets: tests/test_http_bounds.py."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from appliance import request_bodies
from appliance.api.api import operations
from appliance.console.serving.turns import Turns
from appliance.request_bodies import TAKES, RequestBodies

from .test_access import PAGES, PATTERNS, address_of

BODY = {"type": "http.request", "more_body": True}


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "route"), PAGES, ids=[name for name, _ in PAGES])
def test_a_page_takes_a_body_when_it_takes_a_post(client_as, engine, name, route):
    if name in ("setup", "setup_administrator", "setup_address", "setup_message", "setup_message_count"):
        assert (name in TAKES) == (name != "setup_message_count"), "they are gone once the set-up is done"
        return
    status = client_as("admin", "may_read_bodies", "may_export").post(address_of(route)).status_code
    # The addresses for machines ignore the method.
    takes = status != 405 and name not in ("healthz", "readyz", "metrics", "static_file", "nsaddr", "nsaddr_unit")
    assert (name in TAKES) == takes, f"POST {route} answered {status}"


def test_an_operation_of_the_api_has_a_line_when_it_changes_something():
    listed = {key for key in TAKES if " " in key}
    assert listed == {f"{one.method} {one.route}" for one in operations() if one.method != "GET"}


def test_the_table_names_only_what_exists():
    names = {name for name, _ in PATTERNS}
    assert not [key for key in TAKES if " " not in key and key not in names]


class Asked:
    """One request to RequestBodies; what the application behind it got, and what was answered."""

    def __init__(self, bodies: RequestBodies, path: str, pieces: list[bytes], method: str = "POST") -> None:
        self.scope = {
            "type": "http", "method": method, "path": path, "query_string": b"", "root_path": "",
            "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
        }  # fmt: skip
        self._bodies = bodies
        self._pieces = list(pieces)
        self.answered: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self._pieces:
            return {"type": "http.request", "body": b"", "more_body": False}
        return BODY | {"body": self._pieces.pop(0)}

    async def send(self, message: Any) -> None:
        self.answered.append(message)

    async def ask(self) -> None:
        await self._bodies(self.scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return int(self.answered[0]["status"])


class Application:
    """Keeps bodies until it is let go."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        self.bodies.append(message["body"])
        await self.go_on.wait()


@pytest.fixture
def broker_takes(monkeypatch):
    """`broker_takes(bytes)`: maxMessageSize."""

    def take(size: int) -> None:
        window = SimpleNamespace(max_message_bytes=lambda: size)
        monkeypatch.setattr(request_bodies.runtime, "window", lambda: window)

    return take


def test_large_bodies_of_all_together_are_bounded_and_small_ones_still_come(monkeypatch, broker_takes):
    broker_takes(1 << 20)
    monkeypatch.setattr(request_bodies, "HELD_BYTES", 500_000)
    monkeypatch.setattr(request_bodies, "_is_admitted", lambda scope, match: True)

    async def run() -> None:
        application = Application()
        bodies = RequestBodies(Turns(application))
        first = Asked(bodies, "/messages/send/", [b"x" * 100_000] * 4)
        second = Asked(bodies, "/messages/send/", [b"y" * 100_000] * 2)
        small = Asked(bodies, "/login/", [b"z" * 10_000])
        task = asyncio.create_task(first.ask())
        while not application.bodies:
            assert not task.done(), "it broke off"
            await asyncio.sleep(0.001)
        await asyncio.wait_for(second.ask(), 60)
        assert second.status == 503
        others = asyncio.create_task(small.ask())
        application.go_on.set()
        await asyncio.gather(task, others)
        assert application.bodies == [b"x" * 400_000, b"z" * 10_000]
        again = Asked(bodies, "/messages/send/", [b"y" * 100_000] * 2)
        await again.ask()
        assert application.bodies[-1] == b"y" * 200_000, "what the first one held was given back"

    asyncio.run(run())


def test_who_may_not_send_is_not_listened_to_beyond_a_form(monkeypatch, broker_takes):
    broker_takes(1 << 20)
    monkeypatch.setattr(request_bodies, "_is_admitted", lambda scope, match: False)

    async def run() -> None:
        application = Application()
        application.go_on.set()
        asked = Asked(RequestBodies(Turns(application)), "/messages/send/", [b"x" * 10_000] * 100)
        await asked.ask()
        assert application.bodies == [b""], "answered as without a body"
        assert len(asked._pieces) > 90, "the rest was not asked for"

    asyncio.run(run())


def test_who_loses_the_right_to_send_is_not_listened_to_any_longer(monkeypatch, broker_takes):
    broker_takes(1 << 20)
    may = iter([True, True, False])
    monkeypatch.setattr(request_bodies, "_is_admitted", lambda scope, match: next(may))
    monkeypatch.setattr(request_bodies, "ASK_EVERY_S", 0)

    async def run() -> None:
        application = Application()
        application.go_on.set()
        bodies = RequestBodies(Turns(application))
        asked = Asked(bodies, "/messages/send/", [b"x" * 100_000] * 10)
        await asked.ask()
        assert application.bodies == [b""], "answered as without a body"
        assert len(asked._pieces) == 7, "the rest was not asked for"
        assert not bodies._held

    asyncio.run(run())


def test_the_largest_send_follows_the_brokers_own_bound(broker_takes):
    broker_takes(16 << 20)
    assert request_bodies.largest_send() == 3 * (16 << 20) + request_bodies.FORM
    assert request_bodies.largest_send() <= request_bodies.HELD_BYTES
