"""Names that strangers chose, in the log of `rocketbox serve` and in what its commands print."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.client import RemotingClient
from tests.support.server import ROOT, Server
from tests.support.store import StoreUnderTest

FORGED = "\n2026-01-01 00:00:00,000 ERROR appliance.engine: all is lost"
ESCAPES = "\x1b]0;owned\x07\x1b[31m"
RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: .|    \| ")


def heartbeat(client_id: str) -> bytes:
    producer = {"groupName": "P"}
    return json.dumps({"clientID": client_id, "producerDataSet": [producer], "consumerDataSet": []}).encode()


def test_a_client_forges_no_line_of_the_log(tmp_path):
    with Server(tmp_path / "data", "--http-port", "0", roles="broker,namesrv,console") as server:
        client = RemotingClient(server.broker)
        for name in ("c" + FORGED, "c" + ESCAPES, "c" * 20_000, "legal"):
            client.invoke_sync(RemotingCommand(RequestCode.HEART_BEAT, body=heartbeat(name)), 60_000)
            fields = {"namespace": name, "key": name, "value": "v"}
            RemotingClient(server.namesrv).invoke_sync(
                RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields), 60_000
            )
            client.invoke_sync(RemotingCommand(9_999, ext_fields={"a": name}, remark=name), 60_000)
        client.close()
        host, _, port = server.ready["http"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as peer:
            peer.sendall(b"GET /%0A2026-01-01%2000:00:00,000%20ERROR%20x:%20y HTTP/1.1\r\nHost: a\x0b\r\n\r\n")
            peer.recv(1000)
        time.sleep(0.2)
    text = server.log_path.read_text()
    lines = text.splitlines()
    begun = next(number for number, line in enumerate(lines) if RECORD.match(line))
    told = [line for line in lines[begun:] if not RECORD.match(line)]
    assert all(line.startswith(("Set up RocketBox", "    http://")) for line in told), told
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert "\x1b" not in text
    assert max(map(len, lines)) < 3000
    assert "kv config" in text, "what may be a name is logged"


@pytest.fixture
def store(tmp_path) -> Path:
    """A data directory with a hostile body, and hostile names of a topic and of a file in quarantine."""
    one = StoreUnderTest(tmp_path / "data", segment_bytes=131_072).open()
    one.write("T", 0, "\x9b31m body \u202e".encode())
    one.wait_recovery_position()
    one.stop()
    (tmp_path / "data/store/consumequeue" / ("odd" + FORGED.replace("/", ""))).mkdir()
    quarantine = tmp_path / "data/rocketbox/quarantine"
    quarantine.mkdir(exist_ok=True)
    (quarantine / ("q" + ESCAPES)).write_bytes(b"x")
    return tmp_path / "data"


def on_a_terminal(*arguments: str) -> tuple[int, bytes]:
    """Run a command on a pseudo-terminal; return (exit status, bytes that the terminal gets)."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.main", *arguments], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end of the terminal is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    return process.wait(60), said


COMMANDS = {
    "inspect": ("store", "inspect"),
    "verify": ("store", "verify", "--quiet"),
    "export": ("store", "export", "--quiet"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_commands_print_of_a_store_moves_no_terminal(store, command):
    _, said = on_a_terminal(*COMMANDS[command], str(store))
    text = said.decode()
    assert not re.findall("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    assert not [line for line in text.splitlines() if line.startswith("2026-01-01")]
    if command != "verify":
        assert "x1b" in text or "\\u009b" in text, "it is shown all the same"


def test_the_doctor_too(store):
    _, said = on_a_terminal("doctor", "--data-dir", str(store), "--roles", "broker", "--broker-port", "0")
    assert not re.findall("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", said.decode())


def test_raw_records_are_not_written_to_a_terminal(store):
    status, said = on_a_terminal("store", "export", "--raw", str(store))
    assert status == 2
    assert b"--output" in said


def test_a_refusal_prints_no_controls(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(f"[broker]\n{json.dumps('autoCreateTopicEnabled' + ESCAPES)} = true\n")
    status, said = on_a_terminal("serve", "--data-dir", str(tmp_path / "data"), "-c", str(path))
    assert status == 2
    assert b"\x1b" not in said
