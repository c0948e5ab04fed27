"""The network between brokers: connections that take their time, and that are cut one way or both.

A connection is two pairs of sockets with the network between them: what one end sends is taken in when its thread is
about to wait, and handed to the other end a delay later. While a direction is cut its bytes wait, as TCP would have
them sent again. Clients of a broker are not on it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import appliance.engine.broker.registration as registration_module
import appliance.engine.broker.slave_sync as slave_sync_module
import appliance.engine.replication.bound_follower as bound_follower_module
import appliance.engine.replication.follower as follower_module
import appliance.engine.replication.log_copy as log_copy_module
import appliance.engine.replication.master as master_module
import appliance.engine.replication.slave_link as slave_link_module
import appliance.engine.replication.wake_pipe as wake_pipe_module
from appliance.engine.errors import CallTimeout, ConnectError
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.client import Greet
from tests.world.threads import Event, Scheduler, Task, _InPlaceOf, replaced

if TYPE_CHECKING:
    from tests.world.machine import Machine, Peer

DELAY_S = 0.0005
#: Longest that a call between brokers is waited for on this network, whatever it may take.
_CONNECT_S = 3.0
#: A connection that is being made is given up so soon after its thread has to stop.
_STOP_S = 0.05


class _Way:
    """One direction of a connection: from the network's end on one side to its end on the other."""

    def __init__(self, network: Network, name: str, source: socket.socket, sink: socket.socket) -> None:
        self._network = network
        self.name = name
        self.source, self._sink = source, sink
        self._queue: deque[tuple[float, bytes]] = deque()
        self._carries = False
        self._ended = False
        #: The other direction.
        self.back: _Way | None = None
        #: The sender lost its power: nothing more comes, not even that it closed.
        self.vanished = False

    def take_in(self) -> None:
        """Take in what was sent since the last time. b"" means that the sender closed."""
        while not self._ended:
            try:
                data = self.source.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._ended = not data
            if self._ended:
                self._network.forget(self)
            self._queue.append((self._network.scheduler.now + self._network.delay_of(self.name), data))
            if not self._carries:
                self._carries = True
                self._network.scheduler.spawn(self._carry, f"network {self.name}", self._network)

    def _carry(self) -> None:
        network, scheduler = self._network, self._network.scheduler
        while self._queue:
            due, data = self._queue[0]
            if due > scheduler.now:
                scheduler.block(None, due - scheduler.now)
                continue
            if self.name in network.cuts:
                scheduler.block(network.healed, None)
                continue
            try:
                sent = self._sink.send(data) if data else self._close()
            except BlockingIOError:
                scheduler.block(None, 0.001)
                continue
            except OSError:
                sent = len(data)
                if self.back is not None and self.back.vanished and network.answers_at(self.name):
                    self.back._close()  # another process does not know the connection
            if sent < len(data):
                self._queue[0] = (due, data[sent:])
            else:
                self._queue.popleft()
            network.stir()
        self._carries = False

    def _close(self) -> int:
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:  # twice
            pass
        return 0

    def vanish(self) -> None:
        if not self._ended:
            self._network.forget(self)
        self._ended = self.vanished = True
        self._queue.clear()


class _Listener:
    """A listening socket of a master; readable while a connection waits to be accepted."""

    def __init__(self, network: Network, address: str) -> None:
        self._network, self._address = network, address
        self._in, self._out = socket.socketpair()
        self._waiting: deque[socket.socket] = deque()

    def fileno(self) -> int:
        return self._in.fileno()

    def setblocking(self, flag: bool) -> None:
        self._in.setblocking(flag)

    def getsockname(self) -> tuple[str, int]:
        host, _, port = self._address.rpartition(":")
        return host, int(port)

    def knock(self, sock: socket.socket) -> None:
        self._waiting.append(sock)
        self._out.send(b"k")

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self._in.recv(1)
        self._network.numbers += 1
        return self._waiting.popleft(), ("127.0.0.1", 40_000 + self._network.numbers)

    def dup(self) -> _Door:
        return _Door(self)

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)
        for sock in (*self._waiting, self._in, self._out):
            sock.close()


class _Door:
    """Another descriptor of a listening socket, which stays open when this one is closed."""

    def __init__(self, listener: _Listener) -> None:
        self.fileno, self.accept, self.getsockname = listener.fileno, listener.accept, listener.getsockname
        self.setblocking = listener.setblocking

    def close(self) -> None:
        """Only this descriptor goes."""


class Network:
    """delay_s: of all that is sent, or only in the direction that is `late`. cuts: the directions that let nothing
    through, "to master" and "to slave"."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.delay_s, self.late = DELAY_S, ""
        self.cuts: set[str] = set()
        self.healed: deque[Task] = deque()
        self.listeners: dict[str, _Listener] = {}
        #: "host:port" -> who answers requests there.
        self.machines: dict[str, Machine] = {}
        self.numbers = 0
        #: Threads that wait for sockets, and what each waits with.
        self.waiters: dict[Task, select.poll] = {}
        #: Machine -> its connections to others.
        self.clients: dict[object, list[_Client]] = {}
        #: Descriptor of a way's source -> (number, way), for as long as something may come there.
        self._ways: dict[int, tuple[int, _Way]] = {}
        self._sources = select.epoll()
        self._sockets: list[socket.socket] = []

    def heal(self) -> None:
        self.cuts.clear()
        self.delay_s, self.late = DELAY_S, ""
        while self.healed:
            self.scheduler.wake(self.healed.popleft())

    def delay_of(self, direction: str) -> float:
        return self.delay_s if self.late in ("", direction) else DELAY_S

    def stir(self) -> None:
        """Wake the threads for whose sockets something has come."""
        self.take_in()
        for task, poll in self.waiters.items():
            if poll.poll(0):
                self.scheduler.wake(task)

    def take_in(self) -> None:
        ready = sorted(self._ways[fd] for fd, _ in self._sources.poll(0))
        for _, way in ready:
            way.take_in()

    def _add(self, way: _Way) -> None:
        self.numbers += 1
        self._ways[way.source.fileno()] = self.numbers, way
        self._sources.register(way.source, select.EPOLLIN)

    def answers_at(self, direction: str) -> bool:
        """True if a machine runs where a direction leads."""
        return True

    def ways(self) -> list[_Way]:
        """Return all on which something may come."""
        return [way for _, way in self._ways.values()]

    def forget(self, way: _Way) -> None:
        """Take in nothing of it from now on."""
        self._sources.unregister(way.source)
        del self._ways[way.source.fileno()]

    def listen(self, address: str) -> _Listener:
        self.listeners[address] = listener = _Listener(self, address)
        return listener

    def ways_to(self, address: str) -> tuple[str, str]:
        """The directions from the present machine to that of an address, and back."""
        return "to master", "to slave"

    def knock(self, address: str) -> socket.socket | None:
        """A connection to a port that is none for slaves; None if this is no such address. Raises OSError."""
        return None

    def connect(self, address: str, seconds: float, stopped: Callable[[], bool]) -> socket.socket:
        """A slave's end of a new connection. Raises OSError, also when it is `stopped` meanwhile."""
        there, back = self.ways_to(address)
        cut = there in self.cuts or back in self.cuts
        takes = seconds if cut else max(self.delay_of(there), self.delay_of(back))
        until = self.scheduler.now + min(takes, seconds)
        while (left := until - self.scheduler.now) > 0 and not stopped():
            self.scheduler.block(None, min(left, _STOP_S))
        if cut or takes > seconds or stopped():
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        listener = self.listeners.get(address)
        if listener is None:
            if (sock := self.knock(address)) is not None:
                return sock
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        (slave, near), (master, far) = socket.socketpair(), socket.socketpair()
        for sock in (slave, near, master, far):
            sock.setblocking(False)
        way, way_back = _Way(self, there, near, far), _Way(self, back, far, near)
        way.back, way_back.back = way_back, way
        self._add(way)
        self._add(way_back)
        self._sockets += [near, far]
        listener.knock(_Quiet(master))
        self.stir()
        return _Quiet(slave)

    def close(self) -> None:
        self._sources.close()
        for sock in self._sockets:
            sock.close()
        for listener in list(self.listeners.values()):
            listener.close()


class _Quiet(socket.socket):
    """An end of a pair; it takes options of TCP."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.setblocking(False)

    def setsockopt(self, *args: Any) -> None:
        """It has no Nagle to switch off."""


class _Client:
    """`RemotingClient`: calls between brokers, over this network."""

    network: Network

    def __init__(
        self,
        address: str,
        connect_timeout_ms: int = 3000,
        clock: object = None,
        tls: bool = False,
        greet: Greet | None = None,
        pair: object = None,
        connect: object = None,
    ) -> None:
        """There is no TLS here."""
        self.address = address
        self._greet = greet
        self._peer: Peer | None = None
        self._ways = self.network.ways_to(address)
        task = self.network.scheduler.current
        self.network.clients.setdefault(None if task is None else task.owner, []).append(self)

    def invoke_sync(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        network, scheduler = self.network, self.network.scheduler
        there, back = self._ways
        scheduler.block(None, network.delay_of(there))
        if there in network.cuts or back in network.cuts:
            scheduler.block(None, timeout_ms / 1000)
            raise CallTimeout(f"{self.address} did not answer in time")
        machine = network.machines.get(self.address)
        if machine is None or not machine.listens:
            raise ConnectError(f"connect to {self.address} failed")
        if self._peer is None or self._peer.closed:
            self._peer = peer = machine.connect()
            if self._greet is not None:
                try:
                    self._greet(lambda command: self._exchange(peer, command, timeout_ms), b"")
                except ConnectError:
                    self.close()
                    raise
        return self._exchange(self._peer, command, timeout_ms)

    def _exchange(self, peer: Peer, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        ended = Event(self.network.scheduler)
        answers = peer.ask(command.code, command.ext_fields, command.body, lambda answer: ended.set())
        ended.wait(timeout_ms / 1000)
        if answers.command is None:
            self._peer = None
            raise ConnectError(f"connection to {self.address} broke")
        self.network.scheduler.block(None, self.network.delay_of(self._ways[1]))
        return answers.command

    def close(self) -> None:
        peer, self._peer = self._peer, None
        machine = self.network.machines.get(self.address)
        if peer is not None and machine is not None and peer in machine.peers and not self._is_cut():
            machine.hang_up(peer)

    def _is_cut(self) -> bool:
        """True if the other end does not hear that this one closes."""
        return bool(self.network.cuts & set(self._ways))

    hang_up = close

    def is_connected(self) -> bool:
        return self._peer is not None and not self._peer.closed


class _Poll:
    """select.poll that waits on the world's clock."""

    network: Network

    def __init__(self) -> None:
        self._real = select.poll()
        self.register = self._real.register

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        network = self.network
        network.take_in()
        found = self._real.poll(0)
        if found:
            return found
        task = network.scheduler.current
        assert task is not None, "the world waits for a socket"
        network.waiters[task] = self._real
        try:
            network.scheduler.block(None, None if milliseconds is None else milliseconds / 1000)
        finally:
            del network.waiters[task]
        network.take_in()
        return self._real.poll(0)


def seams(network: Network) -> list[tuple[object, str, object]]:
    """Return what stands in for parts of the engine that talk to other brokers."""
    wake = wake_pipe_module.WakePipe.wake

    def stir(pipe: Any) -> None:
        wake(pipe)
        network.stir()

    def connect(home: log_copy_module.Home, address: str, seconds: float) -> socket.socket:
        return network.connect(address, min(seconds, _CONNECT_S), home.stopped)

    polls = _InPlaceOf(select, poll=_Poll)
    modules: tuple[ModuleType, ...] = (
        bound_follower_module, log_copy_module, master_module, slave_link_module, wake_pipe_module,
    )  # fmt: skip
    return [
        *((module, "select", polls) for module in modules),
        (wake_pipe_module.WakePipe, "wake", stir),
        (log_copy_module.Home, "connect", connect),
        (slave_sync_module, "RemotingClient", _Client),
        (follower_module, "RemotingClient", _Client),
        (registration_module, "RemotingClient", _Client),
    ]


@contextmanager
def simulated_network(network: Network) -> Iterator[None]:
    """Brokers copy logs and ask each other over it."""
    _Client.network = _Poll.network = network
    try:
        with replaced(seams(network)):
            yield
    finally:
        network.close()
