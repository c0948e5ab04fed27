"""A running engine for pages, without an engine."""

import time

import pytest

from appliance import runtime
from appliance.command_line import ServeOptions


class FakeAdmin:
    def __init__(self) -> None:
        self.numbers: dict[str, float] = {"messages_in_total": 12, "parked_polls": 3, "disk_used_ratio": 0.25}

    def metrics(self) -> dict[str, float]:
        return dict(self.numbers)


class FakeEngine:
    """Has the parts of Engine that pages look at; tests change them."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.broker_address: str | None = "10.0.0.5:10911"
        self.namesrv_address: str | None = "10.0.0.5:9876"
        self.checks: dict[str, dict[str, object]] = {
            "store": {"ok": True, "detail": "/var/lib/rocketbox is writable"},
            "broker": {"ok": True, "detail": "accepts connections"},
        }

    def health(self) -> dict[str, dict[str, object]]:
        return dict(self.checks)


@pytest.fixture
def serve():
    """Make `serve(bind=...)` of a fake engine the running one; returns the engine."""

    def start(bind: str = "127.0.0.1", up_s: float = 0) -> FakeEngine:
        engine = FakeEngine()
        options = ServeOptions(console=True, bind=bind, http_port=8080, ready_file=None, notices=())
        runtime.set_running(runtime.Running(engine, options, "10.0.0.5:8080", time.monotonic() - up_s))  # type: ignore[arg-type]
        return engine

    yield start
    runtime.set_running(None)


@pytest.fixture
def engine(serve):
    return serve()
