"""A consumer that answers when it is asked to consume a message directly (309)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CONSUME_DIRECTLY = 309


@contextmanager
def answering_member(running: Any, client_id: str, group: str, topic: str, **said: Any) -> Iterator[list[bytes]]:
    """A member of the group, as long as this lasts; yields what it was given. said: of its answer."""
    peer = running.join(client_id, group, topic)
    given: list[bytes] = []
    answer = {"order": False, "autoCommit": True, "consumeResult": "CR_SUCCESS", "spentTimeMills": 3} | said

    def listen() -> None:
        try:
            for frame in iter(peer.receive, None):
                if frame.code == CONSUME_DIRECTLY and not frame.is_response:
                    given.append(frame.body)
                    peer.answer(frame, 0, None, json.dumps(answer).encode())
        except OSError:  # it was hung up
            pass

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield given
    finally:
        peer.sock.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        thread.join(60)
        peer.close()
        running.peers.remove(peer)
