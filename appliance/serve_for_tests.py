"""The differences of `rocketbox serve --test`: a broker and name server for the tests of other programs.

It prints the content of the ready file as one line on standard output, and ends when its standard input does: the
program that started it holds that pipe, so it ends with its tests, also when they are killed. Without --data-dir its
directory is a temporary one, which is removed at the end. With `tlsMode` and no certificate it makes one of its own.

`rocketbox advertise HOST:PORT` has it tell clients another address of the broker: a container's ports are mapped only
once it runs. The command writes the wish into the directory, sends SIGHUP, and waits for the answer there.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .engine import file_sync
from .engine.host_port import join_host_port, parse_told_host, split_host_port

if TYPE_CHECKING:
    from .engine.config import EngineConfig
    from .engine.engine import Engine

logger = logging.getLogger(__name__)

ORIGIN = "--test"

#: Values of settings that are not set otherwise. Ports are picked, files are small, and nothing is refused or deleted
#: because the machine's disk is full.
DEFAULTS = {
    "roles": "broker,namesrv",
    "brokerPort": 0,
    "namesrvPort": 0,
    "store.flushDiskType": "ASYNC_FLUSH",
    "store.mappedFileSizeCommitLog": 16 << 20,
    "store.maxHashSlotNum": 10_000,
    "store.maxIndexNum": 40_000,
    "store.mappedFileSizeTimerLog": 1 << 20,
    "store.diskMaxUsedSpaceRatio": 95,
    "store.diskSpaceCleanForciblyRatio": 100,
    "store.diskSpaceWarningLevelRatio": 100,
}


def temporary_directory() -> str:
    """Return a name for a directory that does not exist yet."""
    return str(Path(tempfile.gettempdir()) / f"rocketbox-test-{secrets.token_hex(8)}")


def pair_in(directory: Path) -> tuple[Path, Path]:
    """Return the places of the certificate and the key of a server for tests."""
    return Path(os.path.abspath(directory)) / "rocketbox-test.pem", Path(
        os.path.abspath(directory)
    ) / "rocketbox-test.key"


def server_file(directory: Path) -> Path:
    """Return the place of what is said of the server: the ready file's content, the lock of its store, and what came of
    the last wish."""
    return directory / "rocketbox-test.json"


def wish_file(directory: Path) -> Path:
    return directory / "rocketbox-test.advertise"


#: Distinguishes this process from those that served the directory before, perhaps with the same pid: a wish names it.
LIFE = secrets.token_hex(8)

#: Time for the name server to take another address.
READDRESS_LIMIT_S = 10.0


def parse_told_address(text: str) -> str:
    """Return "host:port" that clients can be told. Raises ValueError, whose text follows "an address "."""
    try:
        host, port = split_host_port(text.strip())
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"must be host:port, not {text[:100]!r}")
    return join_host_port(parse_told_host(host), port)


def wait_for_end(engine: Engine, directory: Path, stop_signals: set[signal.Signals]) -> None:
    """Wait for one of the signals, which are blocked, and do meanwhile what `rocketbox advertise` wishes. A hang-up
    without a new wish of this life changes nothing."""
    while signal.sigwait({*stop_signals, signal.SIGHUP}) == signal.SIGHUP:
        if engine.broker is not None:  # an earlier server of this directory may have had one, and left a wish
            _readdress(engine, directory)


def _readdress(engine: Engine, directory: Path) -> None:
    file = server_file(directory)
    said: dict[str, object] = {}
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        wish = json.loads(wish_file(directory).read_text(encoding="utf-8"))
        if wish["life"] != LIFE or wish["number"] == said.get("wish"):
            logger.info("rocketbox: a hang-up brought no new address for clients")
            return
        address = parse_told_address(wish["address"])
        refused = "" if engine.readdress(address, READDRESS_LIMIT_S) else "the name server does not answer"
        said |= {"broker": address, "wish": wish["number"], "refused": refused}
        file_sync.publish(file, said)
        logger.info("rocketbox: clients are told broker=%s", address)
    except FileNotFoundError:
        logger.info("rocketbox: a hang-up brought no address for clients")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("rocketbox: an address for clients was not taken: %s", error)


#: A start makes another certificate when the present one has fewer days left.
_LEAST_DAYS = 7


def make_certificate(config: EngineConfig) -> None:
    """Make the pair of `pair_in` if the settings name it and it is not there yet, or ends within a week. Raises
    StartError."""
    certificate, key = pair_in(config.data_dir)
    if config.broker.tls_cert_file != str(certificate) or _lasts(certificate, key):
        return
    from .engine.tls.self_signed import make_pair

    config.data_dir.mkdir(parents=True, exist_ok=True)
    for file in (certificate, key):
        file.unlink(missing_ok=True)
    make_pair(certificate, key, list(dict.fromkeys(["localhost", "127.0.0.1", config.bind])), days=30)


def _lasts(certificate: Path, key: Path) -> bool:
    """True if the pair can be served for a week."""
    from .engine.tls.certificate import read_pair

    try:
        days = read_pair(str(certificate), str(key)).days_left_at(time.time())
    except ValueError:
        return False
    return days is None or days >= _LEAST_DAYS


class Lease:
    """Sends SIGTERM to this process when standard input ends. Bytes that arrive there are ignored."""

    def __init__(self, directory: Path | None) -> None:
        """directory: to be made, and removed at the end."""
        self._directory = directory
        if directory is not None:
            directory.mkdir(0o700)
        self._wake_in, self._wake_out = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="watch-stdin", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([0, self._wake_in], [], [])
                if self._wake_in in ready:
                    return
                if os.read(0, 4096):
                    continue
            except OSError:  # it is closed
                pass
            logger.info("rocketbox: standard input ended, and with it this server for tests")
            os.kill(os.getpid(), signal.SIGTERM)
            return

    def end(self) -> None:
        """Clean up after the engine has stopped: end the thread and remove the directory."""
        os.close(self._wake_out)
        self._thread.join()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
