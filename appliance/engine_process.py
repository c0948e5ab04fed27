"""The engine's life inside one process, the same with and without a console around it.

Start, announce, stop: `main` calls them in order when there is no console, gunicorn's hooks do when there is one.
"""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from . import __version__, runtime
from .command_line import ServeOptions
from .engine import file_sync
from .engine.config import EngineConfig
from .engine.engine import Engine
from .engine.errors import StartError
from .engine.host_port import EVERYWHERE, host_of, join_host_port

logger = logging.getLogger(__name__)

# From the signal to the end; container runtimes kill after ten seconds.
STOP_LIMIT_S = 9.0


class EngineProcess:
    """Owns the engine of this process; its methods are called on the main thread, once each, in order."""

    def __init__(self, config: EngineConfig, options: ServeOptions) -> None:
        # Constant after construction.
        self.config = config
        self.options = options
        # Owned by the main thread.
        self._engine: Engine | None = None

    def start(self) -> None:
        """Start the engine; it accepts connections afterwards. Raises StartError with one sentence."""
        ready_file = self.options.ready_file
        if ready_file is not None:
            _withdraw(ready_file)
        engine = Engine(self.config)
        engine.start()
        self._engine = engine

    def announce(self, http_port: int | None, setup_path: str | None = None) -> None:
        """Tell everyone that all roles accept connections.

        http_port: the console's, None when there is none. setup_path: where the first administrator is made, with its
        secret; None when there is one already.
        """
        engine = self._engine
        assert engine is not None, "announce() follows start()"
        http_address = None if http_port is None else self._http_address(engine, http_port)
        runtime.set_running(runtime.Running(engine, self.options, http_address, time.monotonic()))
        settle_interpreter()
        setup_url = None if setup_path is None else self._console_url(http_address) + setup_path
        logger.info(
            "rocketbox: ready version=%s pid=%d broker=%s namesrv=%s http=%s data_dir=%s",
            __version__,
            os.getpid(),
            engine.broker_address,
            engine.namesrv_address,
            http_address,
            self.config.data_dir,
        )
        if setup_url is not None:
            print(
                "Set up RocketBox here; the link is good until it was used, and until the next start:\n"
                f"    {setup_url}",
                file=sys.stderr,
                flush=True,
            )
        if self.options.ready_file is not None:
            _publish(
                self.options.ready_file,
                {
                    "pid": os.getpid(),
                    "version": __version__,
                    "broker": engine.broker_address,
                    "namesrv": engine.namesrv_address,
                    "http": http_address,
                    "setup_url": setup_url,
                    "data_dir": str(self.config.data_dir),
                },
            )

    def _console_url(self, http_address: str | None) -> str:
        return self.options.public_url or f"http://{http_address}"

    def _http_address(self, engine: Engine, port: int) -> str:
        """`host:port` that reaches the console: where it listens everywhere, the host that the engine advertises."""
        host = self.options.bind
        if host in EVERYWHERE:
            host = host_of(engine.broker_address or engine.namesrv_address) or host
        return join_host_port(host, port)

    def stop(self) -> None:
        """Stop the engine; nothing happens when it is not running. Ends the process when that takes too long."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        runtime.set_running(None)
        watchdog = threading.Timer(STOP_LIMIT_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        engine.stop()
        watchdog.cancel()
        logger.info("rocketbox: stopped pid=%d", os.getpid())


def settle_interpreter() -> None:
    """Make pauses rare and short from here on (decision D10).

    What exists now lives until the end, so it leaves the collector's sight. Young garbage is still collected; a full
    collection, which would stop every thread for as long as it takes to walk all objects, never starts by itself.
    A thread that waits for the interpreter asks for it after 0.1 ms instead of 5: the I/O thread gives it up in every
    system call, and loses so much each time that somebody else computes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 1_000_000_000)
    sys.setswitchinterval(0.0001)


def _withdraw(ready_file: Path) -> None:
    """Remove what an earlier run left, so that nobody takes it for this one."""
    try:
        ready_file.unlink(missing_ok=True)
        ready_file.parent.stat()
        if not os.access(ready_file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StartError(f"The ready file {ready_file} cannot be written: {error.strerror}.") from None


def _publish(ready_file: Path, content: dict[str, object]) -> None:
    """Put it in place whole, for this user only: it may hold the set-up link. A link of that name is replaced, not
    followed."""
    file_sync.replace_file(ready_file, f"{json.dumps(content)}\n".encode(), durable=False)


def _give_up() -> None:
    names = ", ".join(
        sorted(thread.name for thread in threading.enumerate() if thread is not threading.current_thread())
    )
    logger.error("rocketbox: not stopped within %.1f s, ending anyway; threads still alive: %s", STOP_LIMIT_S, names)
    os._exit(1)
