"""Requests and their replies with the official clients: who asks hears the answer, and it is stored as well."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.agents import Agent, ClientFailed
from tests.clients.conftest import EVERY, newest_first, wait_for_clients
from tests.clients.stage import READY_S, Stage

pytestmark = pytest.mark.at_once

every = pytest.mark.parametrize("kind", newest_first(*EVERY))

_NUMBERS = itertools.count(1)


class Asker:
    """A producer that sends requests, and one that replies; they are two clients of the broker."""

    def __init__(self, agent: Agent, namesrv: str, topic: str) -> None:
        self._agent, self._namesrv, self._topic = agent, namesrv, topic
        number = next(_NUMBERS)
        self.name, self.replier, self.consumer = f"asker-{number}", f"replier-{number}", f"listener-{number}"
        for name in (self.name, self.replier):
            agent.do("producer.start", name=name, group=f"pg-{name}", namesrv=namesrv, instance=name, timeout_ms=15_000)

    def listen(self, group: str, **arguments: Any) -> None:
        """A consumer replies from now on."""
        self._agent.do(
            "reply.start",
            name=self.consumer,
            producer=self.replier,
            namesrv=self._namesrv,
            topic=self._topic,
            group=group,
            **arguments,
        )

    def ask(self, body: str, **arguments: Any) -> Any:
        return self._agent.do("request.ask", name=self.name, topic=self._topic, body=body, **arguments)

    def events(self, name: str, count: int, question: str = "") -> list[Any]:
        """So many of one kind, of questions that begin so, from the consumer."""

        def chosen(found: list[Any]) -> list[Any]:
            return [event for event in found if event["event"] == name and event["question"].startswith(question)]

        came = self._agent.wait_for(self.consumer, lambda all_: len(chosen(all_)) >= count, f"{count} {name}", READY_S)
        return chosen(came)

    def leave(self) -> None:
        self._agent.do("producer.stop", name=self.name)
        self.name = ""


@contextlib.contextmanager
def asking(stage: Stage) -> Iterator[Asker]:
    found = Asker(stage.agent, stage.target.namesrv, stage.create_topic())
    yield found
    with contextlib.suppress(ClientFailed):  # there was no listener
        stage.agent.do("reply.stop", name=found.consumer)
    for name in filter(None, (found.name, found.replier)):
        stage.agent.do("producer.stop", name=name)


def ways(agent: Agent) -> list[str]:
    """Return the ways in which this client can send a request. A synchronous request of 5.3.3 ends as soon as it was
    sent, without a reply, also when it was recorded with Apache's broker."""
    return ["async"] if "5.3.3" in agent.name else ["sync", "async"]


def warm_up(agent: Agent, asker: Asker, group: str, **arguments: Any) -> None:
    """Ask until a reply came: then the consumer has its queue, and the broker has the requester's connection. Go's
    producers are registered by their first heartbeat, which comes a second after they start."""
    asker.listen(group, **arguments)

    def hears() -> bool:
        asker.ask("are you there", timeout_ms=2000, how=ways(agent)[-1])
        return True

    wait_for_clients(hears, "a request is answered")


@every
def test_a_request_is_answered(kind: str, stage: Stage) -> None:
    with asking(stage) as asker:
        warm_up(stage.agent, asker, stage.group)
        for how in ways(stage.agent):
            reply = asker.ask(f"a question, {how}", how=how)
            assert reply["body"] == f"reply to a question, {how}"
            assert reply["properties"]["MSG_TYPE"] == "reply"
            assert {"CORRELATION_ID", "PUSH_REPLY_TIME", "REPLY_TO_CLIENT", "UNIQ_KEY"} <= set(reply["properties"])
        told = asker.events("replied", len(ways(stage.agent)), "a question")
        assert {event["result"]["status"] for event in told} == {"SEND_OK"}
        # Stored as well, one behind the other.
        offsets = [event["result"]["queue_offset"] for event in told]
        assert offsets == sorted(set(offsets))


@every
def test_nobody_replies(kind: str, stage: Stage) -> None:
    with asking(stage) as asker, pytest.raises(ClientFailed):
        asker.ask("anybody", timeout_ms=1500, how=ways(stage.agent)[0])


@every
def test_a_requester_that_left(kind: str, stage: Stage) -> None:
    """The replier gets an error, and no request waits for a reply that cannot be pushed."""
    with asking(stage) as asker:
        warm_up(stage.agent, asker, stage.group)
        stage.agent.do("reply.stop", name=asker.consumer)
        asker.consumer += "-slow"
        # A request that is to be stored has some seconds for that, and who asked has some more to leave.
        asker.listen(stage.group, after_ms=12_000)
        with pytest.raises(ClientFailed):
            asker.ask("too late", timeout_ms=5000, how=ways(stage.agent)[0])
        asker.events("asked", 1, "too late")  # what warmed up may come again
        asker.leave()
        (replied,) = asker.events("replied", 1, "too late")
        assert "result" not in replied
        if stage.agent.is_java:
            assert replied["error"]["code"] == 1
            assert "push reply message fail, channel of <" in replied["error"]["stack"]


@pytest.mark.parametrize("kind", ["go"])
def test_a_reply_without_a_body(kind: str, stage: Stage) -> None:
    """Go's own function makes such a reply; Java's producers refuse to send it."""
    with asking(stage) as asker:
        warm_up(stage.agent, asker, stage.group, empty=True)
        assert asker.ask("a question")["body"] == ""
