"""Name servers, the routes from them, and brokers' versions. PURE.

A route is read when a topic is first used, kept, and read again every 30 s or when a broker answers that it does not
have the topic. While name servers are away, the known routes stay in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from ..errors import BadAnswer, ClientError, NoNameServer, NoRoute
from ..message import MessageQueue
from ..wire import TEMPLATE_TOPIC, RemotingCommand, ResponseCode
from . import requests
from .answers import code_text
from .routes import MASTER, Route, read_route
from .steps import Call, CallFailed, Clock, Do, Steps, Together

Answer = TypeVar("Answer")

HOW_TO_SAY_WHERE = (
    'Say where one is: Client("host:9876"), or the environment variable NAMESRV_ADDR. '
    "`rocketbox serve` starts one on 127.0.0.1:9876."
)

#: Shortest time between two readings of the list after name servers did not answer.
_LEAST_FETCH_S = 5.0


def _say_nothing(_text: str) -> None:
    pass


class Directory:
    """Guarded by the client's lock."""

    def __init__(
        self,
        name_servers: Sequence[str],
        clock: Clock,
        timeout: float,
        fetch: Callable[[], tuple[tuple[str, ...], str]] | None = None,
    ) -> None:
        """name_servers: "host:port" each, in the order in which they are tried. timeout: seconds for one request.
        fetch: reads their list where it is kept; returns (addresses, ""), or ((), why there are none)."""
        #: True if messages from its brokers are checked against their CRC.
        self.verifies = False
        #: Take sentences for the log: warnings, and news.
        self.note: Callable[[str], None] = _say_nothing
        self.tell: Callable[[str], None] = _say_nothing
        self._fetch = fetch
        self._fetched_at = 0.0
        self._no_list = ""
        self._servers = tuple(name_servers)
        self._chosen = 0
        self._clock = clock
        self._timeout = timeout
        self._routes: dict[str, Route] = {}
        #: Topics that did not exist when they were looked up: their route is the template's.
        self._borrowed: set[str] = set()
        #: Broker address -> MQVersion ordinal, from its answer to a heartbeat.
        self.versions: dict[str, int] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return self._servers

    # --- looking up

    def known(self, topic: str) -> Route | None:
        """Return the route of a topic; None if it was not looked up, or did not exist then."""
        return None if topic in self._borrowed else self._routes.get(topic)

    def route_to_publish(self, topic: str) -> Route | None:
        """Return the route that sends to a topic use now; None if it was not looked up."""
        return self._routes.get(topic)

    def look_up(self, topic: str, deadline: float) -> Steps[Route | None]:
        """Read and keep the name server's route of a topic; None if it has none, and a route that was kept stays.

        Raises NoNameServer.
        """
        route = yield from self._ask(topic, deadline)
        if route is not None:
            self._routes[topic] = route
            self._borrowed.discard(topic)
        return route

    def publish_queues(self, topic: str, deadline: float) -> Steps[tuple[MessageQueue, ...]]:
        """Return the queues to send to, at least one; for a topic that a send will create, its future queues.

        Raises NoNameServer, NoRoute.
        """
        route = self._routes.get(topic)
        queues = route.publish_queues(topic) if route else ()
        if queues:
            return queues
        route = yield from self.look_up(topic, deadline)
        queues = route.publish_queues(topic) if route else ()
        if queues:
            return queues
        if route is None:
            template = yield from self._ask(TEMPLATE_TOPIC, deadline)
            if template is not None and (queues := template.borrowed().publish_queues(topic)):
                self._routes[topic] = template.borrowed()
                self._borrowed.add(topic)
                self.tell(f"the topic {topic} does not exist yet: brokers make it with the first message")
                return queues
        raise NoRoute(self._no_route(topic, route))

    def read_queues(self, topic: str, deadline: float) -> Steps[tuple[MessageQueue, ...]]:
        """Return the queues that can be read. Raises NoNameServer, NoRoute."""
        route = self.known(topic) or (yield from self.look_up(topic, deadline))
        queues = route.read_queues(topic) if route else ()
        if not queues:
            raise NoRoute(self._no_route(topic, route, "."))
        return queues

    def _no_route(
        self, topic: str, route: Route | None, further: str = ", and none that makes topics by itself."
    ) -> str:
        server = self._servers[self._chosen]
        if route is not None:
            return (
                f"The topic {topic} has no queue to use: the brokers that name server {server} knows have none, lack "
                "their master, or the topic's permission (perm) forbids it."
            )
        return (
            f"Name server {server} knows no broker with the topic {topic}{further} If a broker is running, does it "
            "register at this name server? If so, create the topic: `rocketbox topic create "
            f"{topic}`, or mqadmin updateTopic. With access control, a topic without a right on it is unknown, too."
        )

    def forget(self, topic: str) -> None:
        """Have the next send look the topic up again, since a broker answered that it does not have it."""
        self._routes.pop(topic, None)
        self._borrowed.discard(topic)

    def refresh(self) -> Steps[set[str]]:
        """Look all topics up again, side by side; return those whose route changed. On errors the known routes stay."""
        before = dict(self._routes)
        deadline = self._clock.monotonic() + self._timeout
        yield Together([self.look_up(topic, deadline) for topic in before])
        addresses = set(self.addresses())
        self.versions = {address: found for address, found in self.versions.items() if address in addresses}
        return {topic for topic, route in before.items() if self._routes.get(topic) != route}

    # --- addresses

    def master(self, queue: MessageQueue) -> str | None:
        """Return the address of the master of the queue's broker, None if none is known."""
        return self._brokers(queue).get(MASTER)

    def readable(self, queue: MessageQueue) -> str | None:
        """Return the address to pull from and commit to: the master's, else another member's; None if none is known."""
        brokers = self._brokers(queue)
        return brokers.get(MASTER) or next(iter(brokers.values()), None)

    def _brokers(self, queue: MessageQueue) -> dict[int, str]:
        route = self._routes.get(queue.topic)
        return route.brokers.get(queue.broker_name, {}) if route else {}

    def addresses(self, masters_only: bool = False) -> Iterable[str]:
        """Return the addresses of all brokers of all known routes, each once."""
        return dict.fromkeys(
            address
            for route in self._routes.values()
            for brokers in route.brokers.values()
            for number, address in sorted(brokers.items())
            if number == MASTER or not masters_only
        )

    # --- name servers

    def discover(self) -> Steps[bool]:
        """Read the list of name servers again; True if it is another. If there is none, the known ones stay."""
        if self._fetch is None:
            return False
        self._fetched_at = self._clock.monotonic()
        found, self._no_list = yield Do(self._fetch, waits_long=True)
        if not found or set(found) == set(self._servers):
            return False
        chosen = self._servers[self._chosen] if self._servers else ""
        self._servers = found
        self._chosen = found.index(chosen) if chosen in found else 0
        return True

    @property
    def has_list(self) -> bool:
        """True if the name servers are in a list that is kept elsewhere."""
        return self._fetch is not None

    def _ask(self, topic: str, deadline: float) -> Steps[Route | None]:
        return (yield from self.ask(partial(requests.route_of, topic), read_route, deadline))

    def ask(
        self, make: Callable[[], RemotingCommand], read: Callable[[bytes], Answer], deadline: float
    ) -> Steps[Answer | None]:
        """Query name servers in turn until one answers; it is the first from then on. If none does, the list of them
        may have changed. make: makes the request. Returns what `read` makes of the answer's body; None if there is no
        such topic.

        Raises NoNameServer.
        """
        if not self._servers:
            yield from self.discover()
        asked = self._servers
        try:
            return (yield from self._ask_known(make, read, deadline))
        except NoNameServer:
            now = self._clock.monotonic()
            if not self._servers or now >= deadline:
                raise
            if self._servers is asked and (now < self._fetched_at + _LEAST_FETCH_S or not (yield from self.discover())):
                raise
        return (yield from self._ask_known(make, read, deadline))

    def _ask_known(
        self, make: Callable[[], RemotingCommand], read: Callable[[bytes], Answer], deadline: float
    ) -> Steps[Answer | None]:
        if not self._servers:
            why = f"{self._no_list}." if self._no_list else "No name server is configured."
            raise NoNameServer(f"{why} {HOW_TO_SAY_WHERE}")
        failures = []
        servers, first = self._servers, self._chosen  # there may be another list meanwhile
        for tried in range(len(servers)):
            at = (first + tried) % len(servers)
            if servers is self._servers:
                self._chosen = at
            server = servers[at]
            now = self._clock.monotonic()
            share = (deadline - now) / (len(servers) - tried)
            answer = yield Call(server, make(), now + min(share, self._timeout))
            if isinstance(answer, CallFailed):
                failures.append(f"{server} {_why(answer)}")
            elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            elif answer.code != ResponseCode.SUCCESS:
                failures.append(f"{server} answered {code_text(answer.code)}: is it a name server, and not a broker?")
            else:
                try:
                    return read(answer.body)
                except BadAnswer as error:
                    failures.append(f"{server}: {error}")
        why = "; ".join(failures)
        raise NoNameServer(f"No name server answers: {why}{'' if why.endswith('?') else '.'} {HOW_TO_SAY_WHERE}")


def _why(failed: CallFailed) -> str:
    if failed.kind == "timeout":
        return "did not answer in time"
    return failed.why if failed.kind == "broken" else f"cannot be reached ({failed.why})"


def first_error(outcomes: Iterable[object]) -> ClientError | None:
    """Return the first error among the outcomes of `Together`, None without one."""
    return next((one for one in outcomes if isinstance(one, ClientError)), None)
