"""Many producers and consumers in one process that send raw frames and write a history of every outcome.

    load = RawLoad(tmp_path / "history", {"b1": "127.0.0.1:20911", ...}, "Round7", queues=4, producers=24, seed=7)
    load.wait_for(100)              # until 100 more are acknowledged
    totals = load.stop()            # {"ok": ..., "fail": ..., "unknown": ...}; waits for sends under way

A producer sends one message after the other and goes to the next broker when one refuses, does not answer or has gone.
Some messages are delayed (DELAY, TIMER_DELAY_MS), some are half messages of transactions that are then decided. One
consumer per broker reads all queues from their beginning and keeps polling at the end; a group commits its offsets.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.rig import history
from tests.rig.history import COMMIT, FAIL, MARK, OK, ROLLBACK, UNKNOWN, Committed, Event, Seen, Send
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
GROUP = "rig_readers"
STOP_S = 15.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class RawLoad:
    """Handle of the load's process."""

    def __init__(
        self,
        path: Path,
        nodes: Mapping[str, str],
        topic: str,
        *,
        queues: int = 4,
        producers: int = 24,
        seed: int = 0,
        pause_ms: float = 4.0,
        timeout_s: float = 2.0,
        special: bool = True,
        consumers: bool = True,
        committing: bool = True,
    ) -> None:
        """nodes: name -> host:port. pause_ms: mean pause of a producer between two sends. special: delayed messages
        and transactions, too. committing: the group commits its offsets at the broker that acknowledged last."""
        self.path = path
        options = {
            "path": str(path), "nodes": dict(nodes), "topic": topic, "queues": queues, "producers": producers,
            "seed": seed, "pause_ms": pause_ms, "timeout_s": timeout_s, "special": special, "consumers": consumers,
            "committing": committing,
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )

    def totals(self) -> dict[str, float]:
        """Return outcome -> messages. "given": messages that consumers received; "last_ok": wall time of the last
        acknowledgement, seconds; "due": the latest due time of a delayed message."""
        return self._do("totals")

    def ok(self) -> int:
        return int(self.totals()["ok"])

    def wait_for(self, more: int, seconds: float = 30.0, what: str = "") -> None:
        """Wait until `more` further messages are acknowledged. Raises AssertionError if that takes too long."""
        goal = self.ok() + more
        wait_for(lambda: self.ok() >= goal, f"{more} more acknowledgements {what}".rstrip(), seconds, every=0.05)

    def stop(self) -> dict[str, float]:
        """Stop sending and wait for the sends under way. Consumers go on reading."""
        return self._do("stop")

    def close(self) -> None:
        """End the process, and with it the consumers."""
        with suppress(RuntimeError):
            self._do("end")
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()

    def _do(self, what: str) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
        except OSError:
            pass
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load ended with {self._process.wait(5)}")
        found: dict[str, float] = json.loads(line)
        return found


# --- in the process

_PULL, _SEND, _UPDATE_OFFSET, _END_TRANSACTION = 11, 310, 15, 37
_UNCERTAIN = (1, 2, 10, 11, 12)
_CONNECT_S = 1.0
_DELAYS = ((0.03, "DELAY\x011\x02", 1.0), (0.03, "TIMER_DELAY_MS\x01700\x02", 0.7))
_HALVES = 0.04
_COMMIT_8, _ROLL_BACK_12 = 8, 12


class _Link:
    """A connection with one request at a time. `then` receives the answer, or None if the connection was closed or no
    answer came in time."""

    def __init__(self, loop: _Loop, address: str) -> None:
        self._loop, self._address = loop, address
        self._sock: socket.socket | None = None
        self._unread = bytearray()
        self._out = b""
        self._opaque = 0
        self._then: Callable[[Any], None] | None = None
        self._sent = False
        self._deadline = 0.0

    def ask(self, code: int, fields: dict[str, Any], body: bytes, seconds: float, then: Callable[[Any], None]) -> None:
        from appliance.engine.protocol.command import RemotingCommand, encode_command

        self._opaque += 1
        ext = {name: str(value) for name, value in fields.items()}
        self._out = encode_command(RemotingCommand(code, opaque=self._opaque, ext_fields=ext, body=body), 0)
        self._then, self._sent = then, False
        self._deadline = time.monotonic() + seconds
        if self._sock is None:
            self._connect()
        else:
            self._write()

    @property
    def was_sent(self) -> bool:
        """True if a byte of the last request may have left."""
        return self._sent

    def _connect(self) -> None:
        host, _, port = self._address.rpartition(":")
        self._sock = sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread.clear()
        result = sock.connect_ex((host, int(port)))
        if result not in (0, errno.EINPROGRESS):
            self._loop.later(0, self.close)
            return
        self._loop.watch(sock, self._event, writing=True)

    def _event(self, mask: int) -> None:
        if self._sock is None:
            return
        if self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or (mask & select.EPOLLHUP and not self._sent):
            self.close()
            return
        if mask & select.EPOLLOUT:
            self._write()
        if mask & (select.EPOLLIN | select.EPOLLHUP) and self._sock is not None:
            self._read()

    def _write(self) -> None:
        assert self._sock is not None
        try:
            if self._out:
                self._sent = True
                self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._loop.watch(self._sock, self._event, writing=bool(self._out))

    def _read(self) -> None:
        from appliance.engine.protocol.command import decode_frame

        assert self._sock is not None
        try:
            data = self._sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._unread += data
        while len(self._unread) >= 4:
            size = 4 + struct.unpack_from(">i", self._unread)[0]
            if len(self._unread) < size:
                return
            frame = decode_frame(bytes(self._unread[:size]))
            del self._unread[:size]
            if frame.is_response and frame.opaque == self._opaque and self._then is not None:
                then, self._then = self._then, None
                then(frame)

    def look(self, now: float) -> None:
        if self._then is not None and now > self._deadline:
            self.close()

    def close(self) -> None:
        if self._sock is not None:
            self._loop.forget(self._sock)
            self._sock.close()
            self._sock = None
        then, self._then = self._then, None
        if then is not None:
            then(None)


class _Loop:
    """An epoll loop with timers; writes the history's lines."""

    def __init__(self, path: str) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._file = open(path, "ab")  # noqa: SIM115
        self._lines: list[bytes] = []
        self.links: list[_Link] = []
        self.ended = False

    def watch(self, sock: socket.socket, handler: Callable[[int], None], writing: bool = False) -> None:
        mask = select.EPOLLIN | (select.EPOLLOUT if writing else 0)
        known = sock.fileno() in self._handlers
        self._handlers[sock.fileno()] = handler
        (self._epoll.modify if known else self._epoll.register)(sock.fileno(), mask)

    def watch_input(self, handler: Callable[[int], None]) -> None:
        self._handlers[0] = handler
        self._epoll.register(0, select.EPOLLIN)

    def forget(self, sock: socket.socket) -> None:
        if self._handlers.pop(sock.fileno(), None) is not None:
            with suppress(OSError):
                self._epoll.unregister(sock.fileno())

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        import heapq

        self._count += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._count, what))

    def note(self, event: Event) -> None:
        self._lines.append(history.encode(event))

    def run(self) -> None:
        import heapq

        looked = 0.0
        while not self.ended:
            now = time.monotonic()
            wait = max(0.0, min(0.05, self._later[0][0] - now)) if self._later else 0.05
            for fd, mask in self._epoll.poll(wait):
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(mask)
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if now - looked > 0.05:
                looked = now
                for link in self.links:
                    link.look(now)
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._file.write(b"\n".join(self._lines) + b"\n")
            self._file.flush()
            self._lines.clear()

    def link(self, address: str) -> _Link:
        made = _Link(self, address)
        self.links.append(made)
        return made


class _Producer:
    def __init__(self, run: _Run, number: int) -> None:
        self._run, self._number = run, number
        self._chance = random.Random(run.seed * 1000 + number)
        self._names = list(run.nodes)
        self._at = number % len(self._names)
        self._links = {name: run.loop.link(address) for name, address in run.nodes.items()}
        self._count = 0
        self._queue = number % run.queues
        self._id = ""
        self.busy = False
        run.loop.later(self._chance.random() * 0.05, self.next)

    @property
    def _node(self) -> str:
        return self._names[self._at]

    def next(self) -> None:
        if self._run.stopping:
            return
        self.busy = True
        self._count += 1
        self._id = f"r{self._run.seed}p{self._number}-{self._count}"
        properties, due_s, half = f"UNIQ_KEY\x01{self._id}\x02WAIT\x01true\x02", 0.0, False
        kind = self._chance.random() if self._run.special else 1.0
        for share, more, seconds in _DELAYS:
            if 0 <= kind < share:
                properties, due_s = properties + more, seconds
            kind -= share
        if 0 <= kind < _HALVES:
            half = True
            properties += f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
        body = self._id.encode() + MARK + bytes(self._chance.randrange(20, 900))
        fields = {
            "a": GROUP, "b": self._run.topic, "c": "TBW102", "d": 4, "e": self._queue, "f": 4 if half else 0,
            "g": int(time.time() * 1000), "h": 0, "i": properties, "j": 0, "k": "false", "m": "false",
        }  # fmt: skip
        call = time.time()
        due = call + due_s if due_s else 0.0
        self._links[self._node].ask(
            _SEND, fields, body, self._run.timeout_s, lambda answer: self._answered(answer, call, due, half)
        )

    def _answered(self, answer: Any, call: float, due: float, half: bool) -> None:
        if answer is None and not self._links[self._node].was_sent:
            self._go_on(elsewhere=True)  # it never left
            return
        code = -1 if answer is None else answer.code
        outcome = OK if code == 0 else UNKNOWN if code == -1 or code in _UNCERTAIN else FAIL
        offset = int(answer.ext_fields["queueOffset"]) if code == 0 and not due and not half else -1
        if half and code == 0:
            self._decide(answer.ext_fields, call)
            return
        self._ended(call, outcome, code, offset=offset, due=due, half=half)

    def _decide(self, fields: Mapping[str, str], call: float) -> None:
        """Send the decision of a transaction once, to the broker that has the half message, as the client does."""
        verdict = self._chance.choice((COMMIT, COMMIT, ROLLBACK, ""))
        if not verdict:
            self._ended(call, OK, 0, half=True)
            return
        question = {
            "producerGroup": GROUP, "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": int(fields["msgId"][-16:], 16), "msgId": self._id, "transactionId": self._id,
            "fromTransactionCheck": "false",
            "commitOrRollback": _COMMIT_8 if verdict == COMMIT else _ROLL_BACK_12,
        }  # fmt: skip

        def decided(answer: Any) -> None:
            said = OK if answer is not None and answer.code == 0 else UNKNOWN
            self._ended(call, OK, 0, half=True, verdict=verdict, verdict_outcome=said, elsewhere=answer is None)

        self._links[self._node].ask(_END_TRANSACTION, question, b"", self._run.timeout_s, decided)

    def _ended(self, call: float, outcome: str, code: int, elsewhere: bool = False, **more: Any) -> None:
        now = time.time()
        self._run.loop.note(
            Send(
                producer=f"r{self._run.seed}p{self._number}",
                topic=self._run.topic,
                id=self._id,
                queue=self._queue,
                call=call,
                back=now,
                outcome=outcome,
                node=self._node,
                code=code,
                **more,
            )
        )
        self._run.totals[outcome] += 1
        self._run.totals["due"] = max(self._run.totals["due"], more.get("due", 0.0))
        if outcome == OK:
            self._run.totals["last_ok"] = now
            self._run.leader = self._node
        self._go_on(elsewhere or outcome != OK)

    def _go_on(self, elsewhere: bool) -> None:
        self.busy = False
        pause = self._chance.expovariate(1.0) * self._run.pause_s
        if elsewhere:
            self._at = (self._at + 1) % len(self._names)
            pause += 0.02
        self._run.loop.later(pause, self.next)


class _Consumer:
    """Reads every queue of one broker in turn as it grows."""

    def __init__(self, run: _Run, node: str) -> None:
        self._run, self._node = run, node
        self._link = run.loop.link(run.nodes[node])
        self.offsets = [0] * run.queues
        self._queue = 0
        self._nothing = 0
        run.loop.later(0.05, self.next)

    def next(self) -> None:
        fields = {
            "consumerGroup": GROUP, "topic": self._run.topic, "queueId": self._queue,
            "queueOffset": self.offsets[self._queue], "maxMsgNums": 1000, "sysFlag": 4, "commitOffset": 0,
            "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        self._link.ask(_PULL, fields, b"", self._run.timeout_s, self._given)

    def _given(self, answer: Any) -> None:
        from tests.support.peer import records

        now = time.time()
        if answer is not None and answer.code == 0:
            for record in records(answer.body):
                self._run.loop.note(
                    Seen(
                        consumer=f"c{self._node}",
                        topic=self._run.topic,
                        queue=self._queue,
                        offset=record.queue_offset,
                        id=history.id_of(record.body),
                        time=now,
                        node=self._node,
                    )
                )
                self._run.totals["given"] += 1
                self.offsets[self._queue] = record.queue_offset + 1
            self._nothing = 0
        else:
            self._nothing += 1
        self._queue = (self._queue + 1) % self._run.queues
        pause = 0.2 if answer is None or answer.code not in (0, 19, 20) else 0.0
        if self._nothing >= self._run.queues:
            self._nothing, pause = 0, max(pause, 0.01)
        self._run.loop.later(pause, self.next)


class _Committer:
    """A consumer group that commits the offsets of its consumer of the leader every 100 ms."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._links = {name: run.loop.link(address) for name, address in run.nodes.items()}
        self._said = [0] * run.queues
        self._queue = 0
        run.loop.later(0.1, self.next)

    def next(self) -> None:
        node = self._run.leader
        if node is None:
            self._run.loop.later(0.1, self.next)
            return
        queue = self._queue = (self._queue + 1) % self._run.queues
        offset = self._said[queue] = max(self._said[queue], self._run.consumers[node].offsets[queue])
        fields = {"consumerGroup": GROUP, "topic": self._run.topic, "queueId": queue, "commitOffset": offset}

        def said(answer: Any) -> None:
            if answer is not None and answer.code == 0:
                self._run.loop.note(
                    Committed(
                        group=GROUP, topic=self._run.topic, queue=queue, offset=offset, time=time.time(), node=node
                    )
                )
            self._run.loop.later(0.1 / self._run.queues, self.next)

        self._links[node].ask(_UPDATE_OFFSET, fields, b"", self._run.timeout_s, said)


class _Run:
    def __init__(self, options: dict[str, Any]) -> None:
        self.loop = _Loop(options["path"])
        self.nodes: dict[str, str] = options["nodes"]
        self.topic: str = options["topic"]
        self.queues: int = options["queues"]
        self.seed: int = options["seed"]
        self.pause_s: float = options["pause_ms"] / 1000
        self.timeout_s: float = options["timeout_s"]
        self.special: bool = options["special"]
        self.totals = {OK: 0, FAIL: 0, UNKNOWN: 0, "given": 0, "last_ok": 0.0, "due": 0.0}
        self.leader: str | None = None
        self.stopping = False
        self._stopped_at = 0.0
        self._input = b""
        self.loop.watch_input(self._commands)
        self.consumers = {node: _Consumer(self, node) for node in self.nodes} if options["consumers"] else {}
        self.producers = [_Producer(self, number) for number in range(options["producers"])]
        if options["committing"] and self.consumers:
            _Committer(self)

    def _commands(self, mask: int) -> None:
        data = os.read(0, 4096)
        if not data:
            os._exit(0)
        self._input += data
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            if line == b"stop":
                self.stopping = True
                self._stopped_at = time.monotonic()
                self._when_all_ended()
                continue
            self.loop.ended = line == b"end"
            self._answer()

    def _when_all_ended(self) -> None:
        if any(one.busy for one in self.producers) and time.monotonic() < self._stopped_at + STOP_S:
            self.loop.later(0.02, self._when_all_ended)
        else:
            self._answer()

    def _answer(self) -> None:
        self.loop.flush()
        print(json.dumps(self.totals), flush=True)


if __name__ == "__main__":
    import gc

    gc.freeze()
    _Run(json.loads(sys.argv[1])).loop.run()
