"""Any answer that a server may give to any request of a client with producers, consumers and administration: each call
ends with a result or a ClientError, nothing fails inside, and afterwards all of it works."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from appliance.client import Client, ClientError, Decision, Message
from tests.clients.refusals import end, read, write
from tests.support.effort import effort
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0
DAMAGED = effort(250, 2500, 50_000)
#: Of a message in an answer.
_MAGIC = b"\xda\xa3\x20\xa7"


class Damaging:
    """Stands before a name server and a broker, and damages some frames of theirs while `damages` is set."""

    def __init__(self, namesrv: str, broker: str, seed: int) -> None:
        self.damages = True
        self.count = 0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.broker = self._listen(broker, {})
        self.namesrv = self._listen(namesrv, {broker.encode(): self.broker.encode()})

    def close(self) -> None:
        for sock in self._sockets:
            end(sock)

    def _listen(self, behind: str, replaced: dict[bytes, bytes]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)
        _run(self._accept, listener, behind, replaced)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def _accept(self, listener: socket.socket, behind: str, replaced: dict[bytes, bytes]) -> None:
        host, _, port = behind.rpartition(":")
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((host, int(port)))
            self._sockets += [client, server]
            _run(self._pass, client, server, lambda header, body: (header, body))
            _run(self._pass, server, client, lambda header, body: self._damage(header, body, replaced))

    @staticmethod
    def _pass(
        source: socket.socket, target: socket.socket, change: Callable[[bytes, bytes], tuple[bytes, bytes]]
    ) -> None:
        try:
            while True:
                mark, header, body = read(source)
                write(target, mark, *change(header, body))
        finally:
            end(source)
            end(target)

    def _damage(self, header: bytes, body: bytes, replaced: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        for old, new in replaced.items():
            body = body.replace(old, new)
        with self._lock:
            chance = self._chance
            if not self.damages or chance.random() < 0.6:
                return header, body
            self.count += 1
            kind = chance.randrange(5)
            if kind == 1 and body[4:8] == _MAGIC:  # a message with another topic has no handler, for ever if in order
                kind = 2
            if kind == 0:
                return self._bytes(header, bool(replaced)), body
            if kind == 1:
                return header, self._bytes(body, bool(replaced))
            if kind == 2:
                return header, body[: chance.randrange(len(body) + 1)]
            return self._fields(header, kind == 3), body

    def _bytes(self, data: bytes, spares_digits: bool) -> bytes:
        """spares_digits: a route with another address would have the client connect to strangers."""
        found = bytearray(data)
        for _ in range(self._chance.randrange(1, 5)):
            at = self._chance.randrange(len(found)) if found else 0
            if found and not (spares_digits and chr(found[at]).isdigit()):
                byte = self._chance.randrange(256)
                found[at] = byte if not (spares_digits and chr(byte).isdigit()) else 0
        return bytes(found)

    def _fields(self, header: bytes, drops: bool) -> bytes:
        """Drop a field of the answer, or give one another value; or answer with another code."""
        said = json.loads(header)
        fields, chance = said.get("extFields") or {}, self._chance
        if not fields or chance.random() < 0.3:
            said["code"] = chance.choice([0, 1, 2, 3, 11, 14, 16, 17, 19, 20, 21, 22, 24, 25, 1500, 999, -1])
        elif drops:
            del fields[chance.choice(sorted(fields))]
        else:
            wrong = ["", "-1", "x", "9" * 30, "9223372036854775807", "1.5", "用", "0", "\ud800", " 7"]
            fields[chance.choice(sorted(fields))] = chance.choice(wrong)
        return json.dumps(said).encode("utf-8", "replace")


def _run(act: Callable[..., None], *arguments: object) -> None:
    def quietly() -> None:
        with contextlib.suppress(OSError, EOFError):
            act(*arguments)

    threading.Thread(target=quietly, name="damaging", daemon=True).start()


class Everything:
    """A client that does everything. seen: by consumer, the texts that it got."""

    def __init__(self, client: Client, topic: str, group: str, chance: random.Random) -> None:
        self._client, self._topic, self._chance = client, topic, chance
        self.seen: dict[str, set[str]] = {name: set() for name in ("pushed", "ordered", "broadcast", "pulled")}
        self._producer = client.producer(retries=1)
        self._decided = client.transactional_producer(f"{group}-decides", check=self._check)
        self._groups = {name: f"{group}-{name}" for name in self.seen}
        self._consumers = {
            "pushed": client.push_consumer(self._groups["pushed"]),
            "ordered": client.push_consumer(self._groups["ordered"], ordered=True),
            "broadcast": client.push_consumer(self._groups["broadcast"], broadcast=True),
        }
        for name, consumer in self._consumers.items():
            consumer.subscribe(topic, handler=lambda message, name=name: self.seen[name].add(message.text))
        self._pulling = client.pull_consumer(self._groups["pulled"]).subscribe(topic)

    def start(self) -> None:
        for consumer in self._consumers.values():
            consumer.start()

    def _check(self, _message: object) -> Decision:
        return self._chance.choice(list(Decision))

    def act(self) -> None:
        """Do one thing. Raises a ClientError, or nothing."""
        with contextlib.suppress(ClientError):
            self._chance.choice(
                [self._send, self._send, self._batch, self._decide, self.pull, self._read, self._look, self._ask]
            )()

    def _send(self) -> None:
        self._producer.submit(self._topic, "sent", timeout=0.3)
        self._producer.send(self._topic, "sent", timeout=0.3, shard=self._chance.randrange(8))

    def _batch(self) -> None:
        self._producer.send_batch([Message(self._topic, "sent") for _ in range(3)])

    def _decide(self) -> None:
        with self._decided.transaction(self._topic, "sent", timeout=0.3) as transaction:
            if self._chance.random() < 0.5:
                transaction.rollback()

    def pull(self) -> None:
        self.seen["pulled"].update(message.text for message in self._pulling.poll(0.05))

    def _read(self) -> None:
        reader = self._client.reader()
        for queue in reader.queues(self._topic)[:2]:
            reader.pull(queue, 0)
            reader.offset_at(queue, datetime.now(UTC))
            reader.max_offset(queue)
            reader.committed(queue, self._groups["pushed"])

    def _look(self) -> None:
        admin = self._client.admin()
        act = self._chance.choice(
            [
                admin.brokers, admin.topics, admin.groups, lambda: admin.lag(self._groups["pushed"]),
                lambda: admin.by_key(self._topic, "k"), lambda: admin.create_topic(f"{self._topic}-more"),
                lambda: admin.message(self._producer.send(self._topic, "sent", timeout=0.3).message_id, self._topic),
                lambda: admin.reset(self._groups["broadcast"] + "-none", self._topic, "last"),
            ]
        )  # fmt: skip
        act()

    def _ask(self) -> None:
        self._producer.request(self._topic, "sent", timeout=0.1)

    def send_probe(self, number: int) -> str:
        """Send one message to each queue."""
        text = f"probe {number}"
        for queue in self._client.reader().queues(self._topic):
            self._producer.send(self._topic, text, queue=queue, timeout=PATIENT)
        return text


@pytest.mark.parametrize("seed", [effort(1, 2, 3)])
def test_whatever_servers_answer_the_client_lives_and_works_afterwards(
    rocketbox, rocketmq_topic, rocketmq_group, seed, caplog
):
    between = Damaging(rocketbox.namesrv, rocketbox.broker, seed)
    between.damages = False
    try:
        with Client(between.namesrv, timeout=3.0) as client:
            everything = Everything(client, rocketmq_topic, rocketmq_group, random.Random(seed))
            everything.start()
            between.damages = True
            threads = threading.active_count()
            while between.count < DAMAGED:
                everything.act()
            between.damages = False
            numbers = iter(range(1000))
            probes: list[str] = []

            def all_seen() -> bool:
                if all(seen.intersection(probes) for seen in everything.seen.values()):
                    return True
                if len(probes) < 100:
                    probes.append(everything.send_probe(next(numbers)))
                everything.pull()
                return False

            missing = "all consumers get what is sent"
            wait_for(all_seen, missing, 240, every=0.2, not_yet=(ClientError,))
            assert threading.active_count() < threads + 40
    finally:
        between.close()
    inside = [record for record in caplog.records if record.name.startswith("rocketbox") and record.exc_info]
    assert not inside, [record.getMessage() for record in inside]
