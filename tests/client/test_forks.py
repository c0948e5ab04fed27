"""Processes that a program makes of itself: by `multiprocessing`, and by a server that forks without Python's hooks."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from appliance.client import Client, ForkedError
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]
PATIENT = 60.0
#: Messages that a process sends without waiting for them.
MANY = 50

#: Made before the fork, as modules do.
_client: Client | None = None


def submits(namesrv: str, topic: str, mark: str) -> None:
    """Send messages in another process, and end without waiting for them."""
    client = _client or Client(namesrv, timeout=PATIENT)
    producer = client.producer()
    for number in range(MANY):
        producer.submit(topic, f"{mark} {number}")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_ends_when_its_messages_are_stored(
    rocketbox, rocketmq_topic, consumed, monkeypatch, method
):
    with rocketbox.client(timeout=PATIENT) as client:
        monkeypatch.setattr(sys.modules[__name__], "_client", client)
        client.producer().send(rocketmq_topic, "of the parent")
        making = multiprocessing.get_context(method)
        processes = [
            making.Process(target=submits, args=(rocketbox.namesrv, rocketmq_topic, mark)) for mark in ("one", "other")
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(PATIENT)
            assert process.exitcode == 0
        client.producer().send(rocketmq_topic, "of the parent, later")
        found = consumed(rocketmq_topic, 2 * MANY + 2, timeout=PATIENT)
    assert len({message.message_id for message in found}) == len({message.text for message in found}) == 2 * MANY + 2


#: An application whose modules, and with them its client and producer, are loaded before gunicorn forks its workers.
PRELOADED = """
import os
from appliance.client import Client

client = Client(os.environ["NAMESRV_ADDR"], timeout=60)
producer = client.producer()
producer.send(os.environ["TOPIC"], "of the master")

def app(environ, start_response):
    sent = producer.send(os.environ["TOPIC"], environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {sent.message_id}".encode()]
"""


def test_workers_of_gunicorn_send_by_a_client_that_was_loaded_before(rocketbox, rocketmq_topic, consumed, tmp_path):
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    socket_path = tmp_path / "http"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"unix:{socket_path}"]
    environment = os.environ | {
        "NAMESRV_ADDR": rocketbox.namesrv, "TOPIC": rocketmq_topic, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
    }  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        gunicorn = subprocess.Popen([*command, "preloaded:app"], cwd=tmp_path, env=environment, stderr=log)
    said: list[str] = []
    try:

        def ask() -> str:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENT)
                sock.connect(str(socket_path))
                sock.sendall(f"GET /{len(said)} HTTP/1.0\r\n\r\n".encode())
                answer = b"".join(iter(lambda: sock.recv(65536), b""))
            head, _, body = answer.decode().partition("\r\n\r\n")
            assert " 200 " in head.splitlines()[0], (head, (tmp_path / "log").read_text())
            return body

        def both_have_sent() -> bool:
            said.append(ask())
            return len(said) >= 10 and len({one.split()[0] for one in said}) == 2

        wait_for(both_have_sent, "answers of both workers", PATIENT, not_yet=(ConnectionError, FileNotFoundError))
    finally:
        gunicorn.terminate()
        status = gunicorn.wait(PATIENT)
    assert status == 0, (tmp_path / "log").read_text()
    found = consumed(rocketmq_topic, len(said) + 1, timeout=PATIENT)
    assert {message.message_id for message in found} >= {one.split()[1] for one in said}
    assert len({message.message_id for message in found}) == len(found)


def test_many_clients_that_start_and_close_leave_nothing(rocketbox, rocketmq_topic):
    def left() -> dict[str, int]:
        return {"threads": threading.active_count(), "descriptors": len(os.listdir("/proc/self/fd"))}

    def start_and_close() -> None:
        with rocketbox.client(timeout=PATIENT) as client:
            client.producer().send(rocketmq_topic, "x")

    start_and_close()
    before = left()
    for _ in range(200):
        start_and_close()
    assert {name: most for name, most in left().items() if most > before[name]} == {}


def test_a_fork_of_uwsgi_is_told_what_uwsgi_needs(monkeypatch):
    with Client("127.0.0.1:1") as client:
        producer = client.producer()
        monkeypatch.setitem(sys.modules, "uwsgi", ModuleType("uwsgi"))
        out, into = os.pipe()
        pid = ctypes.PyDLL(None).fork()  # no hook of Python's is called, as there
        if pid == 0:
            signal.alarm(int(PATIENT))
            said = "nothing"
            try:
                producer.send("T", "x")
            except ForkedError as error:
                said = str(error)
            finally:
                os.write(into, said.encode())
                os._exit(0)
        os.close(into)
        with open(out, encoding="utf-8") as file:
            assert "lazy-apps" in file.read()
        assert os.waitpid(pid, 0)[1] == 0
