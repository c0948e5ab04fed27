"""The seat of this process's broker: ports, connections and clients stay while a broker is replaced by one of another
role.

The old broker is closed as at a stop, and the new one is built as at a start; a broker never changes its role inside.
Meanwhile requests wait in their sockets for a second; then they are answered 14. If the new broker cannot be built, the
seat stays empty, and answers and `health()` give the reason.

`OwnBrokers.lead` (failover/brokers.py) calls `change` on the thread `failover`. On `remoting-io` the ports are given to
`Meanwhile`, held pulls are answered, pools finish their requests, and the broker leaves the loop. It stops as at a
stop, and its store closes clean. The store may then be changed while it is closed (a cut). The next broker opens it and
attaches the parts of its role: a leader its links, the position it waits for, and its tables (`broker/promotion.py`).
It starts, registers, and on `remoting-io` gets ports, connections and the table of clients; from then on the window
asks it. So promotion, demotion, a cut of the log and a start after a crash are one path: recovery. `fence` comes first:
a watermark below everything stops publication at once, from any thread, whatever `remoting-io` is doing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .broker.broker import Broker, RunningOptions
from .broker.registration import Network
from .broker.role import Role
from .clock import Clock
from .errors import RefusedRequest, StoreBroken
from .loop_calls import raise_from_loop
from .protocol.codes import RequestCode, ResponseCode
from .protocol.command import RemotingCommand
from .remoting.connection import Connection
from .remoting.dispatcher import Dispatcher, Meanwhile, WorkerPool
from .remoting.event_loop import EventLoop, Timer
from .remoting.server import RemotingServer
from .wire_gate import Act

if TYPE_CHECKING:
    from .broker.clients import ClientManager

logger = logging.getLogger(__name__)

#: Time that requests wait for the next broker before they are refused.
HOLD_S = 1.0
#: Time that a broker that ends waits for its name servers, for answers, and for the work in its pools.
UNREGISTER_S, ANSWER_S, POOLS_S = 0.5, 1.0, 2.0
LOOP_CALL_S = 5.0
#: Time after which no thread reads the files of an ended broker, and number of ended brokers that are kept for that.
READERS_S, MOST_LEFT = 10.0, 2
#: The name server's pool does no work of a broker.
_NOT_OURS = frozenset(("namesrv",))
#: Requests that only the leader can answer: sends, and acts of the leader alone.
LEADERS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
#: Requests for positions or messages of the log: a follower refuses them until its leader has confirmed its log. Pulls
#: are checked elsewhere.
READS = (
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)

#: Accepts a request that only the leader can answer; returns False if it does not accept it.
Elsewhere = Callable[[RemotingCommand, Connection], bool]


class Seat:
    """`fill` before the loop runs; `change` and `fence` from any thread but remoting-io, one at a time."""

    def __init__(
        self,
        options: RunningOptions,
        loop: EventLoop,
        server: RemotingServer,
        pools: dict[str, WorkerPool],
        network: Network,
        new_dispatcher: Callable[[Mapping[int, Act]], Dispatcher],
        tell_directly: Callable[[Broker], None],
    ) -> None:
        """tell_directly: called before a broker starts; makes it notify this process's name server without the wire."""
        # Constant after construction.
        self._options = options
        self.loop = loop
        self.server = server
        self._pools = pools
        self._network = network
        self._clock = loop.clock
        self._new_dispatcher = new_dispatcher
        self._tell_directly = tell_directly
        self._meanwhile = (Meanwhile(), Meanwhile())
        #: Called when the broker has gone, and when the next one serves. Set before the first change.
        self.on_gone: Callable[[], None] = lambda: None
        self.on_there: Callable[[Broker], None] = lambda broker: None
        # Guarded by _changing for writing.
        self._changing = threading.Lock()
        self.broker: Broker | None = None
        #: Reason why there is no broker; "" while there is one.
        self.why_empty = ""
        self._clients: ClientManager | None = None
        #: Brokers that ended lately, and when.
        self._left: deque[tuple[Broker, float]] = deque()
        # Owned by remoting-io.
        self._let_in_at: Timer | None = None
        # Replaced whole.
        #: Dispatchers of the main port and of the VIP port.
        self.ports: tuple[Dispatcher, Dispatcher] = self._meanwhile
        #: Passes on requests that only the leader can answer.
        self.elsewhere: Elsewhere | None = None

    # --- the first one

    def fill(self, role: Role | None) -> tuple[Dispatcher, Dispatcher]:
        """Build the first broker, before the loop runs. Raises StartError."""
        broker = self._build(role)
        broker.join_loop()
        self.broker = broker
        self.ports = self._tables(broker)
        return self.ports

    def _build(self, role: Role | None) -> Broker:
        broker = Broker(self._options, self.loop, self.server, self._pools, self._network, role)
        self._tell_directly(broker)
        return broker

    def _tables(self, broker: Broker) -> tuple[Dispatcher, Dispatcher]:
        main = self._new_dispatcher(broker.wire_acts())
        vip = broker.register(main)
        if broker.role.is_member and not broker.role.appends:
            for dispatcher in (main, vip):
                for code in LEADERS:
                    dispatcher.give(code, lambda request, conn: self._ask_leader(broker.role, request, conn))
                for code in READS:
                    dispatcher.wrap(code, broker.refuse_reads)
        return main, vip

    def _ask_leader(self, role: Role, request: RemotingCommand, conn: Connection) -> None:
        elsewhere = self.elsewhere
        if elsewhere is None or not elsewhere(request, conn):
            remark = f"service not available now: {role.no_sends}"
            raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    # --- the next ones

    def change(
        self,
        role: Role,
        attach: Callable[[Broker], None] = lambda broker: None,
        offline: Callable[[], object] = lambda: None,
        before_sends: Callable[[Broker], None] = lambda broker: None,
    ) -> Broker:
        """Close the present broker and build one for another role; it serves when this returns.

        offline: works on the closed store. attach: gives the new broker, before it starts, the parts of its role.
        before_sends: called when it has started and does not serve yet. Raises the exception of building; then the seat
        is empty, and `why_empty` has the reason.
        """
        with self._changing:
            begun = self._clock.monotonic()
            self._vacate(f"this broker becomes {role.kind.value}")
            closed = self._clock.monotonic()
            try:
                offline()
                broker = self._build(role)
                try:
                    attach(broker)
                    built = self._clock.monotonic()
                    self._sit(broker, before_sends)
                except BaseException:
                    self._close(broker)
                    raise
            except BaseException as error:
                self._stay_empty(role, error)
                raise
            logger.info(
                "seat: %s epoch=%d, closed in %d ms, built in %d, started in %d",
                role.kind.value,
                role.epoch,
                (closed - begun) * 1000,
                (built - closed) * 1000,
                (self._clock.monotonic() - built) * 1000,
            )
        self.on_there(broker)
        return broker

    def _vacate(self, why: str) -> None:
        """Close the present broker, if any. Its connections wait. Raises StoreBroken if remoting-io hangs."""
        self.on_gone()
        self.why_empty = why
        old = self.broker
        ports = self.ports

        def hold() -> None:
            for own, meanwhile in zip(ports, self._meanwhile, strict=True):
                own.ended = RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")
                meanwhile.refuse_because(why)
                meanwhile.paused = True
            self.server.serve_by(dict(zip(ports, self._meanwhile, strict=True)))
            self.server.update_reading()
            self._let_in_at = self.loop.call_later(HOLD_S, lambda: self._let_in(ports))

        self._on_loop(hold)
        self.ports = self._meanwhile
        if old is not None:
            self._close(old)
            self._clients = old.clients
            self.broker = None
        self._forget_some(MOST_LEFT)

    def _let_in(self, waited_for: tuple[Dispatcher, Dispatcher]) -> None:
        """On remoting-io: the change takes long, so let the waiting requests in; they are refused with the reason."""
        if self.ports is self._meanwhile and waited_for is not self._meanwhile:
            for meanwhile in self._meanwhile:
                meanwhile.paused = False
            self.server.update_reading()

    def _close(self, broker: Broker) -> None:
        """Close a broker as at a stop; no request reaches it now."""
        broker.unregister(UNREGISTER_S)
        self._on_loop(broker.end_pulls)
        if not broker.is_fenced:
            broker.answer_everything(ANSWER_S)
        self._settle_pools()

        def leave() -> None:
            broker.leave_loop()
            for conn in self.server.connections_of(self._meanwhile):
                if conn.lags:  # it has not taken this broker's answers, which could no longer be built
                    conn.close()

        self._on_loop(leave)
        broker.stop(self._settle)
        self._left.append((broker, self._clock.monotonic()))

    def _settle(self) -> None:
        self._on_loop(lambda: None)

    def _settle_pools(self) -> None:
        """Wait until the work that waits in the pools was handled."""
        end = self._clock.monotonic() + POOLS_S
        waiting = []
        for name, pool in list(self._pools.items()):
            done = threading.Event()
            if name not in _NOT_OURS and pool.alive and pool.submit(done.set):
                waiting.append((name, done))
        for name, done in waiting:
            if not done.wait(max(0.0, end - self._clock.monotonic())):
                logger.warning("seat: the pool %s still works for a broker that ends", name)
        self._settle()

    def forget_old(self) -> None:
        """Forget ended brokers from which no thread reads now. Called some time after a change."""
        with self._changing:
            self._forget_some(MOST_LEFT)

    def _forget_some(self, most: int) -> None:
        while self._left and (len(self._left) > most or self._clock.monotonic() - self._left[0][1] > READERS_S):
            self._left.popleft()[0].forget()

    def _sit(self, broker: Broker, before_sends: Callable[[Broker], None]) -> None:
        ports = self._tables(broker)
        for pool in list(self._pools.values()):
            if not pool.alive:
                pool.start()
        broker.start()
        before_sends(broker)
        clients = self._clients

        def serve() -> None:
            broker.join_loop()
            if clients is not None:
                broker.clients.take_over(clients)
            for meanwhile in self._meanwhile:
                meanwhile.paused = False
            if self._let_in_at is not None:
                self._let_in_at.cancel()
            self.ports = ports
            self.server.serve_by(dict(zip(self._meanwhile, ports, strict=True)))

        self._on_loop(serve)
        self.broker, self._clients, self.why_empty = broker, None, ""

    def _stay_empty(self, role: Role, error: BaseException) -> None:
        why = f"it could not become {role.kind.value}: {error}"
        logger.error("seat: empty: %s", why, exc_info=error)
        self.why_empty = why

        def tell() -> None:
            for meanwhile in self._meanwhile:
                meanwhile.refuse_because(why)
                meanwhile.paused = False
            self.server.update_reading()

        self._on_loop(tell)

    def _on_loop(self, job: Callable[[], None]) -> None:
        """Run a job on remoting-io and raise its exception here. StoreBroken if remoting-io hangs."""
        end = self._clock.monotonic() + LOOP_CALL_S
        if not raise_from_loop(self.loop.call_soon, job, lambda: self._clock.monotonic() >= end):
            raise StoreBroken("the I/O thread hangs")

    # --- fencing

    def fence(self, why: str, role: Role, hang_up: bool = True) -> None:
        """Fence the broker: from now on nothing is acknowledged or published, sends are refused, clients' connections
        end, and name servers are notified. Then a broker of `role`, which is fenced, takes the seat. hang_up: close
        connections of clients.

        Raises StoreBroken if remoting-io hangs; even then its later work publishes nothing.
        """
        broker = self.broker
        if broker is not None:
            broker.fence(why, LOOP_CALL_S)
            if hang_up:
                self._on_loop(self._hang_up)
        self.change(role)

    def _hang_up(self) -> None:
        for conn in self.server.connections_of(self.ports):
            conn.close_after_flush()

    # --- the end

    def leave(self) -> None:
        """Forget all ended brokers. Called at the process's end, after the loop and the broker have stopped."""
        self._left.clear()


def wait_until(condition: Callable[[], bool], seconds: float, clock: Clock) -> bool:
    """Wait for a condition; True if it came true in time."""
    end = clock.monotonic() + seconds
    while not condition():
        if clock.monotonic() >= end:
            return False
        time.sleep(0.002)
    return True
