"""The only globals: the place of the console's data and the running engine. Set before Django serves; read by pages."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .engine import file_sync
from .engine.host_port import bracketed
from .sign_in_options import SignInOptions

if TYPE_CHECKING:
    from .command_line import ServeOptions
    from .engine.engine import Engine
    from .engine.window.window import Window


# In DATA/rocketbox/: the address for clients that was set in the console.
ADVERTISE_FILE = "advertise"


class EngineNotRunning(RuntimeError):
    """No engine runs in this process. `rocketbox serve` starts it; importing Django does not."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of the console's data, and the console's address; known before Django's settings are read.

    public_url: the console's address behind a reverse proxy, like `https://mq.example.org/rocketbox`; None without one.
    sign_in: ways to sign in besides name and password. https: the console's own port speaks TLS.
    """

    data_dir: Path
    bind: str = "127.0.0.1"
    public_url: str | None = None
    sign_in: SignInOptions = SignInOptions()
    https: bool = False

    @property
    def is_behind_proxy(self) -> bool:
        """True if the addresses of callers are in X-Forwarded-For. With TLS of its own the console may have a public
        address without a proxy, so then one is there only if its addresses are configured."""
        return self.public_url is not None and (not self.https or self.sign_in.proxy is not None)

    @property
    def is_secure(self) -> bool:
        """True if browsers reach the console by HTTPS."""
        return urlsplit(self.public_url).scheme == "https" if self.public_url else self.https

    @property
    def directory(self) -> Path:
        """The directory of RocketBox's own files (decision D3), with the console's database and its key."""
        return self.data_dir / "rocketbox"

    @property
    def base_path(self) -> str:
        """Path under which a proxy shows the console, without a slash at its end; "" for none."""
        return urlsplit(self.public_url).path.rstrip("/") if self.public_url else ""

    def saved_advertise(self) -> str | None:
        """Return the address for clients that was set in the console, None without one. One given at start wins."""
        try:
            return (self.directory / ADVERTISE_FILE).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def save_advertise(self, host: str) -> None:
        """Save the address for clients for the next start. Raises OSError."""
        file_sync.replace_file(self.directory / ADVERTISE_FILE, f"{host}\n".encode())

    def allowed_hosts(self) -> list[str]:
        """Return the host names that the console answers to.

        On a loopback address only the names of this machine, and the public one: otherwise a web page could resolve its
        own name to 127.0.0.1 and read the console. On any other address any name, since the operator has opened it.
        """
        if not is_loopback(self.bind):
            return ["*"]
        names = list(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", bracketed(self.bind)]))
        public_host = urlsplit(self.public_url).hostname if self.public_url else None
        return [*names, public_host] if public_host else names


@dataclass(frozen=True, slots=True)
class Running:
    """The engine that runs in this process, and its options. started_at_s: on the monotonic clock."""

    engine: Engine
    options: ServeOptions
    http_address: str | None
    started_at_s: float

    @property
    def broker_name(self) -> str:
        """Name of this installation."""
        return self.engine.config.broker.broker_name

    @property
    def uptime_s(self) -> float:
        """Seconds since the engine accepted its first connection."""
        return time.monotonic() - self.started_at_s


_place: Place | None = None
_running: Running | None = None


def set_place(place: Place) -> None:
    """Set the place; called once, before Django is loaded."""
    global _place
    _place = place


def place() -> Place:
    """Return the place. For Django's own command line: ROCKETBOX_DATA_DIR or the default directory."""
    if _place is None:
        return Place(Path(os.path.abspath(os.environ.get("ROCKETBOX_DATA_DIR") or "data")))
    return _place


def set_running(running: Running | None) -> None:
    """Set what runs; called once after the engine started, and with None before it stops."""
    global _running
    _running = running


def running() -> Running:
    """Return what runs here. Raises EngineNotRunning before the start and after the stop."""
    if _running is None:
        raise EngineNotRunning("no engine runs in this process")
    return _running


def window() -> Window:
    """Return the window, which is all that pages and API may use of the engine. Raises EngineNotRunning."""
    return running().engine.window


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that is bound to this host."""
    return host == "localhost" or host.startswith("127.") or host == "::1"
