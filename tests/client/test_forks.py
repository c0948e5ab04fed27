"""Processes that a program makes of itself: by `multiprocessing`, and by a server that forks without Python's hooks."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from types import ModuleType

import pytest

from appliance.client import Client, ForkedError

pytest_plugins = ("appliance.pytest_rocketbox",)

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


@pytest.mark.parametrize("method", ["fork", "spawn"])
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
