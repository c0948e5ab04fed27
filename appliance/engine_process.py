"""Starts, announces and stops the engine of this process, the same with a console and without.

Without a console `main` calls the three in order; with one gunicorn's hooks do (`http_server`).
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
from typing import TYPE_CHECKING

from . import __version__, runtime, stopping
from .command_line import ServeOptions
from .engine import file_sync, hotpath
from .engine.config import EngineConfig
from .engine.engine import Engine
from .engine.errors import StartError
from .engine.host_port import EVERYWHERE, host_of, join_host_port

if TYPE_CHECKING:
    from .engine.tls.certificate import Certificate

logger = logging.getLogger(__name__)

# Longest time from the stop signal to the end of the process; container runtimes kill after ten seconds.
STOP_LIMIT_S = 9.0


class EngineProcess:
    """Owns the engine of this process; its methods are called on the main thread, once each, in order."""

    def __init__(self, config: EngineConfig, options: ServeOptions) -> None:
        # Constant after construction.
        self.config = config
        self.options = options
        # Owned by the main thread.
        self._engine: Engine | None = None
        #: The console's certificate if it speaks HTTPS; it may be the one of the other ports.
        self.certificate: Certificate | None = None

    def start(self) -> None:
        """Start the engine; it accepts connections on return. Raises StartError with one sentence."""
        ready_file = self.options.ready_file
        if ready_file is not None:
            _withdraw(ready_file)
        own = self._own_certificate()
        engine = Engine(self.config)
        engine.start()
        self.certificate = own or engine.certificate
        if self.options.console:
            window = engine.window  # keeps the log's lines from now on
            if own is not None:
                window.watch_certificate("console_certificate", own)
        self._engine = engine

    def _own_certificate(self) -> Certificate | None:
        """Load the console's certificate, unless the engine serves the same files, and asks no client for one: browsers
        have none. Raises StartError."""
        files, broker = self.options.https, self.config.broker
        is_shared = broker.tls_mode != "disabled" and broker.tls_client_auth == "none"
        if files is None or (is_shared and files == (broker.tls_cert_file, broker.tls_key_file)):
            return None
        from .engine.tls.certificate import Certificate

        return Certificate(*files)

    def look_at_certificate(self) -> None:
        """Serve the console's certificate anew if its files have changed; the engine looks at its own. One thread."""
        if (
            self.certificate is not None
            and self._engine is not None
            and self.certificate is not self._engine.certificate
        ):
            self.certificate.look()

    def show(self, http_port: int | None) -> str | None:
        """Make the engine the one that pages see; return the console's `host:port`, None without one."""
        engine = self._engine
        assert engine is not None, "show() follows start()"
        http_address = None if http_port is None else self._http_address(engine, http_port)
        runtime.set_running(runtime.Running(engine, self.options, http_address, time.monotonic()))
        return http_address

    def announce(self, http_port: int | None, setup_path: str | None = None) -> None:
        """Announce that all roles accept connections: log line, ready file, set-up link.

        http_port: the console's, None without one. setup_path: the secret path on which the first administrator is
        made; None when there is an administrator.
        """
        http_address = self.show(http_port)
        engine = self._engine
        assert engine is not None
        settle_interpreter()
        setup_url = None if setup_path is None else self._console_url(http_address) + setup_path
        logger.info(
            "rocketbox: ready version=%s pid=%d broker=%s namesrv=%s http=%s data_dir=%s, hot path: %s",
            __version__,
            os.getpid(),
            engine.broker_address,
            engine.namesrv_address,
            http_address,
            self.config.data_dir,
            hotpath.CHOICE.text,
        )
        if setup_url is not None:
            print(
                f"Set up RocketBox here (the link works once, and until the next start):\n    {setup_url}",
                file=sys.stderr,
                flush=True,
            )
        ready = {
            "pid": os.getpid(),
            "version": __version__,
            "broker": engine.broker_address,
            "namesrv": engine.namesrv_address,
            "http": http_address,
            "setup_url": setup_url,
            "data_dir": str(self.config.data_dir),
        }
        if self.options.ready_file is not None:
            # For this user only, since it may hold the set-up link.
            file_sync.publish(self.options.ready_file, ready)
        if self.options.for_tests:
            if engine.broker is not None:
                from .serve_for_tests import LIFE, server_file

                said = ready | {"lock": str(engine.broker.store.paths.lock), "life": LIFE}
                file_sync.publish(server_file(self.config.data_dir), said)
            print(json.dumps(ready), flush=True)

    @property
    def engine(self) -> Engine:
        """The engine that runs."""
        assert self._engine is not None, "it has started"
        return self._engine

    def _console_url(self, http_address: str | None) -> str:
        return self.options.public_url or f"{'http' if self.options.https is None else 'https'}://{http_address}"

    def _http_address(self, engine: Engine, port: int) -> str:
        """Return `host:port` of the console; with the host that the engine advertises if it listens on all
        addresses."""
        host = self.options.bind
        if host in EVERYWHERE:
            host = host_of(engine.broker_address or engine.namesrv_address) or host
        return join_host_port(host, port)

    def stop(self) -> None:
        """Stop the engine, if it is running. Ends the process if that takes too long."""
        stopping.hold(self.config.data_dir)
        engine, self._engine = self._engine, None
        if engine is None:
            return
        runtime.set_running(None)
        watchdog = threading.Timer(STOP_LIMIT_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        engine.stop()
        watchdog.cancel()
        watchdog.join()
        logger.info("rocketbox: stopped pid=%d", os.getpid())


def settle_interpreter() -> None:
    """Make the interpreter's pauses rare and short from here on (decision D10).

    Objects that exist now live until the end, so the garbage collector need not look at them, not even now: some
    hundred of 50,000 are garbage, and to find them takes a tenth of the start. Young garbage is still collected; a full
    collection, which stops every thread until all objects are visited, never starts by itself.
    A thread that waits for the GIL requests it after 0.1 ms instead of 5: the I/O thread releases it in every system
    call, and has to wait that long each time another thread is computing.
    """
    gc.freeze()
    gc.set_threshold(5_000, 20, 1_000_000_000)
    sys.setswitchinterval(0.0001)


def _withdraw(ready_file: Path) -> None:
    """Remove the ready file of an earlier run, so that it is not taken for this one's. Raises StartError."""
    try:
        ready_file.unlink(missing_ok=True)
        ready_file.parent.stat()
        if not os.access(ready_file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StartError(f"The ready file {ready_file} cannot be written: {error.strerror}.") from None


def _give_up() -> None:
    names = ", ".join(
        sorted(thread.name for thread in threading.enumerate() if thread is not threading.current_thread())
    )
    logger.error("rocketbox: did not stop within %.1f s, exiting; threads still running: %s", STOP_LIMIT_S, names)
    os._exit(1)
