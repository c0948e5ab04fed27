"""`rocketbox serve` as processes: which starts which, which ends with which, what signals do. The engine is a fake."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import serve_for_tests, stopping
from appliance.engine.engine import Engine
from appliance.http_server import status_of
from tests.support.server import is_running
from tests.support.waiting import ends, wait_for

PROGRAM = Path(__file__).parent / "support" / "serve_with_fake_engine.py"
ROOT = Path(__file__).parents[1]


class Served:
    """One started program, its ready file and the fake engine's log."""

    def __init__(self, directory: Path, roles: str, *arguments: str, engine: str = "") -> None:
        self.directory = directory
        self.ready_file = directory / "ready.json"
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(PROGRAM), "serve", "--roles", roles, "--http-port", "0"),
                *("--data-dir", str(directory / "data"), "--ready-file", str(self.ready_file), *arguments),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "FAKE_ENGINE": engine,
                "FAKE_ENGINE_LOG": str(directory / "engine.log"),
            },
        )

    def ready(self) -> dict:
        wait_for(self.ready_file.exists, "the ready file")
        return json.loads(self.ready_file.read_text())

    def steps(self) -> list[str]:
        log = self.directory / "engine.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def engine_pids(self) -> set[int]:
        return {int(line.split()[1]) for line in (self.directory / "engine.log").read_text().splitlines()}

    def let_stop(self) -> None:
        """Let an engine that is held stop."""
        (self.directory / "engine.log.go").touch()

    def waits(self) -> None:
        """Return when it has said that it waits for the end of another one."""

        def said() -> None:
            while "is still stopping; waiting for its end" not in (line := self.process.stderr.readline()):
                assert line, "it ended"

        ends(said, "it does not wait")

    def end(self, limit_s: float = 60) -> tuple[int, str]:
        """Wait for the end; return the exit status and everything on stderr, which the last process closes."""
        _, stderr = self.process.communicate(timeout=limit_s)
        return self.process.returncode, stderr

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.ready()["http"], timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


@pytest.fixture
def serve(tmp_path) -> Iterator:
    started: list[Served] = []

    def start(roles: str, *arguments: str, engine: str = "", directory: Path = tmp_path) -> Served:
        started.append(Served(directory, roles, *arguments, engine=engine))
        return started[-1]

    yield start
    for served in started:
        pids = {served.process.pid}
        if (served.directory / "engine.log").exists():
            pids |= served.engine_pids()
        for pid in pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        served.process.communicate()


def test_without_the_console_there_is_one_process_and_neither_django_nor_gunicorn(serve, tmp_path):
    served = serve("broker,namesrv")
    ready = served.ready()
    assert ready == {
        "pid": served.process.pid,
        "version": "0.1.0",
        "broker": "127.0.0.1:10911",
        "namesrv": None,
        "http": None,
        "setup_url": None,
        "data_dir": str(tmp_path / "data"),
    }
    served.process.terminate()
    assert served.end()[0] == 0
    assert served.steps() == ["starting", "started", "stopped"]
    assert "django=True" not in (tmp_path / "engine.log").read_text()
    assert "gunicorn=True" not in (tmp_path / "engine.log").read_text()


def test_with_the_console_the_worker_owns_the_store_and_starts_it_before_django(serve, tmp_path):
    served = serve("broker,console")
    ready = served.ready()
    assert ready["pid"] != served.process.pid
    assert served.engine_pids() == {ready["pid"]}
    assert (tmp_path / "engine.log").read_text().splitlines()[1].endswith("django=False gunicorn=True")
    assert served.get("/healthz") == (200, b"ok\n")


@pytest.mark.parametrize("target", ["arbiter", "worker"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_reaches_the_engine_and_both_processes_end_with_status_0(serve, target, number):
    served = serve("broker,console")
    pid = {"arbiter": served.process.pid, "worker": served.ready()["pid"]}[target]
    os.kill(pid, number)
    status, stderr = served.end()
    assert (status, served.steps()) == (0, ["starting", "started", "stopped"])
    assert "ERROR" not in stderr
    assert "still running" not in stderr, "the console's own threads are ended, too"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_engine_alone_stops_on_both_signals(serve, number):
    served = serve("broker")
    served.ready()
    served.process.send_signal(number)
    assert served.end()[0] == 0
    assert served.steps()[-1] == "stopped"


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
def test_a_thread_that_does_not_end_is_named_and_harms_nobody(serve, roles):
    served = serve(roles, engine="stuck-thread")
    served.ready()
    served.process.terminate()
    status, stderr = served.end()
    assert (status, served.steps()[-1]) == (0, "stopped")
    assert "threads still running at the end: stuck\n" in stderr


def test_a_process_ends_without_the_interpreters_own_end_and_waits_for_no_thread():
    source = (
        "import sys, threading\n"
        "from appliance.main import leave_soon\n"
        "class Last:\n"
        "    def __del__(self):\n"
        "        print('the interpreter cleans up')\n"
        "last = Last()\n"
        "if 'wait' in sys.argv:\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "print('what was said before')\n"
        "leave_soon(3)\n"
        "sys.exit(4)\n"
    )
    for arguments in [], ["wait"]:
        command = [sys.executable, "-c", source, *arguments]
        done = subprocess.run(command, cwd=ROOT, timeout=60, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (3, "what was said before\n")


@pytest.mark.parametrize(
    ("ended", "status"),
    [(None, 0), (SystemExit(), 0), (SystemExit(3), 3), (SystemExit("why"), 1), (KeyboardInterrupt(), 1)],
)
def test_the_status_is_that_of_the_exception_that_ends_the_process(ended, status):
    assert status_of(ended) == status


def test_an_idle_connection_does_not_hold_up_the_stop(serve):
    served = serve("broker,console")
    host, port = served.ready()["http"].split(":")
    with socket.create_connection((host, int(port))):
        served.process.terminate()
        assert served.end()[0] == 0
    assert served.steps()[-1] == "stopped"


def test_an_engine_that_takes_its_time_is_waited_for(serve):
    served = serve("broker,console", engine="slow-stop")
    served.ready()
    served.process.terminate()
    assert served.end()[0] == 0
    assert served.steps()[-1] == "stopped"


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_more_stop_signals_do_not_cut_the_stop_short(serve, roles, number):
    # A service manager signals every process of the unit, and an operator presses Ctrl-C again.
    served = serve(roles, engine="slow-stop")
    worker = served.ready()["pid"]
    for pid in {served.process.pid, worker}:
        os.kill(pid, number)
    for _ in range(8):
        time.sleep(0.1)
        for pid in {served.process.pid, worker}:
            with contextlib.suppress(ProcessLookupError):  # a slow machine may be through with it
                os.kill(pid, number)
    assert served.end()[0] == 0
    assert served.steps() == ["starting", "started", "stopped"]


def test_an_engine_that_never_stops_is_ended_within_ten_seconds_and_said_so(serve, tmp_path):
    both = []
    for roles in ("broker", "broker,console"):
        directory = tmp_path / roles
        directory.mkdir()
        both.append(serve(roles, engine="stuck-stop", directory=directory))
    workers = [served.ready()["pid"] for served in both]
    begin = time.monotonic()
    for served in both:
        served.process.terminate()
    for served, worker in zip(both, workers, strict=True):
        status, stderr = served.end()
        assert time.monotonic() - begin > 8.5
        assert status == 1
        assert "did not stop within 9.0 s" in stderr
        assert not is_running(worker)


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
def test_a_stop_during_the_start_is_not_lost(serve, roles):
    served = serve(roles, engine="slow-start")
    wait_for(served.steps, "the engine's start")
    served.process.terminate()
    assert served.end()[0] == 0
    assert served.steps() == ["starting", "started", "stopped"]


def test_when_the_worker_dies_the_arbiter_ends_with_its_status_and_starts_no_other(serve):
    served = serve("broker,console")
    os.kill(served.ready()["pid"], signal.SIGKILL)
    status, stderr = served.end()
    assert status == 128 + signal.SIGKILL
    assert "killed by SIGKILL" in stderr
    assert served.steps() == ["starting", "started"]


def test_when_the_arbiter_dies_the_worker_stops_the_engine_within_two_seconds(serve):
    served = serve("broker,console")
    worker = served.ready()["pid"]
    served.process.kill()
    wait_for(lambda: not is_running(worker), "the worker's end")
    assert served.steps() == ["starting", "started", "stopped"]


def test_a_start_waits_for_the_worker_of_an_arbiter_that_was_killed(serve):
    served = serve("broker,console", engine="held-stop")
    served.ready()
    served.process.kill()
    served.ready_file.unlink()
    again = serve("broker,console")
    again.waits()
    served.let_stop()
    again.ready()
    assert again.steps() == ["starting", "started", "stopped", "starting", "started"]
    again.process.terminate()
    status, stderr = again.end()
    assert status == 0
    assert "is still stopping" not in stderr, "it is said once"


def test_a_start_waits_for_a_server_that_was_told_to_stop(serve, tmp_path):
    (tmp_path / "data").mkdir()
    served = serve("broker", engine="slow-stop")
    served.ready()
    served.process.terminate()
    served.ready_file.unlink()
    again = serve("broker")
    again.ready()
    assert again.steps() == ["starting", "started", "stopped", "starting", "started"]
    assert served.end()[0] == 0


def test_a_start_that_waits_can_be_stopped(serve):
    served = serve("broker,console", engine="held-stop")
    served.ready()
    served.process.kill()
    again = serve("broker")
    again.waits()
    again.process.terminate()
    status, stderr = again.end()
    assert (status, "before it served" in stderr) == (0, True)
    assert served.steps().count("started") == 1


def test_a_start_that_looks_hides_no_stop_and_shows_none(monkeypatch, tmp_path):
    """What another process does between the steps of a look."""
    close, seen = os.close, []
    monkeypatch.setattr(stopping, "_held", None)

    def meanwhile(fd):
        monkeypatch.setattr(os, "close", close)
        seen.append(stopping.is_held(tmp_path))
        stopping.hold(tmp_path)
        close(fd)

    monkeypatch.setattr(os, "close", meanwhile)
    assert not stopping.is_held(tmp_path)
    assert seen == [False]
    assert stopping.is_held(tmp_path)
    os.close(stopping._held)
    assert not stopping.is_held(tmp_path)


def test_a_server_that_runs_is_not_waited_for(serve, tmp_path, caplog):
    served = serve("broker,console")
    served.ready()
    stopping.wait_for_earlier(tmp_path / "data", None)
    assert "is still stopping" not in caplog.text


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
def test_signals_that_reload_other_servers_do_nothing(serve, roles):
    served = serve(roles)
    worker = served.ready()["pid"]
    for number in (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
        for pid in {served.process.pid, worker}:
            os.kill(pid, number)
    time.sleep(1.2)  # longer than a turn of gunicorn's loop, which would act now
    assert served.process.poll() is None
    assert served.steps() == ["starting", "started"]
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    assert children == ([str(worker)] if "console" in roles else [])
    if "console" in roles:
        assert served.get("/readyz") == (200, b'{"status": "ok", "checks": {"store": "ok"}}')
    served.process.terminate()
    assert served.end()[0] == 0


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
def test_a_refused_start_is_one_sentence_and_status_2(serve, roles):
    served = serve(roles, engine="refuse")
    assert served.end() == (2, "rocketbox: The broker port 10911 is taken.\n")
    assert not served.ready_file.exists()


@pytest.mark.parametrize("roles", ["broker", "broker,console"])
def test_a_mistake_of_ours_in_the_start_ends_the_process(serve, roles):
    served = serve(roles, engine="crash")
    status, stderr = served.end()
    assert status != 0
    assert "a mistake of ours" in stderr
    assert served.steps() == ["starting"]


def test_a_taken_http_port_is_refused_in_one_sentence(serve):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        served = serve("broker,console", "--http-port", str(port))
        assert served.end() == (
            2,
            f"rocketbox: The console cannot listen on 127.0.0.1:{port}: Address already in use.\n",
        )
    assert served.steps() == []


def test_a_wrong_setting_is_refused_in_one_sentence(serve):
    served = serve("console")
    assert served.end() == (2, "rocketbox: The console does not run alone: add broker or namesrv to --roles.\n")


@pytest.mark.parametrize("package", ["gunicorn", "django"])
def test_a_console_whose_packages_are_not_installed_is_refused_in_one_sentence(tmp_path, package):
    program = f"import sys; sys.modules[{package!r}] = None; from appliance.main import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, "serve", "--data-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"rocketbox: The console needs the package {package}")
    assert result.stderr.count("\n") == 1


def test_an_old_ready_file_is_gone_before_the_engine_starts(serve, tmp_path):
    (tmp_path / "ready.json").write_text("old")
    served = serve("broker", engine="refuse")
    assert served.end()[0] == 2
    assert not served.ready_file.exists()


def test_a_ready_file_that_cannot_be_written_is_refused_before_the_engine_starts(serve, tmp_path):
    path = tmp_path / "absent" / "ready.json"
    status, stderr = serve("broker", "--ready-file", str(path)).end()
    assert (status, stderr) == (2, f"rocketbox: The ready file {path} cannot be written: No such file or directory.\n")


def test_an_address_open_to_others_is_warned_about(serve):
    served = serve("broker", "--bind", "0.0.0.0")
    served.ready()
    served.process.terminate()
    warnings = [line for line in served.end()[1].splitlines() if " WARNING " in line and "need no password" in line]
    assert len(warnings) == 1
    assert "Whoever reaches them can send to every topic" in warnings[0]
    assert "Keep these ports behind a firewall." in warnings[0]


def test_a_loopback_address_is_not_warned_about(serve):
    served = serve("broker", "--bind", "127.0.0.2")
    served.ready()
    served.process.terminate()
    assert "password" not in served.end()[1]


def test_a_console_that_listens_everywhere_is_announced_under_the_advertised_host(serve):
    served = serve("broker,console", "--bind", "0.0.0.0")
    host, port = served.ready()["http"].split(":")
    assert host == served.ready()["broker"].split(":")[0] == "127.0.0.1"
    assert int(port) > 0
    assert served.get("/healthz")[0] == 200


def test_a_hang_up_does_not_end_a_server_for_tests_that_has_no_broker(monkeypatch, tmp_path):
    """An earlier server of its directory had one."""
    serve_for_tests.server_file(tmp_path).write_text("{}")
    serve_for_tests.wish_file(tmp_path).write_text('{"address": "host:1", "number": 1}')
    engine = Engine.__new__(Engine)
    monkeypatch.setattr(Engine, "broker", None, raising=False)
    signals = [signal.SIGTERM, signal.SIGHUP]
    monkeypatch.setattr(signal, "sigwait", lambda _: signals.pop())
    serve_for_tests.wait_for_end(engine, tmp_path, {signal.SIGTERM})
    assert not signals


WISH = {"address": "mapped.example:7", "number": 3, "life": serve_for_tests.LIFE}


@pytest.mark.parametrize(
    ("wish", "taken"),
    [
        (None, []),
        ("{", []),
        ("[]", []),
        (json.dumps(WISH), ["mapped.example:7"]),
        (json.dumps(WISH | {"life": "earlier"}), []),
        (json.dumps({name: WISH[name] for name in ("address", "number")}), []),
        (json.dumps(WISH | {"number": 2}), []),
        (json.dumps(WISH | {"address": "nowhere"}), []),
    ],
    ids=["none", "cut", "no-object", "new", "of-an-earlier-life", "of-no-life", "taken-before", "no-address"],
)
def test_a_hang_up_of_a_server_for_tests_does_what_was_newly_wished_and_else_nothing(
    monkeypatch, tmp_path, wish, taken
):
    file = serve_for_tests.server_file(tmp_path)
    file.write_text(json.dumps({"broker": "127.0.0.1:1", "wish": 2}))
    if wish is not None:
        serve_for_tests.wish_file(tmp_path).write_text(wish)
    told = []
    engine = Engine.__new__(Engine)
    monkeypatch.setattr(Engine, "broker", object(), raising=False)
    monkeypatch.setattr(Engine, "readdress", lambda _, address, seconds: told.append(address) or True)
    signals = [signal.SIGTERM, signal.SIGHUP, signal.SIGHUP]
    monkeypatch.setattr(signal, "sigwait", lambda _: signals.pop())
    serve_for_tests.wait_for_end(engine, tmp_path, {signal.SIGTERM})
    assert (told, signals) == (taken, []), "the second hang-up repeats nothing"
    said = json.loads(file.read_text())
    assert said["broker"] == (taken[0] if taken else "127.0.0.1:1")
