"""Members of a consumer group that answer what an administrator asks them."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

from tests.support.peer import Peer

HEARTBEAT, RUNNING_INFO = 34, 307


def heartbeat(client_id: str, group: str, topic: str, expression: str = "*") -> bytes:
    """Return a heartbeat as Java's client sends it."""
    subscription = {
        "topic": topic, "subString": expression, "subVersion": 1, "expressionType": "TAG", "classFilterMode": False,
        "tagsSet": [], "codeSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription],
    }  # fmt: skip
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


class Member:
    """A member that answers 307 on a thread of its own, after `wait_s` and as soon as `may_answer` is set; `close` ends
    it."""

    def __init__(self, address: str, client_id: str, group: str, topic: str, wait_s: float = 0.0) -> None:
        self.questions: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"properties": {}, "mqTable": {}, "statusTable": {}, "subscriptionSet": []}
        self._wait_s = wait_s
        self._left = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._peer = Peer(address)
        assert self._peer.ask(HEARTBEAT, {}, heartbeat(client_id, group, topic)).code == 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                frame = self._peer.receive(3600)
            except (OSError, ConnectionError):
                return
            if frame.code == RUNNING_INFO and not frame.is_response:
                self.questions.append(dict(frame.ext_fields))
                if self._left.wait(self._wait_s) or not self.may_answer.wait(60) or self._left.is_set():
                    return
                answer = dict(self.answer)
                if frame.ext_fields["jstackEnable"] != "true":
                    answer.pop("jstack", None)
                self._peer.answer(frame, 0, None, json.dumps(answer).encode())

    def close(self) -> None:
        """It leaves."""
        self._left.set()
        self.may_answer.set()
        self._peer.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._peer.close()
