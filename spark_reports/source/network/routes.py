"""Reads the brokers and queues of topics from the name servers, one after another; the first answer counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from appliance.engine.fastjson import loads
from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.protocol.names import PERM_READ

from .access import Access
from .connection import Answer, Connection, refused
from .errors import Garbled, NetworkError, Refused, Unreachable


class Queue(NamedTuple):
    """One queue of a topic; its offsets count on this broker only."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}, queue {self.queue_id} of {self.broker}"


#: Addresses of the servers of one broker name, the master first.
Addresses = tuple[str, ...]


class Route(NamedTuple):
    """queues: those that may be read, in order. brokers: name -> addresses. masters: address of the master of each
    broker that has one."""

    queues: tuple[Queue, ...]
    brokers: dict[str, Addresses]
    masters: frozenset[str]


class NameServers:
    """Sends requests to name servers. Connections last as long as one call."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self, topics: Iterable[str], must_be_there: bool = True, must_exist: bool = True) -> Route:
        """Return the routes of several topics as one. A topic that is missing or must not be read raises Refused, or is
        left out without must_be_there. Without must_exist a topic that no name server has is left out, but one that
        must not be read still raises."""
        queues: list[Queue] = []
        brokers: dict[str, Addresses] = {}
        masters: set[str] = set()
        unseen = list(dict.fromkeys(topics))
        why: list[NetworkError] = []
        unknown: dict[str, int] = {}
        for address in self._access.name_servers:
            still: list[str] = []
            try:
                with Connection(address, self._access) as connection:
                    for topic in unseen:
                        try:
                            route = _route(connection, topic)
                        except Refused as error:
                            why.append(error)
                            still.append(topic)
                            unknown[topic] = unknown.get(topic, 0) + (error.code == ResponseCode.TOPIC_NOT_EXIST)
                        else:
                            queues += route.queues
                            brokers |= route.brokers
                            masters |= route.masters
            except Unreachable as error:
                # Topics read before the connection broke are read again from the next; their answers are the same.
                why.append(error)
                still = unseen
            unseen = still
            if not unseen:
                break
        if not must_exist:
            unseen = [topic for topic in unseen if unknown.get(topic, 0) < len(self._access.name_servers)]
        unreachable = why and all(isinstance(error, Unreachable) for error in why)
        if unseen and (must_be_there or unreachable):
            raise _none(why)
        return Route(tuple(dict.fromkeys(queues)), brokers, frozenset(masters))

    def topics(self) -> list[str]:
        """Return the names of all topics, in order, system topics too."""
        answer = self._first(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "the list of topics")
        return sorted({str(topic) for topic in answer.get("topicList") or ()})

    def servers_of(self, broker: str) -> Addresses:
        """Return the addresses of a broker, the master first; () if the name server does not have it."""
        table = self._first(RequestCode.GET_BROKER_CLUSTER_INFO, "the list of brokers").get("brokerAddrTable") or {}
        try:
            return _in_order(table[broker]["brokerAddrs"]) if broker in table else ()
        except (KeyError, TypeError, ValueError, AttributeError):
            return ()

    def names_of_brokers(self) -> set[str]:
        """Return the names of brokers and clusters: each of them is a topic, too."""
        answer = self._first(RequestCode.GET_BROKER_CLUSTER_INFO, "the list of brokers")
        return {*(answer.get("brokerAddrTable") or ()), *(answer.get("clusterAddrTable") or ())}

    def _first(self, code: int, what: str) -> dict[str, Any]:
        why: list[NetworkError] = []
        for address in self._access.name_servers:
            try:
                with Connection(address, self._access) as connection:
                    answer = connection.ask(code)
                    if answer.code != ResponseCode.SUCCESS:
                        raise refused(address, what, answer)
                    return _json(address, answer)
            except NetworkError as error:
                why.append(error)
        raise _none(why)


def _route(connection: Connection, topic: str) -> Route:
    from appliance.client.core.routes import MASTER, read_route
    from appliance.client.errors import BadAnswer

    address = connection.address
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        hint = "With the option failOnMissingTopic=false it is read as one without messages."
        raise Refused(f"{address} knows no topic {topic}. {hint}", answer.code)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(address, f"the route of {topic}", answer)
    try:
        route = read_route(bytes(answer.body))
    except BadAnswer as error:
        raise Garbled(f"{address} sent a route of {topic} that is none: {error}") from None
    brokers = {name: tuple(by_id[number] for number in sorted(by_id)) for name, by_id in route.brokers.items() if by_id}
    masters = frozenset(by_id[MASTER] for by_id in route.brokers.values() if MASTER in by_id)
    readable = [one for one in route.queues if one.perm & PERM_READ and one.broker_name in brokers]
    if route.queues and not readable:
        raise Refused(f"{address} says that topic {topic} must not be read", ResponseCode.NO_PERMISSION)
    queues = [Queue(one.broker_name, topic, queue_id) for one in readable for queue_id in range(one.read_queues)]
    return Route(tuple(queues), brokers, masters)


def _in_order(addresses: dict[str, str]) -> Addresses:
    return tuple(str(addresses[number]) for number in sorted(addresses, key=int))


def _json(address: str, answer: Answer) -> dict[str, Any]:
    try:
        body = loads(bytes(answer.body))
        if isinstance(body, dict):
            return body
    except ValueError:
        pass
    raise Garbled(f"{address} sent an answer that is no JSON object: {bytes(answer.body[:40])!r}")


def _none(why: list[NetworkError]) -> NetworkError:
    """Return one error for those of several servers. A refusal is more useful than that a server is away."""
    refusals = [error for error in why if isinstance(error, Refused)]
    if refusals and len({error.code for error in refusals}) == 1:
        return refusals[0]
    if len(why) == 1:
        return why[0]
    text = "; ".join(dict.fromkeys(str(error) for error in why))
    return Unreachable(f"no name server can be used: {text}")
