"""The command `rocketbox`. `serve`: read settings, start the engine, wait for a signal; with a console, in gunicorn.

Everything is imported only when it is needed: without a console neither Django nor gunicorn is loaded, and the first
send must be answered 0.4 s after exec.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import __version__
from .engine.errors import RocketBoxError, StartError
from .engine.plain_text import plain

if TYPE_CHECKING:
    from .command_line import ServeOptions
    from .engine.config import EngineConfig

USAGE = """\
usage: rocketbox serve [options]     run the broker, the name server and the console
       rocketbox serve --help        the options
       rocketbox openapi             print the REST API's description (OpenAPI 3.1)
       rocketbox user reset-password NAME [--data-dir DIR]
       rocketbox audit check|accept [--data-dir DIR]     check the audit log for tampering
       rocketbox certificate make|show     make a self-signed certificate for TLS, or show one
       rocketbox health [options]    is the server with these options ready?
       rocketbox doctor [options]    check the whole installation, and say what to do
       rocketbox store inspect|verify|export DIR     read a store without a broker
       rocketbox topic|group|client|message|dlq|retry|delayed|transaction VERB [--json]
       rocketbox need|alert|audit|report|ha|user|wire-user|policy|token|system|config|job VERB [--json]
                                     what the console does, from a shell; NOUN --help
       rocketbox backup TARGET [options]     copy the data directory, running or not; --check one
       rocketbox restore BACKUP --into DIR   make a data directory of a backup
       rocketbox bundle FILE.zip [options]   for support: diagnostics without secrets or messages
       rocketbox advertise HOST:PORT [--data-dir DIR]     what a server of `serve --test` tells clients
       rocketbox --version"""

# Commands that call a running server; the rows of `console/acts` have them.
REMOTE = (
    "topic", "group", "client", "message", "dlq", "retry", "delayed", "transaction", "need", "alert", "audit", "report",
    "ha", "user", "wire-user", "policy", "token", "system", "config", "job",
)  # fmt: skip
# Verbs of the same nouns that need no server.
_BESIDE = {"user": ("reset-password",), "audit": ("check", "accept")}

_SMALL = ("user", "audit", "certificate", "health", "doctor", "store", "backup", "restore", "bundle", "advertise")

# Large libraries that the broker does not need: other libraries, like sqlite-utils, import them if they are installed.
FOR_REPORTS_ALONE = ("numpy", "pandas", "pyarrow", "pyspark")

# Exit status of a start that is refused, and of a wrong command line.
EXIT_REFUSED = 2

# Longest time from the engine's end to the end of the process.
EXIT_LIMIT_S = 0.3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status. A refusal is one sentence on stderr, and status 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    if command in ("--version", "-V", "version"):
        print(f"rocketbox {__version__}")
        return 0
    if command in ("--help", "-h", "help"):
        print(USAGE)
        return 0
    if command == "make-reports":  # how the console of the one-file program starts a run
        from spark_reports.run.__main__ import main as make_reports

        return make_reports(arguments[1:])
    if command == "openapi":
        return _openapi()
    if command in REMOTE and not set(_BESIDE.get(command, ())) & set(arguments[1:2]):
        return _run_small("remote.run", arguments[1:], command)
    if command in _SMALL:
        return _run_small(command, arguments[1:])
    if command != "serve":
        print(f"rocketbox: there is no command {command!r}.\n{USAGE}" if command else USAGE, file=sys.stderr)
        return EXIT_REFUSED
    if {"--help", "-h"} & set(arguments[1:]):
        from .command_line import help_text

        print(help_text())
        return 0
    try:
        return serve(arguments[1:])
    except RocketBoxError as error:
        _say(error)
        return EXIT_REFUSED


def _say(error: RocketBoxError) -> None:
    print(f"rocketbox: {plain(str(error))}", file=sys.stderr)


def serve(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status. Raises StartError."""
    # Objects made while the engine loads stay: collecting garbage meanwhile takes a tenth of the start and frees
    # nothing. `settle_interpreter` sets the threshold for what comes then.
    gc.set_threshold(100_000)
    from .command_line import load

    config, options = load(arguments, os.environ)
    _start_logging(config, options)
    for name in FOR_REPORTS_ALONE:
        sys.modules[name] = None  # type: ignore[assignment]
    from .stopping import wait_for_earlier

    if not wait_for_earlier(config.data_dir, config.store_dir / "lock" if "broker" in config.roles else None):
        return 0
    if options.console:
        _check_installed("gunicorn", "django")
        from .http_server import serve_with_console

        return serve_with_console(config, options)

    from .engine_process import EngineProcess

    # The engine's threads inherit the mask, so the two signals wait for sigwait below, also while the engine starts.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, {*stop_signals, signal.SIGHUP} if options.for_tests else stop_signals)
    ignore_signals()
    process = EngineProcess(config, options)
    lease = None
    if options.for_tests:
        from .serve_for_tests import Lease, make_certificate

        lease = Lease(options.own_directory)
    try:
        if lease is not None:
            make_certificate(config)
        process.start()
    except RocketBoxError:
        if lease is not None:
            lease.end()
        raise
    process.announce(http_port=None)
    if lease is None:
        signal.sigwait(stop_signals)
    else:
        from .serve_for_tests import wait_for_end

        wait_for_end(process.engine, process.config.data_dir, stop_signals)
    process.stop()
    if lease is not None:
        lease.end()
    leave_soon(0)
    return 0


def _run_small(command: str, arguments: Sequence[str], *first: str) -> int:
    import logging
    from importlib import import_module

    from .engine.log_lines import write_to_stderr

    try:
        if command in ("user", "audit"):
            _check_installed("django")
        # For warnings of the code that reads the store; they contain names that others chose.
        write_to_stderr(logging.WARNING, "rocketbox: %(message)s")
        status: int = import_module(f".commands.{command}", __package__).run(*first, arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_REFUSED
    except RocketBoxError as error:
        _say(error)
        return EXIT_REFUSED


def _openapi() -> int:
    try:
        _check_installed("django", "ninja")
    except StartError as error:
        _say(error)
        return EXIT_REFUSED
    from .api.openapi_command import print_openapi

    return print_openapi()


def _check_installed(*packages: str) -> None:
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise StartError(
                f"The console needs the package {package}: install rocketbox[console], or leave console out of --roles."
            )


def ignore_signals() -> None:
    """Ignore HUP, TTIN, TTOU, USR1 and USR2, which make other servers reload or add processes (D12)."""
    for number in (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def leave_soon(status: int) -> None:
    """Have the process end with this status when its last thread that matters has ended, and in EXIT_LIMIT_S at the
    latest: threads of requests that were cut off may wait for a closed loop. Called last; the engine has stopped.

    It ends without the interpreter's own shutdown: a thread that hangs in the kernel and returns during that is ended
    by the C library, which aborts the process if it has no libgcc_s, as with the one-file program.
    """
    timer = threading.Timer(EXIT_LIMIT_S, os._exit, [status])
    timer.daemon = True
    timer.start()
    # Called when all threads but daemons have ended.
    atexit.register(_leave, status, timer)


def _leave(status: int, timer: threading.Timer) -> None:
    import logging

    timer.cancel()
    timer.join()
    left = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
    if left:
        logging.getLogger(__name__).warning("rocketbox: threads still running at the end: %s", ", ".join(left))
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # its reader has gone
            pass
    os._exit(status)


def _start_logging(config: EngineConfig, options: ServeOptions) -> None:
    import logging

    from .engine.log_lines import write_to_stderr
    from .runtime import is_loopback

    write_to_stderr(logging.INFO)
    logger = logging.getLogger(__name__)
    for notice in options.notices:
        logger.warning("%s", notice)
    if not is_loopback(config.bind):
        logger.warning("%s Keep these ports behind a firewall.", what_strangers_can_do(config))


_ADMINISTRATION = {
    "loopback": "Administration (topics, groups, settings, offset resets) is accepted over 127.0.0.1 only.",
    "all": "--wire-admin all lets them administer, too: delete topics and groups, change settings, reset offsets.",
    "off": "Administration over these ports is off.",
}


def what_strangers_can_do(config: EngineConfig) -> str:
    """Return the warning for when other machines can connect. Ports that are picked at start have no number yet."""
    broker = [config.broker_port, config.broker_port - 2] if "broker" in config.roles else []
    ports = [*broker, *([config.namesrv_port] if "namesrv" in config.roles else [])]
    numbers = ", ".join(str(port) for port in ports if port > 0)
    can = []
    if broker:
        can += ["send to every topic and make new ones", "read every message", "move every group's offsets"]
        can += ["take queues from ordered consumers"]
    if "namesrv" in config.roles:
        can += ["register or unregister brokers under any name, and so lead clients to their own"]
    return (
        f"Listening on {config.bind}: other machines can reach {f'ports {numbers}' if numbers else 'its ports'}, which "
        f"need no password yet. Whoever reaches them can {'; '.join(can)}. {_ADMINISTRATION[config.wire_admin]}"
    )


if __name__ == "__main__":
    sys.exit(main())
