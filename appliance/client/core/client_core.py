"""One client as its brokers see it: an id, heartbeats, producers and groups; it also keeps routes fresh. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import BadAnswer
from ..message import ReceivedMessage
from ..wire import VERSION, RemotingCommand, RequestCode, ResponseCode, version_name
from . import inspection, requests
from .answers import refusal
from .directory import Directory
from .group import Group, Surroundings
from .push_group import Direct, PushGroup
from .request_reply import Question, take_reply
from .selection import Faults
from .steps import Call, CallFailed, Clock, Sleep, Start, Steps, Together
from .transactions import Half, half_of_check

_ABOUT_MEMBERS = frozenset(
    (
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
)
_HEARTBEAT_S = 30.0
#: Pause before a heartbeat that a broker had no time for is sent again: doubled each time, up to half a second.
_BUSY_PAUSE_S, _MOST_BUSY_PAUSE_S = 0.02, 0.5
_ROUTES_S = 30.0
#: Time between two readings of the list of name servers, as Java has it.
_SERVERS_S = 120.0


class ClientCore:
    """Guarded by the client's lock."""

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        client_id: str,
        timeout: float,
        note: Callable[[str], None],
        stacks: Callable[[], str] = str,
    ) -> None:
        """stacks: returns the stacks of this process's threads as text."""
        self._stacks = stacks
        self.directory = directory
        self.client_id = client_id
        self.faults = Faults()
        #: Groups of producers that have sent something.
        self.producers: set[str] = set()
        self.groups: dict[str, Group[Any]] = {}
        #: Group of a transactional producer -> called when a broker checks how a transaction of it ends.
        self.checkers: dict[str, Callable[[Half, ReceivedMessage], None]] = {}
        #: Correlation id -> request of this client whose reply is waited for.
        self.questions: dict[str, Question] = {}
        self._clock = clock
        self._timeout = timeout
        self._note = note
        self.surroundings = Surroundings(client_id, directory, clock, timeout, self.beat_for, note)

    # --- what goes on by itself

    def keep_house(self) -> Steps[None]:
        """Start the loops of heartbeats and routes, which go on until the shell stops."""
        yield Start(self._keep_heartbeats())
        yield Start(self._keep_routes())
        if self.directory.has_list:
            yield Start(self._keep_servers())

    def _keep_heartbeats(self) -> Steps[None]:
        while True:
            yield Sleep(self._clock.monotonic() + _HEARTBEAT_S)
            yield from self.beat_all()

    def _keep_servers(self) -> Steps[None]:
        while True:
            yield Sleep(self._clock.monotonic() + _SERVERS_S)
            yield from self.directory.discover()

    def _keep_routes(self) -> Steps[None]:
        while True:
            yield Sleep(self._clock.monotonic() + _ROUTES_S)
            changed = yield from self.directory.refresh()
            for group in list(self.groups.values()):
                if not changed.isdisjoint(group.subscriptions):
                    yield Start(group.rebalance())

    # --- members of groups

    def join(self, group: Group[Any], beginning: Steps[None], commit_s: float | None) -> Steps[None]:
        """Begin a member and have heartbeats name it. commit_s: seconds between its commits; None: it commits by itself
        nothing. Raises what `beginning` does; then it is no member. One that was closed before does not begin."""
        if group.is_closed:
            return
        self.groups[group.group] = group
        try:
            yield from beginning
        except BaseException:
            self.part(group)
            raise
        if commit_s is not None:
            yield Start(group.keep_committed(commit_s))

    def part(self, group: Group[Any]) -> None:
        """Have heartbeats no longer name a member."""
        if self.groups.get(group.group) is group:
            del self.groups[group.group]

    # --- heartbeats

    def announce(self, topics: Iterable[str], deadline: float) -> Steps[None]:
        """Send a heartbeat to the brokers of these topics, too, from now on. Raises NoNameServer, NoRoute."""
        for topic in topics:
            yield from self.directory.publish_queues(topic, deadline)
        yield from self.beat_all()

    def beat_all(self) -> Steps[None]:
        addresses = self.directory.addresses(masters_only=not self.groups)
        yield Together([self.beat(address) for address in addresses])

    def beat(self, address: str) -> Steps[None]:
        """Send a heartbeat to one broker. One that cannot be reached gets it when a connection to it opens."""
        yield from self._beat_with(address, sorted(self.producers), list(self.groups.values()))

    def beat_for(self, address: str, group: Group[Any]) -> Steps[None]:
        """Send a heartbeat that names one member alone; those that earlier ones named stay. With all of them in it the
        starts of many consumers would send bytes by the square of their number."""
        yield from self._beat_with(address, (), (group,))

    def _beat_with(self, address: str, producers: Sequence[str], groups: Sequence[Group[Any]]) -> Steps[bool]:
        """Name these in one heartbeat, or in several, one after the other, that are short enough for brokers. False if
        the broker cannot be reached."""
        deadline, pause = self._clock.monotonic() + self._timeout, _BUSY_PAUSE_S
        while True:
            # One that has left would be a member again, until its connection ends.
            producers = [name for name in producers if name in self.producers]
            consumers = [group.member() for group in groups if not (group.is_closed or group.is_joining)]
            if not producers and not consumers:
                return True
            request = requests.heartbeat(self.client_id, producers, consumers)
            if len(request.body) > requests.HEARTBEAT_BYTES and len(producers) + len(groups) > 1:
                some, few = len(producers) // 2, (len(groups) + 1) // 2
                goes_on = yield from self._beat_with(address, producers[:some], groups[:few])
                return goes_on and (yield from self._beat_with(address, producers[some:], groups[few:]))
            answer = yield Call(address, request, deadline)
            if isinstance(answer, CallFailed):
                return False
            again_at = self._clock.monotonic() + pause
            if answer.code != ResponseCode.SYSTEM_BUSY or again_at >= deadline:
                break
            yield Sleep(again_at)
            pause = min(_MOST_BUSY_PAUSE_S, pause * 2)
        if answer.code == ResponseCode.SUCCESS:
            self.directory.versions[address] = answer.version
        else:
            self._note(str(refusal(answer, f"broker at {address}", "a heartbeat")))
        return True

    def opened(self, address: str) -> Steps[None]:
        """Send a heartbeat on a connection that was made: brokers identify clients by their connections."""
        if address in self.directory.addresses():
            yield from self.beat(address)

    def asked(
        self, address: str, question: RemotingCommand, reply: Callable[[RemotingCommand], None]
    ) -> tuple[Steps[None] | None, RemotingCommand | None]:
        """Return (a procedure to start, the answer) for a request of the broker at `address`; without an answer,
        `reply` gets it later."""
        if question.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check(address, question)
            return None, requests.request(ResponseCode.SUCCESS, None)
        if question.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            group = self.groups.get(question.ext_fields.get("consumerGroup", ""))
            return None if group is None else group.rebalance(), requests.request(ResponseCode.SUCCESS, None)
        if question.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return None, self._reply(address, question)
        if question.code in _ABOUT_MEMBERS:
            try:
                return self._about_member(question, reply)
            except BadAnswer as error:
                self._note(f"broker at {address} asked something that is not understood: {error}")
                answer = requests.request(ResponseCode.SYSTEM_ERROR, None)
                answer.remark = str(error)
                return None, answer
        return None, requests.not_supported(question)

    def _about_member(
        self, question: RemotingCommand, reply: Callable[[RemotingCommand], None]
    ) -> tuple[Steps[None] | None, RemotingCommand | None]:
        """Do as `asked` for what concerns a member of a group. Raises BadAnswer."""
        fields, code = question.ext_fields, question.code
        name = fields.get("consumerGroup") or fields.get("group") or ""
        group = self.groups.get(name)
        if code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            offsets = {} if group is None else group.passed_offsets(fields.get("topic", ""))
            return None, inspection.answer_with(inspection.status(offsets))
        if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            offsets = inspection.read_offsets(question.body)
            steps = group.reset(fields.get("topic", ""), offsets) if isinstance(group, PushGroup) else None
            return steps, requests.request(ResponseCode.SUCCESS, None)
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO and group is not None:
            servers = "".join(f"{server};" for server in self.directory.servers)
            about = {
                "PROP_NAMESERVER_ADDR": servers,
                "PROP_CLIENT_VERSION": version_name(VERSION),
                "language": "PYTHON",
            }
            stacks = self._stacks() if fields.get("jstackEnable") == "true" else None
            return None, inspection.answer_with(group.running_info(about, stacks))
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY and isinstance(group, PushGroup):
            return None, group.consume_directly(Direct(inspection.read_message(question), reply))
        return None, inspection.unknown_group(name)

    def _reply(self, address: str, push: RemotingCommand) -> RemotingCommand:
        try:
            if not take_reply(self.questions, address, push):
                self._note(f"broker at {address} pushed a reply to a request that nobody waits for any more")
        except BadAnswer as error:
            self._note(str(error))
            return requests.request(ResponseCode.SYSTEM_ERROR, None)
        return requests.request(ResponseCode.SUCCESS, None)

    def _check(self, address: str, question: RemotingCommand) -> None:
        try:
            half, message = half_of_check(address, question)
        except BadAnswer as error:
            self._note(str(error))
            return
        checker = self.checkers.get(half.group)
        if checker is not None:
            checker(half, message)

    def leave(self, producer: str) -> Steps[None]:
        """Unregister a group of producers at all brokers."""
        self.producers.discard(producer)
        self.checkers.pop(producer, None)
        yield Together([self._unregister_at(address, producer) for address in self.directory.addresses(True)])

    def _unregister_at(self, address: str, producer: str) -> Steps[None]:
        request = requests.unregister(self.client_id, producer=producer)
        yield Call(address, request, self._clock.monotonic() + self._timeout)
