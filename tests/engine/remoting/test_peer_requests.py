"""Requests of the broker to clients: each is answered once, and their number is bounded."""

import socket

import pytest

from appliance.engine.protocol.command import MAX_FRAME_BYTES, RemotingCommand
from appliance.engine.remoting import peer_requests
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.event_loop import READABLE, EventLoop
from appliance.engine.remoting.server import RemotingServer


@pytest.fixture
def conn():
    loop = EventLoop()
    server = RemotingServer(loop)
    near, far = socket.socketpair()
    near.setblocking(False)
    conn = Connection(server, near, Dispatcher({}), bytes(8))
    loop.watch(conn.fd, READABLE, conn)
    yield conn, peer_requests.PeerRequests(loop, server)
    near.close()
    far.close()
    loop.close()


def test_beyond_so_many_open_questions_there_is_no_answer_at_once(conn, monkeypatch):
    conn, requests = conn
    monkeypatch.setattr(peer_requests, "MAX_WAITING", 0)
    monkeypatch.setattr(requests._shares, "few", 2)
    answers = []
    for number in range(3):
        requests.ask(conn, RemotingCommand(307), 60, lambda answer, number=number: answers.append((number, answer)))
    assert answers == [(2, None)]
    requests._closed(conn)
    assert sorted(answers) == [(0, None), (1, None), (2, None)]
    requests.ask(conn, RemotingCommand(307), 60, lambda answer: answers.append((3, answer)))
    assert len(answers) == 3


def test_a_question_that_fits_no_frame_has_no_answer(conn):
    conn, requests = conn
    answers = []
    requests.ask(conn, RemotingCommand(326, body=bytes(MAX_FRAME_BYTES)), 60, answers.append)
    assert (answers, requests.waiting, requests.waiting_of(conn)) == ([None], 0, 0)
    requests.ask(conn, RemotingCommand(326), 60, answers.append)
    assert (answers, requests.waiting, requests.waiting_of(conn)) == ([None], 1, 1)
