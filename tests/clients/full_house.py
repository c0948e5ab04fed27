"""A server with its console while official clients of every language are at work on it.

    orders    4 queues   billing (Java 5 and 4, by tags), shipping (Go, by a tag), archive (Java, lite pull),
                         auditors (Java, pull), late (offsets only, far behind, a reset that no member has fetched)
    notices   2 queues   wall (Java 5 and 4, broadcasting), bulletin (C++), choosy (Java 5, by a hostile expression)
    sequence  4 queues   ledger (Java 5 and 4, in order: the queues are locked)
    disputed  2 queues   quarrel (Java 5 and 4 subscribe to different tags)

Consumers wait in pulls once they have read what there is.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.clients.agents import ANSWER_TIMEOUT_S, Agent, Json, start_cpp, start_go, start_java
from tests.clients.messages import TAGS, Message, rich
from tests.support.engine import Peer, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

#: Lets everything through, and would do more on a page that took it for markup.
EXPRESSION = """TAGS IS NOT NULL OR x = '"><script>alert(''1'')</script>' -- {% now %} %(topic)s"""
USER, PASSWORD = "ada", "correct horse battery"
LONG_NAME = "a-client-whose-instance-name-is-as-long-as-somebody-thought-that-it-should-be-" + "z" * 80
#: Deadlines for a machine that has other things to do as well; a quiet one takes 4 s for all of it.
START_LIMIT_S = 120.0
SEND_LIMIT_MS = 20_000
#: The C++ client's rebalance runs every 10 s, and a new member's first one only then.
SETTLE_LIMIT_S = 90.0

TOPICS = {"orders": 4, "notices": 2, "sequence": 4, "disputed": 2, "never-used": 1}
#: group -> its members that stay connected.
MEMBERS = {
    "billing": 2, "shipping": 1, "archive": 1, "auditors": 1, "wall": 2, "bulletin": 1, "ledger": 2, "quarrel": 2,
    "choosy": 1,
}  # fmt: skip
#: Groups whose queues all have a pull that waits, and how many those are: a broadcast member holds one of its own.
#: Members that subscribe differently are refused every other pull (25).
WAITING = {"billing": 4, "shipping": 4, "archive": 4, "wall": 4, "bulletin": 2, "ledger": 4, "choosy": 2}
#: Groups of producers; the C++ one, which sends as well, says only after 30 s who it is.
PRODUCERS = ("shop", "shop-4", "shop-go")
#: The Go producer and consumer are one client, for else the producer's first heartbeat comes after 30 s.
GO_CLIENT = "go-client"

TOPIC, COMMIT, SEND, SEND_BACK, RESET, GROUP, CONSUMERS, PRODUCERS_OF = 17, 15, 310, 36, 222, 200, 203, 204


class Visitor:
    """A browser without a screen: one who has signed in. headers of each request: `language` as browsers send it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._cookies: dict[str, str] = {}
        self.fill_in("/login/", username=USER, password=PASSWORD)

    def fill_in(self, address: str, /, action: str = "", **fields: str) -> str:
        """Send a page's form, to `action` or to the page itself; where that leads to."""
        page = self.get(address).text
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token is not None, page
        answer = self._ask("POST", action or address, urlencode(fields | {"csrfmiddlewaretoken": token[1]}))
        assert answer.status == 302, answer.text
        return str(answer.headers["Location"])

    def get(self, address: str, language: str = "en") -> Answer:
        return self._ask("GET", address, language=language)

    def json(self, address: str) -> Any:
        """Return what the API answers below /api/v1."""
        answer = self.get(f"/api/v1{address}")
        assert answer.status == 200, f"{address}: {answer.status} {answer.text}"
        return json.loads(answer.body)

    def frames(self, count: int, timeout_s: float = 60.0) -> list[Json]:
        """The first frames of the live feed."""
        connection, response = self._send("GET", "/live/", timeout_s=timeout_s)
        found: list[Json] = []
        try:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream"
            while len(found) < count:
                line = response.readline()
                assert line, "the stream ended"
                if line.startswith(b"data: "):
                    found.append(json.loads(line.removeprefix(b"data: ")))
        finally:
            connection.close()
        return found

    def _ask(self, method: str, address: str, body: str | None = None, language: str = "en") -> Answer:
        connection, response = self._send(method, address, body, language)
        try:
            return Answer(address, response, response.read())
        finally:
            connection.close()

    def _send(
        self, method: str, address: str, body: str | None = None, language: str = "en", timeout_s: float = 120.0
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers = {"Accept-Language": language, "Cookie": "; ".join(f"{n}={v}" for n, v in self._cookies.items())}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection(self._address, timeout=timeout_s)
        connection.request(method, address, body, headers)
        response = connection.getresponse()
        for line in response.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self._cookies[name] = value
        return connection, response


class Answer:
    """An HTTP answer, read to its end."""

    def __init__(self, address: str, response: http.client.HTTPResponse, body: bytes) -> None:
        self.address = address
        self.status = response.status
        self.headers = response.headers
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()


class FullHouse:
    """The running whole. sent: messages that were acknowledged. refs: what was sent -> its offset id."""

    def __init__(self, server: Server, agents: dict[str, Agent]) -> None:
        self.server = server
        self.agents = agents
        self.visitor = Visitor(server.ready["http"])
        self.sent = 0
        self.refs: dict[str, str] = {}

    # --- filling it

    def fill(self) -> None:
        """Topics, messages, clients; returns when every consumer has its queues and waits in its pulls."""
        peer = Peer(self.server.broker)
        with contextlib.closing(peer):
            for name, queues in TOPICS.items():
                fields = {
                    "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
                    "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
                }  # fmt: skip
                assert peer.ask(TOPIC, fields).code == 0
            self._wait([self._begin("go", "producer.start", name=GO_CLIENT, group="shop-go", timeout_ms=SEND_LIMIT_MS)])
            self._wait(self._start_clients())
            self._send_messages()
            self._leave_behind(peer)
            wait_for(lambda: self._settled(peer), "every consumer waits", SETTLE_LIMIT_S)

    def _begin(self, agent: str, command: str, **arguments: Any) -> Future[Any]:
        return self.agents[agent].begin(command, namesrv=self.server.namesrv, **arguments)

    @staticmethod
    def _wait(futures: list[Future[Any]]) -> list[Any]:
        return [future.result(ANSWER_TIMEOUT_S) for future in futures]

    def _start_clients(self) -> list[Future[Any]]:
        """All at once: most of a start is waiting."""
        begin = self._begin

        def push(agent: str, name: str, group: str, topic: str, **more: Any) -> Future[Any]:
            values = {"name": name, "instance": name, "from": "CONSUME_FROM_FIRST_OFFSET"}
            return begin(agent, "push.start", group=group, topic=topic, **(values | more))

        either = " || ".join(TAGS[:2])
        return [
            push("cpp", "cpp-bulletin", "bulletin", "notices"),
            push("java-5", "choosy-1", "choosy", "notices", sql=EXPRESSION),
            push("java-5", "billing-1", "billing", "orders", expression=either),
            push("java-4", "billing-2", "billing", "orders", expression=either, instance=LONG_NAME),
            push("go", GO_CLIENT, "shipping", "orders", expression=TAGS[2]),
            *(push(f"java-{n}", f"wall-{n}", "wall", "notices", model="BROADCASTING") for n in (5, 4)),
            *(push(f"java-{n}", f"ledger-{n}", "ledger", "sequence", orderly=True) for n in (5, 4)),
            *(push(f"java-{n}", f"quarrel-{n}", "quarrel", "disputed", expression=TAGS[n - 4]) for n in (5, 4)),
            begin("java-5", "lite.start", name="archive-1", group="archive", topic="orders"),
            begin("java-5", "pull.start", name="auditors-1", group="auditors"),
            *(
                begin(agent, "producer.start", name=group, group=group, instance=group, timeout_ms=SEND_LIMIT_MS)
                for agent, group in (("java-5", "shop"), ("java-4", "shop-4"), ("cpp", "shop-cpp"))
            ),
        ]

    def _send_messages(self) -> None:
        """Every language sends; a good part of the bodies is compressed."""
        begin = self._begin

        def send(agent: str, name: str, topic: str, messages: list[Message], how: str = "sync") -> Future[Any]:
            self.sent += len(messages)
            wanted = [message.as_json() for message in messages]
            return begin(agent, "producer.send", name=name, topic=topic, how=how, messages=wanted)

        steps = [Message(f"step {n}".encode(), order=f"o{n % 6}", tags=TAGS[n % 3]) for n in range(24)]
        texts = [Message(f"text {n}".encode(), tags=TAGS[n % 3], keys=(f"text-{n}",)) for n in range(6)]
        first, *_ = self._wait(
            [
                send("java-5", "shop", "orders", rich(40)),
                send("java-4", "shop-4", "sequence", steps, "ordered"),
                send("go", GO_CLIENT, "notices", rich(10)),
                send("go", GO_CLIENT, "disputed", rich(6)),
                send("cpp", "shop-cpp", "orders", texts),
            ]
        )
        results = first["results"]
        # `rich` made them: the first has 1 byte, the seventh 10,000.
        self.refs |= {"small": results[0]["offset_msg_id"], "large": results[6]["offset_msg_id"]}

    def _leave_behind(self, peer: Peer) -> None:
        """Make a group that is far behind, with a reset not yet fetched, one that gave up messages, and a pull
        consumer."""
        group = json.dumps({"groupName": "late", "consumeEnable": True}).encode()
        assert peer.ask(GROUP, {}, group).code == 0
        for queue in range(TOPICS["orders"]):
            fields = {"consumerGroup": "late", "topic": "orders", "queueId": queue, "commitOffset": 2}
            assert peer.ask(COMMIT, fields).code == 0
        reset = {"topic": "orders", "group": "late", "timestamp": 0, "queueId": 1, "offset": 1, "isForce": "true"}
        answer = peer.ask(RESET, reset)
        assert answer.code == 0, answer.remark
        answer = peer.ask(SEND, send_fields("%DLQ%shipping", 0, "TAGS\x01dead\x02"), b'{"given": "up"}')
        assert answer.code == 0, answer.remark
        self.refs["dead"] = answer.ext_fields["msgId"]
        assert peer.ask(SEND, send_fields("%DLQ%late", 0, "TAGS\x01dead\x02"), b"late").code == 0
        # One that waits for its next try for two hours.
        back = {
            "offset": int(self.refs["small"][-16:], 16), "group": "late", "delayLevel": 18, "originMsgId": "x",
            "originTopic": "orders", "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        answer = peer.ask(SEND_BACK, back)
        assert answer.code == 0, answer.remark
        form = {"target": "group", "rate": "10", "max_replays": "3", "step": "apply"}
        self.refs["job"] = self.visitor.fill_in("/system/audit/", action="/system/audit/check/").split("/")[2]
        self.refs["replay"] = self.visitor.fill_in("/dead-letters/late/replay/", **form).split("/")[2]
        move = {"topic": "orders", "queues": "0", "to": "offset", "offset": "2", "step": "apply"}
        self.refs["client"] = quote(self.visitor.json("/groups/billing/clients")["items"][0]["client_id"], safe="@")
        self.refs["reset"] = self.visitor.fill_in("/groups/late/reset/", **move).split("/")[4]
        channel = {"name": "chat", "kind": "webhook", "address": "http://127.0.0.1:9/", "language": "en"}
        self.visitor.fill_in("/alerts/channels/new/", **channel)
        rule = {"name": "dead letters", "figure": "dead_letters", "pattern": "*", "above": "0", "for_minutes": "0"}
        rule |= {"severity": "act", "again_after_minutes": "0", "is_active": "on", "channels": "1"}
        self.visitor.fill_in("/alerts/rules/new/", **rule)
        self.visitor.fill_in("/alerts/silences/new/", pattern="no-*", hours="2", reason="a trial")
        # Two that died, the copy of one, and the one that waits for its next try.
        self.sent += 4
        self.hold_a_pull()

    def hold_a_pull(self) -> Future[Any]:
        """Have the pull consumer wait at the topic `never-used`: 20 s, unless a message comes."""
        queue = {"topic": "never-used", "broker": "broker-a", "queue_id": 0}
        return self._begin("java-5", "pull.pull", name="auditors-1", queue=queue, offset=0, how="block")

    # --- looking at it

    def clients(self) -> list[Json]:
        """All rows of the API's list."""
        return list(self.visitor.json("/clients?limit=500")["items"])

    def waiting(self) -> dict[str, int]:
        """group -> pulls that its members' connections hold; a connection counts for each of its groups."""
        found: dict[str, int] = {}
        for row in self.clients():
            for group in row["consumer_groups"]:
                found[group] = found.get(group, 0) + row["parked_pulls"]
        return found

    def metrics(self) -> dict[str, float]:
        """name and labels -> value, of /metrics as it comes."""
        lines = self.visitor.get("/metrics").text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def _settled(self, peer: Peer) -> bool:
        """True if clients and totals are as expected. Uses no pages: they are to be tested."""

        def count(code: int, field: str, group: str) -> int:
            answer = peer.ask(code, {field: group})
            return len(json.loads(answer.body)["connectionSet"]) if answer.code == 0 else 0

        return (
            {group: count(CONSUMERS, "consumerGroup", group) for group in MEMBERS} == MEMBERS
            and all(count(PRODUCERS_OF, "producerGroup", group) for group in PRODUCERS)
            and self.metrics()["rocketbox_parked_pulls"] >= sum(WAITING.values())
            and all(queue["held_by"] for queue in self.progress("ledger", "sequence"))
            and bool(self.visitor.json("/alerts")["items"])
        )

    def progress(self, group: str, topic: str) -> list[Json]:
        """A group's queues of a topic."""
        return [row for row in self.visitor.json(f"/groups/{group}/progress")["items"] if row["topic"] == topic]


@contextlib.contextmanager
def full_house(scratch: Path) -> Iterator[FullHouse]:
    """The whole, filled; ends with the block. The clients are killed: nothing of their end is of interest here."""
    # Users of the wire have pages, and clients need not be any: what would be refused is reported.
    environment = {
        "ADMIN_USER": USER, "ADMIN_PASSWORD": PASSWORD, "ROCKETBOX_BROKER_ACCESS_CONTROL": "report",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": json.dumps({"username": "shop", "password": "sells sea shells"}),
    }  # fmt: skip
    arguments = ("--http-port", "0", "--broker-name", "broker-a")
    server = Server(
        scratch / "data",
        *arguments,
        roles="broker,namesrv,console",
        environment=environment,
        module="tests.support.serve_strictly",
    )
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        server.start(START_LIMIT_S)
        agents = {
            "java-5": start_java("5.3.3", "json", scratch / "java-5"),
            "java-4": start_java("4.9.8", "json", scratch / "java-4"),
            "go": start_go(scratch / "go"),
            "cpp": start_cpp(scratch / "cpp"),
        }
        for agent in agents.values():
            stack.callback(agent.close)
        house = FullHouse(server, agents)
        house.fill()
        yield house
