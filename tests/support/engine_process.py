"""A whole engine in a process of its own, whose window a test asks by name: for what only a dead process shows.

    engine = EngineProcess(tmp_path / "data", store={"flush_disk_type": "SYNC_FLUSH"})
    engine.start()
    engine.do("letters", group="G", count=20_000)
    engine.do("replay_commands.start", group="G", rate=10_000)       # what the window has, as JSON has it
    engine.kill()                                            # SIGKILL
    engine.start()
    assert engine.stop() == 0                                # SIGTERM

Lines of JSON go in and come out. The process dies with the thread that started it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from tests.support.peer import Peer

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The window's error, as its class and text."""


class EngineProcess:
    """`options`: as tests.support.engine.start_engine takes them."""

    def __init__(
        self,
        data_dir: Path,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.broker = ""
        #: So far its wall clock is before the machine's, from its next start on.
        self.ahead_s = 0
        self._environment = dict(environment or {})
        self._prefix = prefix
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it serves. Raises Refused with what it last said when it does not start."""
        given = [str(self.data_dir), json.dumps(self._options), str(self.ahead_s)]
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", __name__, *given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=_environment() | self._environment,
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        self.broker = self._answer()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def do(self, what: str, **arguments: Any) -> Any:
        """A method of the window, or `letters`, `act`, `decide`. Raises Refused."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise Refused("\n".join(self.said().splitlines()[-30:]))
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def peer(self) -> Peer:
        return Peer(self.broker)

    def said(self) -> str:
        """Its log, of all its lives."""
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._end(signal.SIGKILL)

    def kill_it(self) -> None:
        """SIGKILL, from another thread: who waits for an answer gets Refused."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> int:
        """SIGTERM; its exit code. Raises TimeoutExpired when it hangs."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()

    def __enter__(self) -> EngineProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}


# --- in the process


def _set_clock(ahead_s: int) -> None:
    """The machine was off for so long, as its parts see it."""
    from appliance.engine.clock import Clock

    wall_ms = Clock.wall_ms
    Clock.wall_ms = lambda self: wall_ms(self) + ahead_s * 1000  # type: ignore[method-assign]


def _run(data_dir: Path, options: dict[str, Any]) -> None:
    from appliance.engine.window.transactions.snapshots import HalfPlace
    from appliance.engine.window.waiting.snapshots import WaitingPlace
    from tests.support.dead_letters import make_group, put_dead_letters
    from tests.support.engine import RunningEngine

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    running = RunningEngine(data_dir, **options)

    def letters(group: str, count: int, **more: str) -> None:
        make_group(running, group)
        put_dead_letters(running, group, count, **more)

    def ended(*_: object) -> None:
        running.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, ended)

    def act(places: list[dict[str, Any]], **arguments: Any) -> Any:
        return running.window.waiting_commands.run(places=[WaitingPlace(**place) for place in places], **arguments)

    def decide(places: list[dict[str, Any]], **arguments: Any) -> Any:
        return running.window.transaction_commands.act(places=[HalfPlace(**place) for place in places], **arguments)

    own = {"letters": letters, "act": act, "decide": decide}
    out = sys.stdout
    print(json.dumps({"result": running.engine.broker_address}), file=out, flush=True)
    for line in sys.stdin:
        what, arguments = json.loads(line)
        try:
            result = (own.get(what) or attrgetter(what)(running.window))(**arguments)
            text = msgspec.json.encode({"result": result}).decode()
        except Exception as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"})
        print(text, file=out, flush=True)


if __name__ == "__main__":
    if sys.argv[3] != "0":
        _set_clock(int(sys.argv[3]))
    _run(Path(sys.argv[1]), json.loads(sys.argv[2]))
