"""The console's HTTP server: gunicorn's arbiter and one ASGI worker, which runs the engine, too.

    rocketbox serve (arbiter: binds HTTP, waits)
    └── worker       the engine's threads, then Django on an asyncio loop (`http_worker`); its pid owns the store

The worker is the broker. So there is exactly one, and it is never replaced: that would restart the broker silently. The
two processes end together: when the worker ends the arbiter exits with its status, and when the arbiter dies the kernel
sends the worker a signal (decision D12).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker

from .c_memory import give_memory_back
from .command_line import ServeOptions
from .engine.config import EngineConfig
from .engine.errors import RocketBoxError, StartError
from .engine.host_port import join_host_port
from .engine.log_lines import LineFormatter
from .engine.own_files import make_directory
from .engine.plain_text import plain
from .main import EXIT_LIMIT_S, EXIT_REFUSED, ignore_signals, leave_soon
from .runtime import Place, set_place
from .stopping import hold

if TYPE_CHECKING:
    from .engine.service_thread import ServiceThread
    from .engine_process import EngineProcess
    from .http_worker import EngineWorker

logger = logging.getLogger(__name__)

# Time that connections have to finish after SIGTERM, before the engine stops.
GRACEFUL_TIMEOUT_S = 3
# Longest wait of the arbiter for the worker: for connections, then for engine.stop(), which gives up after 9 s.
WORKER_STOP_LIMIT_S = 9.4
# A request line (addresses hold cursors) and a header field. The most that gunicorn allows.
LINE_BYTES = 8190
# Header fields of one request; browsers send some twenty.
HEADER_FIELDS = 64
# Time that a connection without a request stays open; live pages send one every second.
KEEPALIVE_S = 2
# Browsers send single words through a WebSocket.
SOCKET_MESSAGE_BYTES = 1024

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


def serve_with_console(config: EngineConfig, options: ServeOptions) -> int:
    """Run arbiter and worker until one of them ends. Raises StartError before the fork."""
    listener = _listen(options)
    ConsoleServer(config, options, listener).run()
    return 0  # not reached: the arbiter and the worker leave by SystemExit


def _listen(options: ServeOptions) -> socket.socket:
    """Return the HTTP socket. Bound here and not by gunicorn, which would retry for 5 s with a log line each time."""
    try:
        family = socket.AF_INET6 if ":" in options.bind else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.bind, options.http_port))
        listener.listen(128)
    except OSError as error:
        where = join_host_port(options.bind, options.http_port)
        raise StartError(f"The console cannot listen on {where}: {error.strerror or error}.") from None
    return listener


class ConsoleServer(BaseApplication):
    """gunicorn's application: its settings, and the hooks that start and stop the engine."""

    def __init__(self, config: EngineConfig, options: ServeOptions, listener: socket.socket) -> None:
        # Constant after construction.
        self.http_port: int = listener.getsockname()[1]
        self._listener_fd = listener.detach()  # gunicorn makes its own socket object from it
        self.data_dir = config.data_dir
        self._config = config
        self._options = options
        # Owned by the worker's main thread. None in the arbiter, which does not import the engine.
        self.process: EngineProcess | None = None
        # The path on which the first administrator is made; None when there is one.
        self.setup_path: str | None = None
        # The console's own threads, beside those of requests.
        self._threads: list[ServiceThread] = []
        self._place = Place(
            config.data_dir, options.bind, options.public_url, options.sign_in, https=options.https is not None
        )
        super().__init__()

    def load_config(self) -> None:
        settings: dict[str, Any] = {
            "bind": [f"fd://{self._listener_fd}"],
            "workers": 1,
            "worker_class": Booting,
            "preload_app": False,
            "max_requests": 0,
            # Off: gunicorn would kill a worker that is silent for longer, and so the broker because a page is slow.
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
            "websocket_max_message_size": SOCKET_MESSAGE_BYTES,
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
        """Load Django in the worker, when the engine runs."""
        set_place(self._place)
        try:
            make_directory(self._place.directory)
            from .asgi import application
            from .console.serving.threads import threads
            from .console.start import prepare

            self.setup_path = prepare(os.environ)
            if self._options.definitions is not None and self.process is not None:
                from .console.start import take_definitions

                self.process.show(self.http_port)
                take_definitions(self._options.definitions)
            for thread in threads(self._place.directory):
                thread.start()
                self._threads.append(thread)
        except (RocketBoxError, OSError) as error:
            text = error if isinstance(error, RocketBoxError) else f"The console cannot use its directory: {error}."
            print(f"rocketbox: {plain(str(text))}", file=sys.stderr, flush=True)
            sys.exit(EXIT_REFUSED)
        return application

    def run(self) -> None:
        gc.freeze()  # the worker's collections then neither visit nor copy what the arbiter has loaded
        EngineArbiter(self).run()

    def _post_fork(self, _arbiter: Arbiter, worker: Booting) -> None:
        """Start the engine in the new worker, before Django is imported."""
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
        gc.freeze()  # the engine's objects stay, too
        if not worker.alive:
            sys.exit(0)

    def _worker_exit(self, _arbiter: Arbiter, _worker: Booting) -> None:
        ended = sys.exc_info()[1]
        for thread in self._threads:
            thread.request_stop()
        if self.process is not None:
            self.process.stop()
        for thread in self._threads:
            thread.stop(EXIT_LIMIT_S)
        leave_soon(status_of(ended))


class LineLogger(Logger):
    """gunicorn's log, in the form of RocketBox's."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(LineFormatter())


class EngineArbiter(Arbiter):
    """gunicorn's arbiter, for one worker that is never replaced."""

    def __init__(self, app: ConsoleServer) -> None:
        super().__init__(app)
        # Owned by the main thread. Exit status of the worker, 128 + n when signal n killed it; None while it runs.
        self._worker_status: int | None = None

    def manage_workers(self) -> None:
        if self.worker_age == 0:
            self.spawn_worker()
        elif not self.WORKERS:
            raise HaltServer("the worker ended", self._worker_status or 0)

    def reap_workers(self) -> None:
        """Collect children that ended; also those of other processes, which a process 1 inherits, as in a container."""
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
                logger.error("rocketbox: the engine's process was killed by %s pid=%d", signal.Signals(-code).name, pid)

    def stop(self, graceful: bool = True) -> None:
        """End the worker by SIGTERM, and by SIGKILL if that takes too long."""
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
        """Do nothing: there is no reload, no second worker, no second arbiter, no log file to reopen."""

    handle_hup = handle_ttin = handle_ttou = handle_usr1 = handle_usr2 = handle_winch = _ignore


class Booting(Worker):
    """The arbiter's view of its worker, and the receiver of its signals. The worker itself is made after the fork, so
    that the arbiter, which only waits, loads neither asyncio nor the code that serves: 6 MB.

    gunicorn handles signals on the asyncio loop. But the engine starts before there is a loop and stops after it is
    closed; a signal at such a time would be lost, or would kill. Two signals are normal: a service manager signals both
    processes, and the arbiter passes its own on. So one handler is installed from the fork to the end.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._made_of = args
        # Owned by the main thread. _signal: the stop signal that arrived last.
        self.alive: bool = True
        self._signal: int | None = None
        self._made: EngineWorker | None = None

    def take_signals(self) -> None:
        """Replace the arbiter's signal handlers, which the fork has copied."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self._stop_signal)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ignore_signals()

    def _stop_signal(self, number: int, _frame: object) -> None:
        self.alive = False
        self._signal = number
        hold(self.app.data_dir)  # before connections have their time to finish
        if self._made is not None:
            self._made.stop_soon(number)

    def init_process(self) -> None:
        from .http_worker import EngineWorker

        made = self._made = EngineWorker(*self._made_of)
        made.pid = self.pid
        if self._signal is not None:
            made.stop_soon(self._signal)
        try:
            made.init_process()
        finally:
            self.booted = made.booted  # for gunicorn's exit status


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGINT, the quick stop, when the parent dies; exit at once when it already has.

    Without prctl the serving loop notices within a second.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(0)


def status_of(ended: BaseException | None) -> int:
    """Return the exit status of a process that this exception ends."""
    if isinstance(ended, SystemExit):
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return int(ended is not None)
