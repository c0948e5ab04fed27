"""One machine with one broker: the real parts on simulated threads, clocks and disk; and the clients' ends of its
connections.

A connection is a pair of sockets inside this process. Its bytes are there at once, and the loop reads them when the
scheduler lets it run.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import appliance.engine.broker.open_store as open_store_module
import appliance.engine.broker.processors.pull_answers as pull_answers_module
import appliance.engine.broker.queue_locks as queue_locks_module
import appliance.engine.broker.sampler as sampler_module
import appliance.engine.broker.timers.delivery as delivery_module
import appliance.engine.journal_file as journal_module
import appliance.engine.remoting.event_loop as loop_module
import appliance.engine.store.log.commit_log as commit_log_module
import appliance.engine.window.options as options_module
from appliance.engine.access.parts import Access
from appliance.engine.broker.broker import Broker
from appliance.engine.broker.registration import Network
from appliance.engine.broker.role import NO_TIES, Ties
from appliance.engine.config import BrokerConfig, EngineConfig, Secret, StoreConfig
from appliance.engine.errors import StartError
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.event_loop import READABLE, EventLoop
from appliance.engine.remoting.server import RemotingServer
from appliance.engine.replication.roles import takes_slaves
from appliance.engine.replication.shared_secret import Greeting
from appliance.engine.window.options import Options
from appliance.engine.wire_audit import WireAudit
from tests.world.disk import WorldDisk
from tests.world.network import Network as WorldNetwork
from tests.world.network import simulated_network
from tests.world.schemas import forget_schemas
from tests.world.threads import (
    Event,
    Killed,
    Scheduler,
    WorldClock,
    replaced,
    simulated_threads,
)

ROOT = Path("/world")
LOG_FILE_BYTES = 64 * 1024
#: Which brokers of one name share.
SECRET = b"0123456789abcdef" * 4
#: Longest that anything may take before the world says that it hangs. Virtual seconds.
PATIENCE_S = 120.0


class _Poller:
    """epoll that waits on the world's clock."""

    scheduler: Scheduler

    def __init__(self) -> None:
        self._real = _REAL_POLLER()
        self.register, self.modify = self._real.register, self._real.modify
        self.unregister, self.close = self._real.unregister, self._real.close
        self.signal = Event(self.scheduler)
        #: True if a tick has ended since the world looked for answers.
        self.answered = True

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.answered = self.scheduler.stirred = True
        found = self._real.poll(0)
        if found or timeout == 0:
            return found
        self.signal.clear()
        self.signal.wait(None if timeout < 0 else timeout)
        return self._real.poll(0)


_REAL_POLLER = loop_module._Poller


class WorldLoop(EventLoop):
    """The engine's loop."""

    def wake(self) -> None:
        super().wake()
        self._poller.signal.set()


class Answers:
    """Answer to one request. command: None until it has come, or for ever when the connection closed."""

    __slots__ = ("command", "lost", "then")

    def __init__(self, then: Callable[[RemotingCommand | None], None] | None = None) -> None:
        self.command: RemotingCommand | None = None
        self.lost = False
        self.then = then

    @property
    def ended(self) -> bool:
        return self.lost or self.command is not None

    def end(self, command: RemotingCommand | None) -> None:
        if not self.ended:
            self.command, self.lost = command, command is None
            if self.then is not None:
                self.then(command)


class Peer:
    """A client's end of a connection. on_question: takes the broker's requests."""

    def __init__(self, machine: Machine, number: int, dispatcher: Dispatcher) -> None:
        self._machine = machine
        self._unread = b""
        self._opaque = 0
        self._waiting: dict[int, Answers] = {}
        #: Takes nothing that comes.
        self.deaf = False
        #: Takes what the broker sends unasked, too.
        self.listens = False
        self.on_question: Callable[[RemotingCommand], None] = lambda question: None
        self.sock, theirs = socket.socketpair()
        for sock in (self.sock, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        born = socket.inet_aton("10.0.0.1") + struct.pack(">i", 5000 + number)
        self._conn = Connection(machine.server, theirs, dispatcher, born)
        machine.accept(self._conn)

    def ask(
        self,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        then: Callable[[RemotingCommand | None], None] | None = None,
        flag: int = 0,
    ) -> Answers:
        self._opaque += 1
        answers = self._waiting[self._opaque] = Answers(then)
        text = {name: str(value) for name, value in (fields or {}).items()}
        frame = encode_command(RemotingCommand(code, opaque=self._opaque, flag=flag, ext_fields=text, body=body), 0)
        try:
            assert self.sock.send(frame) == len(frame), "a socket of the world is full"
        except OSError:
            self.lose()
            return answers
        self._machine.loop._poller.signal.set()
        return answers

    def receive(self) -> None:
        """Take what has come."""
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.lose()
                return
            self._unread += data
        while len(self._unread) >= 4:
            size = 4 + struct.unpack_from(">i", self._unread)[0]
            if len(self._unread) < size:
                break
            frame, self._unread = self._unread[:size], self._unread[size:]
            command = decode_frame(frame)
            if not command.is_response:
                self.on_question(command)
            elif (answers := self._waiting.pop(command.opaque, None)) is not None:
                answers.end(command)

    def lose(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            answers.end(None)
        self.closed = True

    closed = False


class Machine:
    """Start, stop and kill the broker; its disk and its clock go on."""

    def __init__(
        self, scheduler: Scheduler, broker: dict[str, Any], store: dict[str, Any], network: WorldNetwork, port: int
    ) -> None:
        """port: its own; the next one is for slaves."""
        self.scheduler = scheduler
        self.network = network
        self.address, self.ha_address = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        network.machines[self.address] = self
        self.config = EngineConfig(
            data_dir=ROOT, broker=BrokerConfig(broker_name="broker-a", **broker), store=StoreConfig(**store)
        )
        self.disk = WorldDisk(lambda: self.scheduler.wall_ms, self._pause)
        self.disk.make_directory(ROOT)
        self.running = False
        #: Counts its starts.
        self.lives = 0
        self.broker: Broker
        #: Physical offset where the log ended when the broker opened it.
        self.log_at_start = 0
        self.peers: list[Peer] = []
        self._numbers = 0
        self.access: Access | None = None
        self._signed: Dispatcher | None = None
        #: From its next start on it has users of the wire, and proves itself to the broker that it copies from.
        self.has_users = False

    def _pause(self) -> None:
        """A sync takes its time; other threads go on."""
        scheduler = self.scheduler
        if scheduler.current is not None and not self.disk.dead:
            scheduler.block(None, self.disk.slow_s or scheduler.chance.choice((0.0002, 0.0005, 0.001, 0.004)))
            if self.disk.dead:
                raise Killed

    @property
    def listens(self) -> bool:
        """True if its ports are open."""
        return self.running

    @property
    def log_failed(self) -> bool:
        """The log says that it takes nothing more until a restart."""
        return self.running and self.broker.store.log.broken is not None

    def configure(self, broker: dict[str, Any], store: dict[str, Any]) -> None:
        """Other settings, from the next start on."""
        config = self.config
        self.config = dataclasses.replace(
            config,
            broker=dataclasses.replace(config.broker, **broker),
            store=dataclasses.replace(config.store, **store),
        )

    # --- life

    def start(self) -> str | None:
        """None when it serves; why not, when it refuses to start. It may be killed meanwhile: then `running` is False
        and None is returned."""
        failure: list[str] = []

        def start() -> None:
            try:
                self._start()
            except StartError as error:
                failure.append(str(error))

        self._do(start, "start")
        if failure:
            self._end()
            return failure[0]
        self.running = not self.disk.dead
        if not self.running:
            self._end()
        return None

    def _start(self) -> None:
        self.lives += 1
        disk = self.disk
        disk.make_directory(ROOT / "store")
        disk.make_directory(ROOT / "rocketbox")
        clock = WorldClock(self.scheduler)
        self.loop = loop = WorldLoop(clock)
        self.server = RemotingServer(loop)
        self.server.keep_descriptors(4096)
        options = Options(self.config)
        options.load()
        self.pools: dict[str, Any] = {}
        sock: Any = self.network.listen(self.ha_address) if takes_slaves(self.config.store) else None
        ties = NO_TIES
        if self.has_users:
            self.access = access = self._make_access()
            ties = Ties(functools.partial(Greeting, SECRET), access.new_copies)
        self.broker = self._make_broker(options, sock, ties)
        self.log_at_start = self.broker.store.log.written
        if self.config.store.ha_master_address:  # as a name server would have told it
            self.broker.registration.master = (self.config.store.ha_master_address[:-1] + "1", "")
        self.broker.join_loop()
        self.dispatcher = Dispatcher(self.pools, (), clock)
        self.broker.register(self.dispatcher)
        if self.access is not None:
            self._open_port(self.access)
        loop.at_tick_end(self.server.flush_dirty)
        loop.start()
        for pool in self.pools.values():
            pool.start()
        self.broker.start()

    def _make_broker(self, options: Options, sock: Any, ties: Ties) -> Broker:
        network = Network(self.address, self.ha_address, (), sock, ties=ties)
        broker = Broker(options, self.loop, self.server, self.pools, network)
        forget_schemas(broker, self.pools, self.config)
        return broker

    def accept(self, conn: Connection) -> None:
        """Serve a connection, as the server does when it has accepted one."""
        self.server._read_by(conn)
        self.loop.watch(conn.fd, READABLE, conn)
        self.server.connections.put(conn)

    def _do(self, work: Callable[[], None], name: str) -> None:
        task = self.scheduler.spawn(work, name, self)
        scheduler, others = self.scheduler, False
        done = scheduler.run(lambda: task.ended, PATIENCE_S)
        while scheduler.killed and not self.disk.dead and not task.ended:  # another machine was; this one goes on
            scheduler.killed, others = False, True
            done = scheduler.run(lambda: task.ended, PATIENCE_S)
        scheduler.killed = scheduler.killed or others
        assert done or self.disk.dead or task.ended, f"{name} hangs"

    def stop(self) -> bool:
        """Stop the broker as SIGTERM does. False if the disk killed it on its way."""

        def stop() -> None:
            broker, loop = self.broker, self.loop
            broker.unregister(1.0)
            loop.call_soon(lambda: (self.server.stop_accepting(), self.server.pause_reading(True)))
            broker.answer_everything(3.0)
            loop.call_soon(self.server.close_all)
            for pool in self.pools.values():
                pool.stop(1.0)
            assert loop.stop(2.0), "the loop does not end"
            broker.stop()

        self._do(stop, "stop")
        self._receive()
        clean = not self.disk.dead
        self._end()
        return clean

    def kill(self, mode: str, chance: random.Random) -> None:
        """SIGKILL for the mode "all"; else the machine loses its power."""
        self.disk.crash(mode, chance)
        self._end()

    def _end(self) -> None:
        self.running = False
        self.access = self._signed = None
        self.disk.dead = True
        self.scheduler.end_all(self)
        self.network.listeners.pop(self.ha_address, None)
        self.network.take_in()
        for peer in self.peers:
            peer.sock.close()
            peer._conn._sock.close()
            peer.lose()
        self.peers = []
        if hasattr(self, "loop"):
            self.loop.close()
            del self.loop
        self.disk = self.disk.next_life(self._pause)

    def connect(self, signs: bool = False) -> Peer:
        """signs: on the port where requests are signed, which `open_users` opens."""
        self._numbers += 1
        dispatcher = self.dispatcher
        if signs:
            assert self._signed is not None, "no user may come"
            dispatcher = self._signed
        self.peers.append(Peer(self, self._numbers, dispatcher))
        return self.peers[-1]

    def open_users(self) -> Access:
        """Open a second port, where users of the wire sign their requests; it stays open over restarts. Called on a
        thread of the broker. Raises OSError."""
        if self.access is None:
            try:
                self.access = access = self._make_access()
            except StartError as error:
                raise OSError(str(error)) from None
            self._open_port(access)
            self.has_users = True
        return self.access

    def _make_access(self) -> Access:
        """Raises StartError."""
        first = Secret('{"username":"root","password":"the secret of root"}')
        broker = dataclasses.replace(self.config.broker, access_control="enforce", init_authentication_user=first)
        store = dataclasses.replace(self.config.store, ha_secret_file="its bytes are SECRET")
        config = dataclasses.replace(self.config, broker=broker, store=store)
        audit = WireAudit(ROOT / "rocketbox", self.loop.clock, self.disk)
        return Access(config, "127.0.0.1", self.loop.clock, self.loop, self.server, audit, SECRET)

    def _open_port(self, access: Access) -> None:
        signed = Dispatcher(self.pools, (access.gate,), self.loop.clock)
        self.broker.register(signed)
        self._signed = signed
        assert access.members is not None, "it has the secret"
        access.members.register(self.dispatcher)

    def hang_up(self, peer: Peer) -> None:
        """A client closes its end."""
        self.peers.remove(peer)
        peer.sock.close()
        peer.lose()
        self.loop._poller.signal.set()

    # --- time

    def run(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let the broker run until `done()`, with answers taken as they come. False after so many seconds, and when it
        was killed."""

        poller = self.loop._poller

        def look() -> bool:
            if poller.answered:
                poller.answered = False
                self._receive()
            return done()

        return self.scheduler.run(look, seconds) and not self.disk.dead

    def _receive(self) -> None:
        for peer in self.peers:
            if not peer.closed and not peer.deaf and (peer._waiting or peer.listens):
                peer.receive()

    @property
    def killed(self) -> bool:
        """True if the disk has ended the process."""
        return self.running and self.disk.dead


def seams(disk: Callable[[], WorldDisk]) -> list[tuple[object, str, object]]:
    """Return what stands in for parts of the engine, beside its threads. disk: of the machine on which this runs."""
    return [
        *(
            (module, "Disk", lambda private=None: disk())
            for module in (open_store_module, options_module, journal_module)
        ),
        # A hog of some requests can take all of it; one client has 16 at most.
        (queue_locks_module, "MOST_LEASES", 30),
        (queue_locks_module, "FEW_LEASES", 20),
        # For two seconds behind each timer that is due soon its thread looks every two milliseconds.
        (delivery_module, "SOON_S", 0.05),
        # No chart is drawn here, and a sample takes a millisecond.
        (sampler_module, "PERIOD_S", 30.0),
        # To clear a megabyte takes a millisecond, and each start asks for three.
        (commit_log_module, "STAGE_BYTES", 2 * LOG_FILE_BYTES),
        (pull_answers_module, "_READ_BUFFER_BYTES", 2 * LOG_FILE_BYTES),
        (loop_module, "RECEIVE_BUFFER_BYTES", 2 * LOG_FILE_BYTES),
    ]


@contextmanager
def simulated_machine(scheduler: Scheduler, broker: dict[str, Any], store: dict[str, Any]) -> Iterator[Machine]:
    """A machine without a running broker; the engine lives in the scheduler's world until the end."""
    network = WorldNetwork(scheduler)
    with simulated_machines(scheduler, network, lambda: Machine(scheduler, broker, store, network, 10911)) as machine:
        yield machine


_M = TypeVar("_M", bound=Machine)


@contextmanager
def simulated_machines(scheduler: Scheduler, network: WorldNetwork, make: Callable[[], _M]) -> Iterator[_M]:
    """The same, with a network and a first machine of another kind."""
    with simulated_threads(scheduler), simulated_network(network):
        machine = make()

        def here() -> Machine:
            """The machine on which this runs."""
            task = scheduler.current
            return task.owner if task is not None and isinstance(task.owner, Machine) else machine

        _Poller.scheduler = scheduler
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with replaced([(loop_module, "_Poller", _Poller), *seams(lambda: here().disk)]):
                yield machine
                for one in network.machines.values():
                    if one.running:
                        one._end()
        finally:
            logging.disable(level)
            for one in network.machines.values():
                one.disk.close_all()
