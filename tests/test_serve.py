"""`rocketbox serve` with its real engine: what it announces, and every reason for which it refuses to start."""

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine import hotpath
from tests.support.directories import shared_directory
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.server import ROOT, Server, ServerError
from tests.support.waiting import wait_for


def refused(*arguments: str) -> str:
    """Start the server, expect a refusal, and return its one sentence."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    result = subprocess.run(
        [sys.executable, "-m", "appliance.main", "serve", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 2, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("rocketbox: ")]
    assert lines == [result.stderr.splitlines()[-1]], result.stderr
    assert "Traceback" not in result.stderr
    assert lines[0].endswith(".")
    return lines[0]


def free_ports(tmp_path: Path) -> list[str]:
    return ["--data-dir", str(tmp_path / "data"), "--broker-port", "0", "--namesrv-port", "0", "--http-port", "0"]


@pytest.fixture(params=["broker,namesrv", "broker,namesrv,console"])
def roles(request) -> str:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def recording(request) -> Iterator[Server]:
    """A server that has been up since the first test: the last one looks at what half a minute loads."""
    with Server(
        shared_directory(request, "recording") / "data", "--http-port", "0", roles="broker,namesrv,console"
    ) as server:
        yield server


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60):
        return True


def start_line(server: Server) -> str:
    (line,) = [line for line in server.log_path.read_text().splitlines() if "rocketbox: ready " in line]
    return line


def test_the_start_line_says_which_twin_of_the_hot_path_runs(tmp_path, roles):
    with Server(tmp_path / "data", "--http-port", "0", roles=roles) as server:
        assert start_line(server).endswith(f"data_dir={tmp_path / 'data'}, hot path: {hotpath.CHOICE.text}")
    with Server(tmp_path / "pure", "--http-port", "0", roles=roles, environment={"ROCKETBOX_PURE": "1"}) as server:
        assert start_line(server).endswith(", hot path: pure Python (ROCKETBOX_PURE is set)")


def test_all_roles_accept_connections_when_the_ready_file_is_there(tmp_path, roles):
    with Server(tmp_path / "data", "--http-port", "0", roles=roles) as server:
        assert accepts(server.broker)
        assert accepts(server.namesrv)
        host, _, port = server.broker.rpartition(":")
        assert accepts(f"{host}:{int(port) - 2}")
        assert server.ready["data_dir"] == str(tmp_path / "data")
        if "console" in roles:
            assert server.ready["setup_url"].startswith(f"http://{server.ready['http']}/setup/")
        else:
            assert server.ready["setup_url"] is None
        if "console" in roles:
            assert accepts(server.ready["http"])
        else:
            assert server.ready["http"] is None


def test_the_console_shows_the_engine_of_its_own_process(tmp_path):
    with Server(tmp_path / "data", "--http-port", "0", roles="broker,namesrv,console") as server:
        pages = {}
        for path in ("/healthz", "/readyz", "/metrics", "/"):
            connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
            connection.request("GET", path)
            response = connection.getresponse()
            pages[path] = (response.status, response.read().decode())
            connection.close()
    assert pages["/healthz"] == (200, "ok\n")
    status, text = pages["/readyz"]
    assert (status, json.loads(text)["status"]) == (200, "ok")
    assert "rocketbox_namesrv_brokers 1" in pages["/metrics"][1].splitlines()
    assert pages["/"] == (302, "")  # without a signed-in user
    assert "needs attention" not in pages["/"][1]


@pytest.mark.parametrize("option", ["--namesrv-port", "--broker-port", "--http-port"])
def test_a_taken_port_is_refused(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert str(port) in refused(*free_ports(tmp_path), option, str(port))


def test_a_taken_vip_port_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", reserve_port() - 2)) as other:  # the broker's own is free
        port = other.getsockname()[1]
        sentence = refused(*free_ports(tmp_path), "--roles", "broker", "--broker-port", str(port + 2))
        assert str(port) in sentence


def test_a_directory_that_another_process_holds_is_refused(tmp_path, roles):
    with Server(tmp_path / "data"):
        sentence = refused(*free_ports(tmp_path), "--roles", roles)
    assert str(tmp_path / "data") in sentence
    # A process that has ended leaves no lock behind.
    with Server(tmp_path / "data"):
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path, roles):
    (tmp_path / "file").write_text("")
    arguments = [*free_ports(tmp_path), "--roles", roles, "--data-dir", str(tmp_path / "file" / "data")]
    assert str(tmp_path / "file") in refused(*arguments)


def test_too_little_disk_is_refused(tmp_path):
    path = tmp_path / "large.toml"
    path.write_text(f"[store]\nmappedFileSizeCommitLog = {2**50}\n")
    sentence = refused(*free_ports(tmp_path), "--roles", "broker,namesrv", "-c", str(path))
    assert "disk" in sentence


def test_an_unknown_setting_is_refused_with_the_nearest_known(tmp_path, roles):
    path = tmp_path / "box.toml"
    path.write_text("[broker]\nautoCreateTopicEnabled = true\n")
    sentence = refused(*free_ports(tmp_path), "--roles", roles, "-c", str(path))
    assert "autoCreateTopicEnabled" in sentence
    assert "similar ones are autoCreateTopicEnable" in sentence


def test_the_engine_alone_loads_no_asyncio_django_or_gunicorn():
    program = (
        "import sys, appliance.main, appliance.command_line, appliance.engine_process, appliance.engine.broker.broker, "
        "appliance.engine.namesrv.namesrv\n"
        "print([name for name in ('asyncio', 'django', 'gunicorn', 'argparse', 'http', 'ssl') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [["--version"], ["serve", "--help"], ["--help"]])
def test_the_command_explains_itself(arguments):
    result = subprocess.run(
        [sys.executable, "-m", "appliance.main", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0
    assert "rocketbox" in result.stdout
    assert result.stderr == ""


def test_an_unknown_command_is_refused():
    result = subprocess.run(
        [sys.executable, "-m", "appliance.main", "sereve"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "there is no command 'sereve'" in result.stderr


def test_a_server_with_definitions_has_them_when_it_is_ready(tmp_path):
    file = tmp_path / "all.yaml"
    file.write_text("rocketbox: 1\ntopics:\n  Orders: {read_queues: 3, write_queues: 3}\n")
    options = ("--http-port", "0", "--definitions", str(file))
    with Server(tmp_path / "data", *options, roles="broker,namesrv,console") as server:
        peer = Peer(server.ready["broker"])
        assert peer.ask(202, {"topic": "Orders"}).body.count(b'"maxOffset"') == 3, "its queues"
        peer.close()
        log = server.log_path.read_text()
        assert log.index("definitions: taken from") < log.index("rocketbox: ready ")


def test_definitions_that_cannot_be_taken_refuse_the_start(tmp_path):
    file = tmp_path / "all.yaml"
    options = ("--http-port", "0", "--definitions", str(file))
    server = Server(tmp_path / "data", *options, roles="broker,namesrv,console")
    with pytest.raises(ServerError, match=r"exited 2 before.*\n(.*\n)*rocketbox: The definitions .* cannot be read"):
        server.start()
    sentence = refused(*free_ports(tmp_path), "--roles", "broker,namesrv", "--definitions", str(file))
    assert "--definitions needs the console: add it to --roles." in sentence


def test_what_reports_need_is_not_loaded_where_the_broker_runs(recording):
    """Some libraries import numpy if they find it, e.g. sqlite-utils when the history's file is made."""
    assert importlib.util.find_spec("numpy"), "requirements/reports.txt is not installed"
    wait_for((recording.data_dir / "rocketbox" / "history.sqlite3").exists, "the history's file", seconds=90)
    time.sleep(0.5)  # nothing loads it afterwards, either
    assert "numpy" not in Path(f"/proc/{recording.pid}/maps").read_text()
