"""The one global: the running Engine. `main` sets it before Django loads; pages ask for it; nobody else does."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .engine import file_sync

if TYPE_CHECKING:
    from .command_line import ServeOptions
    from .engine.engine import Engine
    from .engine.window import EngineAdmin


# Below DATA/rocketbox/: the address for clients that was chosen in the console.
ADVERTISE_FILE = "advertise"


class EngineNotRunning(RuntimeError):
    """No engine runs in this process: it starts in `rocketbox serve`, not when Django is imported."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the console lives: known before Django's settings are read, and before anything serves.

    public_url: the address people type when a reverse proxy stands before the console, as
    `https://mq.example.org/rocketbox`; None when they reach it directly.
    """

    data_dir: Path
    bind: str = "127.0.0.1"
    public_url: str | None = None

    @property
    def directory(self) -> Path:
        """What is ours and not Apache's (decision D3): the settings database and the key lie here."""
        return self.data_dir / "rocketbox"

    @property
    def base_path(self) -> str:
        """The path below which a proxy shows the console, without a slash at its end; "" for none."""
        return urlsplit(self.public_url).path.rstrip("/") if self.public_url else ""

    def saved_advertise(self) -> str | None:
        """The address for clients that was chosen in the console; anything given at start comes before it."""
        try:
            return (self.directory / ADVERTISE_FILE).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def save_advertise(self, host: str) -> None:
        """Choose it for the next start. Raises OSError."""
        file_sync.replace_file(self.directory / ADVERTISE_FILE, f"{host}\n".encode())

    def allowed_hosts(self) -> list[str]:
        """Host names the console answers to.

        On a loopback address only the names of this machine and the public one: another name would be a web page that
        resolves its own name to 127.0.0.1 to read ours. On any other address the operator decided who may come, by
        whatever name.
        """
        if not is_loopback(self.bind):
            return ["*"]
        names = ["localhost", "127.0.0.1", "[::1]"]
        public_host = urlsplit(self.public_url).hostname if self.public_url else None
        return [*names, public_host] if public_host else names


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


_place: Place | None = None
_running: Running | None = None


def set_place(place: Place) -> None:
    """Called once, before Django is loaded."""
    global _place
    _place = place


def place() -> Place:
    """Where the console lives; for Django's own command line the default data directory or ROCKETBOX_DATA_DIR."""
    if _place is None:
        return Place(Path(os.path.abspath(os.environ.get("ROCKETBOX_DATA_DIR") or "data")))
    return _place


def set_running(running: Running | None) -> None:
    """Called once after the engine started, and with None before it stops."""
    global _running
    _running = running


def running() -> Running:
    """What serves here. Raises EngineNotRunning before the start and after the stop."""
    if _running is None:
        raise EngineNotRunning("no engine runs in this process")
    return _running


def window() -> EngineAdmin:
    """The window into the engine, which is all that pages and API may use. Raises EngineNotRunning."""
    return running().engine.window


def is_loopback(host: str) -> bool:
    """Whether an address to bind to can be reached from this machine only."""
    return host == "localhost" or host.startswith("127.") or host == "::1"
