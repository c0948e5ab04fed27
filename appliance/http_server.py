"""The console's HTTP server: gunicorn's arbiter over one worker of its own ASGI kind, and the engine inside the worker.

    rocketbox serve (arbiter: binds HTTP, waits)
    └── worker       engine threads, then Django on an asyncio loop; its pid owns the store

The worker is the broker. So there is one, it is never replaced (a new one would be a silent restart of the broker),
and the two end together: a worker that ends takes the arbiter along with its exit status, and an arbiter that dies
takes the worker along through the kernel's parent-death signal (decision D12).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.workers.gasgi import ASGIWorker

from .command_line import ServeOptions
from .engine.config import EngineConfig
from .engine.errors import RocketBoxError, StartError
from .engine.host_port import join_host_port
from .engine.log_lines import LineFormatter
from .engine.own_files import make_directory
from .engine.plain_text import plain
from .http_connections import BoundedProtocol, Connections, connections
from .main import EXIT_REFUSED, ignore_signals
from .runtime import Place, set_place

if TYPE_CHECKING:
    from .engine_process import EngineProcess

logger = logging.getLogger(__name__)

# Connections get this long to finish after SIGTERM, before the engine stops.
GRACEFUL_TIMEOUT_S = 3
# The arbiter waits this long for the worker: connections, then engine.stop(), which ends itself after 9 s at most.
WORKER_STOP_LIMIT_S = 9.4
# From the engine's end to the process's: what the interpreter has to clear away.
EXIT_LIMIT_S = 0.3
# A request line (addresses hold cursors) and a header field; the most gunicorn allows.
LINE_BYTES = 8190
# Header fields of a request; browsers send some twenty.
HEADER_FIELDS = 64
# A connection on which nothing is asked is closed after so long; live pages ask every second.
KEEPALIVE_S = 2
# The API is imported so long after the start, beside the first pages and sends.
LOAD_REST_S = 2.0

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


def serve_with_console(config: EngineConfig, options: ServeOptions) -> int:
    """Run arbiter and worker until one of them ends; returns the exit status. Raises StartError before the fork."""
    listener = _listen(options)
    ConsoleServer(config, options, listener).run()
    return 0  # not reached: the arbiter and the worker leave by SystemExit


def _listen(options: ServeOptions) -> socket.socket:
    """The HTTP socket. Bound here and not by gunicorn, which would retry for 5 s and say so in many lines."""
    try:
        family = socket.AF_INET6 if ":" in options.bind else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.bind, options.http_port))
        listener.listen(128)
    except OSError as error:
        where = join_host_port(options.bind, options.http_port)
        raise StartError(f"The console cannot listen on {where}: {os.strerror(error.errno or 0)}.") from None
    return listener


class ConsoleServer(BaseApplication):
    """gunicorn's application: its settings, and the hooks between which the engine lives."""

    def __init__(self, config: EngineConfig, options: ServeOptions, listener: socket.socket) -> None:
        # Constant after construction.
        self.http_port: int = listener.getsockname()[1]
        self._listener_fd = listener.detach()  # gunicorn makes a socket of its own from it
        self._config = config
        self._options = options
        # Owned by the worker's main thread; there is none in the arbiter, which need not know the engine's code.
        self.process: EngineProcess | None = None
        # Where the first administrator is made; None when there is one.
        self.setup_path: str | None = None
        self._place = Place(config.data_dir, options.bind, options.public_url)
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": [f"fd://{self._listener_fd}"],
            "workers": 1,
            "worker_class": EngineWorker,
            "preload_app": False,
            "max_requests": 0,
            # gunicorn would kill a worker that is silent for `timeout`: our broker, because of a long call in a page.
            "timeout": 0,
            "graceful_timeout": GRACEFUL_TIMEOUT_S,
            "control_socket_disable": True,
            "asgi_loop": "asyncio",
            "asgi_lifespan": "off",
            "http_protocols": "h1",
            "http_parser": "python",
            "limit_request_line": LINE_BYTES,
            "limit_request_fields": HEADER_FIELDS,
            "limit_request_field_size": LINE_BYTES,
            "keepalive": KEEPALIVE_S,
            "accesslog": None,
            "loglevel": "warning",
            "logger_class": LineLogger,
            "proc_name": "rocketbox",
            "post_fork": self._post_fork,
            "worker_exit": self._worker_exit,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Django, loaded in the worker when the engine runs, on its settings database."""
        set_place(self._place)
        try:
            make_directory(self._place.directory)
            from .asgi import application
            from .console.start import prepare
            from .console.wire_entries import Follower

            self.setup_path = prepare(os.environ)
            Follower().start()
        except (RocketBoxError, OSError) as error:
            said = error if isinstance(error, RocketBoxError) else f"The console cannot use its directory: {error}."
            print(f"rocketbox: {plain(str(said))}", file=sys.stderr, flush=True)
            sys.exit(EXIT_REFUSED)
        return application

    def run(self) -> None:
        EngineArbiter(self).run()

    def _post_fork(self, _arbiter: Arbiter, worker: EngineWorker) -> None:
        """Start the engine in the new worker, before anything of Django is imported."""
        worker.take_signals()
        die_with_parent(worker.ppid)
        give_memory_back()
        from .engine_process import EngineProcess

        self.process = EngineProcess(self._config, self._options)
        try:
            self.process.start()
        except RocketBoxError as error:
            print(f"rocketbox: {plain(str(error))}", file=sys.stderr, flush=True)
            sys.exit(EXIT_REFUSED)
        if not worker.alive:
            sys.exit(0)

    def _worker_exit(self, _arbiter: Arbiter, _worker: EngineWorker) -> None:
        if self.process is not None:
            self.process.stop()
        leave_soon()


class LineLogger(Logger):
    """gunicorn's log, written as the rest of ours."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(LineFormatter())


class EngineArbiter(Arbiter):
    """gunicorn's arbiter for a worker that exists once."""

    def __init__(self, app: ConsoleServer) -> None:
        super().__init__(app)
        # Owned by the main thread. Exit status of the worker, 128 + n when signal n ended it; None while it runs.
        self._worker_status: int | None = None

    def manage_workers(self) -> None:
        if self.worker_age == 0:
            self.spawn_worker()
        elif not self.WORKERS:
            raise HaltServer("the worker ended", self._worker_status or 0)

    def reap_workers(self) -> None:
        """Collect ended children; strays too, for whoever runs as process 1 inherits them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self.WORKERS.pop(pid, None)
            if worker is None:
                continue
            worker.tmp.close()
            code = os.waitstatus_to_exitcode(status)
            self._worker_status = code if code >= 0 else 128 - code
            if code < 0:
                logger.error("rocketbox: the engine's process was ended by %s pid=%d", signal.Signals(-code).name, pid)

    def stop(self, graceful: bool = True) -> None:
        """End the worker: SIGTERM, and SIGKILL when it does not leave in time."""
        from gunicorn import sock

        sock.close_sockets(self.LISTENERS, False)
        self.LISTENERS: list[Any] = []
        self._signal_worker(signal.SIGTERM)
        deadline = time.monotonic() + WORKER_STOP_LIMIT_S
        while self.WORKERS and time.monotonic() < deadline:
            self.reap_workers()
            time.sleep(0.02)
        if self.WORKERS:
            logger.error("rocketbox: the engine's process did not stop within %.1f s, killing it", WORKER_STOP_LIMIT_S)
            self._signal_worker(signal.SIGKILL)
            time.sleep(0.1)
            self.reap_workers()

    def _signal_worker(self, number: int) -> None:
        for pid in list(self.WORKERS):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        self.stop()
        sys.exit(exit_status or self._worker_status or 0)

    def handle_int(self) -> None:
        raise StopIteration

    def handle_quit(self) -> None:
        raise StopIteration

    def _ignore(self) -> None:
        """No reload, no second worker, no second arbiter, no log files to reopen."""

    handle_hup = handle_ttin = handle_ttou = handle_usr1 = handle_usr2 = handle_winch = _ignore


class EngineWorker(ASGIWorker):
    """gunicorn's ASGI worker that announces itself, stops without delay, and survives a second stop signal.

    gunicorn would leave signals to the asyncio loop. But the engine starts before there is a loop and stops after it
    is closed, and then a signal would be lost or would kill: a service manager signals arbiter and worker, and the
    arbiter passes its signal on. So one handler is there from the fork to the end.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Owned by the main thread.
        self.alive: bool = True
        self._serving: asyncio.Task[Any] | None = None
        self._shutting_down = False
        # Made when serving begins: the engine has raised the limit of descriptors by then.
        self._connections: Connections

    def take_signals(self) -> None:
        """Install the handlers, instead of the arbiter's that the fork left here."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self._stop_signal)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ignore_signals()

    def init_signals(self) -> None:
        """Nothing: take_signals() came before the engine."""

    def _stop_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGTERM:
            self._quick_shutdown = True
        if self.alive:
            self.alive = False
            if self._serving is not None:
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Cut the serving loop's sleep of up to a second short: it takes a cancellation as the end of its loop."""
        if self._serving is not None and self.servers and not self._shutting_down:
            self._serving.cancel()

    async def _serve(self) -> None:
        """gunicorn's serving loop, with connections of ours."""
        self._serving = asyncio.current_task()
        tasks = [asyncio.create_task(self._announce()), asyncio.create_task(self._load_rest())]
        self._connections = connections()
        try:
            for listener in self.sockets:
                server = await self.loop.create_server(
                    lambda: BoundedProtocol(self, self._connections), sock=listener.sock
                )
                self.servers.append(server)
            await self._wait_for_the_end()
            await self._shutdown()
        finally:
            for task in tasks:
                task.cancel()
            self._serving = None  # the loop closes next

    async def _wait_for_the_end(self) -> None:
        try:
            while self.alive and self.ppid == os.getppid():
                self.notify()
                await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            pass  # `_wake`

    async def _announce(self) -> None:
        while not self.servers:
            await asyncio.sleep(0.001)
        if self.alive:
            self.app.process.announce(self.app.http_port, self.app.setup_path)

    async def _load_rest(self) -> None:
        """Import what the start did without: whoever calls the API first would wait, and all live pages with them."""
        await asyncio.sleep(LOAD_REST_S)
        await self.loop.run_in_executor(None, import_module, "appliance.api.urls")

    async def _shutdown(self) -> None:
        self._shutting_down = True
        for server in self.servers:
            server.close()
        self._connections.close_waiting()
        await super()._shutdown()


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGINT, the quick stop, when the parent dies; leave at once when it already has.

    Where there is no prctl the serving loop notices by itself within a second.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(0)


def leave_soon() -> None:
    """End the process though threads of requests that were cut off wait for a closed loop: the interpreter would
    wait for them, for ever. Called last, in the worker; the engine has stopped."""
    ended = sys.exc_info()[1]
    status = ended.code if isinstance(ended, SystemExit) and isinstance(ended.code, int) else 0
    timer = threading.Timer(EXIT_LIMIT_S, os._exit, [status])
    timer.daemon = True
    timer.start()


def give_memory_back() -> None:
    """Have the C library return large blocks to the kernel; before the first thread.

    glibc learns from a freed block of 16 MiB, which checking a password takes, to keep as much for the next one: 17 MB
    for ever. With limits of our own it does not learn. Other C libraries have no such call, and need none.
    """
    arena_max, mmap_threshold, trim_threshold = -8, -3, -1  # malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(mmap_threshold, 8 << 20)
    mallopt(trim_threshold, 8 << 20)
    mallopt(arena_max, 2)
