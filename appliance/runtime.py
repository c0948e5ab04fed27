"""The one global: the running Engine. `main` sets it before Django loads; pages ask for it; nobody else does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .command_line import ServeOptions
    from .engine.engine import Engine


class EngineNotRunning(RuntimeError):
    """No engine runs in this process: it starts in `rocketbox serve`, not when Django is imported."""


@dataclass(frozen=True, slots=True)
class Running:
    """What serves in this process. started_at_s is on the monotonic clock."""

    engine: Engine
    options: ServeOptions
    http_address: str | None
    started_at_s: float

    @property
    def uptime_s(self) -> float:
        """Seconds since the engine accepted its first connection."""
        return time.monotonic() - self.started_at_s


_running: Running | None = None


def set_running(running: Running | None) -> None:
    """Called once after the engine started, and with None before it stops."""
    global _running
    _running = running


def running() -> Running:
    """What serves here. Raises EngineNotRunning before the start and after the stop."""
    if _running is None:
        raise EngineNotRunning("no engine runs in this process")
    return _running


def is_loopback(host: str) -> bool:
    """Whether an address to bind to can be reached from this machine only."""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def allowed_hosts() -> list[str]:
    """Host names the console answers to.

    On a loopback address only the names of this machine: another name would be a web page that resolves its own name
    to 127.0.0.1 to read ours. On any other address the operator decided who may come, by whatever name.
    """
    if _running is None or is_loopback(_running.options.bind):
        return ["localhost", "127.0.0.1", "[::1]"]
    return ["*"]
