"""The one-file program on a bare machine: no environment, an empty directory, no Python to be found."""

import http.client
import http.cookies
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from tests.support.directories import shared_directory
from tests.support.peer import Peer, send_fields
from tests.support.ports import reserve_port
from tests.support.server import LOG_FILE_BYTES, ROOMY, is_running
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[1]
MEGABYTE = 1_000_000
PASSWORD = "a good long password"
#: Environment in which the program finds no other programs, and makes small stores.
BARE = {"PATH": "/nonexistent", LOG_FILE_BYTES: str(8 << 20), **ROOMY}
ANY_PORTS = ["--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]


def sources() -> Iterator[Path]:
    for top in ("appliance", "spark_reports", "templates", "static", "binary", "requirements"):
        yield from (
            path
            for path in (ROOT / top).rglob("*")
            if "__pycache__" not in path.parts and "_compiled." not in path.name
        )
    yield ROOT / "appliance/engine/hotpath/_compiled.pyx"
    yield ROOT / "setup.py"


@pytest.fixture(scope="module")
def program(request) -> Path:
    """A copy of dist/rocketbox in a directory of its own; built first if it is older than its sources."""
    built = ROOT / "dist" / "rocketbox"
    newest = max(path.stat().st_mtime for path in sources() if path.is_file())
    if not built.exists() or built.stat().st_mtime < newest:
        # The same command as in script/binary when .venv is in place.
        subprocess.run([sys.executable, ROOT / "binary" / "build.py", built], cwd=ROOT, check=True, timeout=300)
    copy = shared_directory(request, "opt") / "rocketbox"
    shutil.copy(built, copy)
    return copy


class Running:
    """`rocketbox serve` from the one file, in an empty directory."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str], seen_as: str = "") -> None:
        """seen_as: the directory's name inside the program, if the program sees another root."""
        self.directory = directory
        self.ready_file = directory / "ready.json"
        self.errors = directory / "stderr"
        seen = seen_as or str(directory)
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [*command, "serve", *ANY_PORTS, "--data-dir", f"{seen}/data", "--ready-file", f"{seen}/ready.json"],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def ready(self) -> dict:
        def there() -> bool:
            assert self.process.poll() is None, self.said()
            return self.ready_file.exists()

        wait_for(there, "the ready file")
        return json.loads(self.ready_file.read_text())

    def said(self) -> str:
        return self.errors.read_text()

    def processes(self) -> list[int]:
        """Return the ids of this process and of all below it."""
        found = [self.process.pid]
        for pid in found:
            try:
                found += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            except OSError:
                pass
        return found

    def end(self) -> None:
        for pid in reversed(self.processes()):
            if self.process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def serve(program, tmp_path) -> Iterator:
    started: list[Running] = []

    def start(command: list[str] | None = None, seen_as: str = "", **environment: str) -> Running:
        directory = tmp_path / f"run{len(started)}"
        directory.mkdir()
        started.append(Running(command or [str(program)], directory, {**BARE, **environment}, seen_as))
        return started[-1]

    yield start
    for running in started:
        running.end()


def rocketbox(program: Path, *arguments: str, status: int = 0) -> str:
    """Run a command; return its output, or its stderr if `status` is a failure."""
    done = subprocess.run([program, *arguments], env=BARE, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


class Browser:
    """A client of the console that keeps cookies and fills in forms."""

    def __init__(self, address: str, language: str = "en") -> None:
        self._language = language
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._cookies: dict[str, str] = {}

    def page(self, path: str) -> tuple[int, bytes]:
        return self._ask("GET", path, None)

    def fill_in(self, path: str, **fields: str) -> tuple[int, bytes]:
        found = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', self.page(path)[1])
        assert found, f"{path} has no form"
        body = urllib.parse.urlencode({"csrfmiddlewaretoken": found[1].decode(), **fields})
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        headers = {"Accept-Language": self._language, "Content-Type": "application/x-www-form-urlencoded"}
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self._connection.request(method, path, body, {**headers, "Cookie": cookies})
        response = self._connection.getresponse()
        for line in response.headers.get_all("Set-Cookie") or []:
            self._cookies |= {name: morsel.value for name, morsel in http.cookies.SimpleCookie(line).items()}
        return response.status, response.read()


def test_it_is_small_and_does_not_say_where_it_was_built(program):
    assert program.stat().st_size < 79 * MEGABYTE  # 12 of them are cryptography's
    content = program.read_bytes()
    assert b"rocketbox's places are: " in content
    for place in (ROOT, Path(sys.prefix)):
        assert str(place).encode() not in content, place


def test_it_serves_messages_and_pages_and_leaves_nothing_behind(serve, program, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    running = serve(TMPDIR=str(temporary), ADMIN_USER="root", ADMIN_PASSWORD=PASSWORD)
    ready = running.ready()
    peer = Peer(ready["broker"])
    assert peer.ask(310, send_fields("Hello"), b"the first message").code == 0
    packed = {1 << 8: lz4.frame.compress, 2 << 8: zstandard.compress, 3 << 8: zlib.compress}
    for kind, compress in packed.items():
        assert peer.ask(310, send_fields("Hello", f=kind | 1), compress(b"compressed")).code == 0
    peer.close()

    assert len(running.processes()) == 2, "an arbiter and a worker"
    maps = Path(f"/proc/{ready['pid']}/maps").read_text()
    assert "/memfd:appliance.engine.hotpath._compiled" in maps
    assert ".pyenv" not in maps
    assert "dist-packages" not in maps
    assert not list(temporary.iterdir()), "nothing is unpacked"

    browser = Browser(ready["http"])
    static = sorted(path for path in (ROOT / "static").rglob("*") if path.is_file())
    assert static
    for path in static:
        assert browser.page(f"/{path.relative_to(ROOT)}") == (200, path.read_bytes())
    chinese = Browser(ready["http"], "zh-CN")
    assert "登录" in chinese.page("/login/")[1].decode()
    # Django's own texts, too.
    assert "这个字段是必填项" in chinese.fill_in("/login/", username="", password="")[1].decode()
    assert browser.fill_in("/login/", username="root", password=PASSWORD)[0] == 302
    pages = ["", "topics/", "topics/Hello/", "create/topic/", "groups/", "create/group/", "clients/", "messages/"]
    pages += ["messages/?topic=Hello", "messages/send/", "search/?q=Hello", "account/", "api/v1/docs"]
    pages += [f"system/{name}" for name in ("", "checks/", "config/", "log/", "audit/", "tokens/", "users/new/")]
    for page in pages:
        status, content = browser.page(f"/{page}")
        assert status == 200, (page, content)
    assert json.loads(browser.page("/api/v1/openapi.json")[1])["openapi"].startswith("3.1")
    lines = rocketbox(program, "store", "export", str(running.directory / "data"), "--topic", "Hello", "--decompress")
    assert [json.loads(line)["body"] for line in lines.splitlines()] == [
        "the first message",
        *("compressed" for _ in packed),
    ]
    port = ready["http"].rpartition(":")[2]
    assert rocketbox(program, "health", "--http-port", port) == "ready\n"

    pids = running.processes()
    running.process.terminate()
    assert running.process.wait(60) == 0, running.said()
    assert not [pid for pid in pids if is_running(pid)]
    assert "Traceback" not in running.said()
    assert str(ROOT) not in running.said()
    assert not list(temporary.iterdir())
    assert sorted(path.name for path in program.parent.iterdir()) == ["rocketbox"]

    data = str(running.directory / "data")
    assert "4 records in" in rocketbox(program, "store", "verify", data)
    assert "Hello" in rocketbox(program, "store", "inspect", data)
    doctor = rocketbox(program, "doctor", "--data-dir", data, *ANY_PORTS)
    assert "The hot path is compiled." in doctor
    assert " 0 failed" in doctor
    assert "The audit log is whole" in rocketbox(program, "audit", "check", "--data-dir", data)
    assert "not ready" in rocketbox(program, "health", "--http-port", port, status=1)


def test_a_setup_page_is_served_while_there_is_no_administrator(serve):
    ready = serve().ready()
    status, page = Browser(ready["http"]).page(ready["setup_url"].partition(ready["http"])[2])
    assert status == 200
    assert "选择语言" in page.decode()


def test_it_asks_a_sign_in_provider_whom_it_could_trust(serve):
    """Certificates are a file of a package, which OpenSSL opens by its path: without it no request is sent at all."""
    nobody = f"https://127.0.0.1:{reserve_port()}"
    running = serve(
        ADMIN_USER="root", ADMIN_PASSWORD=PASSWORD, ROCKETBOX_PUBLIC_URL="https://mq.example.org",
        ROCKETBOX_CONSOLE_OIDC_ISSUER=nobody, ROCKETBOX_CONSOLE_OIDC_CLIENT_ID="rocketbox",
    )  # fmt: skip
    status, _ = Browser(running.ready()["http"]).page("/login/oidc/")
    assert status == 503
    assert "Connection refused" in running.said()


def test_every_other_command_works(program):
    assert rocketbox(program, "--version").startswith("rocketbox ")
    assert "--broker-port" in rocketbox(program, "serve", "--help")
    described = json.loads(rocketbox(program, "openapi"))
    assert described == json.loads((ROOT / "docs" / "openapi.json").read_text())
    for arguments in (["nonsense"], ["user", "reset-password", "nobody", "--data-dir", "/nonexistent"]):
        assert "Traceback" not in rocketbox(program, *arguments, status=2)


def test_nothing_outside_is_imported(program, tmp_path):
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "encodings.py").write_text("raise SystemExit('the wrong module')")
    environment = {**BARE, "PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "PYTHONSTARTUP": str(tmp_path)}
    done = subprocess.run([program, "doctor"], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "wrong module" not in done.stdout + done.stderr
    assert "ok    packages" in done.stdout


def test_a_server_goes_on_when_its_file_is_replaced(serve, program, tmp_path):
    own = tmp_path / "rocketbox"
    shutil.copy(program, own)
    running = serve([str(own)])
    ready = running.ready()
    (tmp_path / "new").write_text("another version")
    (tmp_path / "new").rename(own)
    # These modules and pages were not needed before.
    assert Browser(ready["http"]).page("/login/")[0] == 200
    assert Browser(ready["http"]).page("/api/v1/openapi.json")[0] == 401
    running.process.terminate()
    assert running.process.wait(60) == 0
    assert "Traceback" not in running.said()


def test_a_worker_that_is_killed_ends_the_program_with_its_status(serve):
    running = serve()
    os.kill(running.ready()["pid"], signal.SIGKILL)
    assert running.process.wait(60) == 128 + signal.SIGKILL


def test_a_worker_does_not_outlive_the_program(serve):
    running = serve()
    worker = running.ready()["pid"]
    assert worker != running.process.pid
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not is_running(worker), "the worker's end")
    assert "engine: stopped" in running.said()


#: Runs a command with its own mounts and processes; for other users than root, in a user namespace, which that takes.
ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"] + ([] if os.getuid() == 0 else ["--map-root-user"])


@pytest.fixture(scope="module")
def alone() -> list[str]:
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody have mounts of their own")
    return [shutil.which("unshare") or "", *ALONE[1:]]


#: Makes the directory $1 the root of a machine where little is allowed.
BARE_ROOT = """
mount --bind "$1" "$1"
mount --bind "$1/run" "$1/run"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o noexec,nosuid tmpfs "$1/tmp"
mount -o remount,bind,ro "$1"
"""


def test_it_serves_where_there_is_nothing_but_a_c_library(serve, program, alone, tmp_path):
    """A root directory with this file and the C library, read-only, /tmp noexec: no Python, no shell, no /etc. There it
    is process 1, as in a container."""
    root = tmp_path / "root"
    for name in ("proc", "dev", "tmp", "run"):
        (root / name).mkdir(parents=True)
    shutil.copy(program, root / "rocketbox")
    libraries = re.findall(r"(/\S+/lib(?:c|m)\.so\.6|/\S*/ld-linux\S+)", ldd(program))
    places = {str(Path(path).parent) for path in libraries if "/libc.so" in path}
    # The parts of the C library, even those that `ldd` does not list.
    libraries += [f"{place}/{name}" for place in places for name in ("libm.so.6", "libpthread.so.0", "libdl.so.2")]
    libraries += [f"{place}/librt.so.1" for place in places]
    for path in set(libraries):
        if Path(path).exists():
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path[1:])
    inside = 'exec chroot "$1" /rocketbox "${@:2}"'
    command = [*alone, shutil.which("bash") or "bash", "-ec", f"{BARE_ROOT}\n{inside}", "bash", str(root)]
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    running = serve(command, seen_as="/run", PATH=path, ADMIN_USER="root", ADMIN_PASSWORD=PASSWORD)
    running.ready_file = root / "run" / "ready.json"
    ready = running.ready()
    assert ready["data_dir"] == "/run/data"
    peer = Peer(ready["broker"])
    assert peer.ask(310, send_fields("Hello"), b"hello").code == 0
    peer.close()
    browser = Browser(ready["http"])
    assert browser.fill_in("/login/", username="root", password=PASSWORD)[0] == 302
    # These pages show times, and the machine has no time zone files.
    for page in ("", "system/users/", "system/audit/"):
        assert browser.page(f"/{page}")[0] == 200, page
    first, *others = running.processes()[1:]
    assert others, "the arbiter and its worker"
    os.kill(first, signal.SIGTERM)
    assert running.process.wait(60) == 0, running.said()
    assert "Traceback" not in running.said()


def ldd(program: Path) -> str:
    return subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout


def test_where_memory_may_not_be_executed_it_takes_a_directory_and_says_what_is_missing(program, alone, tmp_path):
    if not Path("/proc/sys/vm/memfd_noexec").exists():
        pytest.skip("this kernel executes all memory")
    script = 'mount -t proc proc /proc && echo 2 >/proc/sys/vm/memfd_noexec && TMPDIR=$1 exec "$2" openapi'
    command = [*alone, "sh", "-c", script, "sh"]
    done = subprocess.run([*command, tmp_path, program], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["openapi"]
    assert not list(tmp_path.iterdir())
    done = subprocess.run([*command, "/proc", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rocketbox: libraries can be loaded neither from memory nor from TMPDIR or /tmp: ")


def test_a_damaged_file_says_so(program, tmp_path):
    short = tmp_path / "rocketbox"
    content = program.read_bytes()
    short.write_bytes(content[: len(content) // 8])
    short.chmod(0o755)
    done = subprocess.run([short, "--version"], env=BARE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "shorter than it was made" in done.stderr
