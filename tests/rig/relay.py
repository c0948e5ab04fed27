"""A test network on loopback: a relay between all processes of a test, which cuts, holds, slows and refuses.

    with Relay() as relay:
        relay.route("b1", ("127.90.1.1", 20911), ("127.91.1.1", 20911))    # connections to the first reach the second
        relay.name_process(pid, "b1")                                      # so that its own connections have a name
        cut = relay.fault("b2", "b1", hold=True)        # nothing passes between b2 and b1, no connection is closed
        relay.fault("*", "b1", "from", delay_ms=50)     # all answers of b1 come late
        relay.refuse("b1")                              # as a firewall that rejects: resets and refuses
        relay.lift(cut)
        relay.heal()                                    # lifts every fault

The connecting process is found by the owner of the socket (/proc); a process without a name counts as "clients". Ways:
"to" is from the connecting side to the target, "from" is back. While a target's own port refuses, so does the relay's.
One process with one thread, commanded by lines of JSON; it dies with the thread that started it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = "clients"
ANYBODY = "*"
WAYS = ("to", "from")

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

Address = tuple[str, int]


class Relay:
    """Handle of the relay's process: sends it commands and reads its answers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )

    def route(self, name: str, listen: Address, target: Address) -> None:
        """Relay connections to `listen` to `target`, which belongs to `name`."""
        self._do("route", name=name, listen=listen, target=target)

    def name_process(self, pid: int, name: str) -> None:
        """Count the connections that this process makes as connections of `name`."""
        self._do("name_process", pid=pid, name=name)

    def fault(
        self, source: str, target: str, way: str = "both", *, hold: bool = False, delay_ms: int = 0, drip: int = 0
    ) -> int:
        """Disturb all connections from one to another, later ones too. hold: nothing passes, not even the end of a
        connection. drip: bytes that pass every 2 ms. Returns the number that `lift` takes."""
        number: int = self._do("fault", source=source, target=target, way=way, hold=hold, delay_ms=delay_ms, drip=drip)
        return number

    def lift(self, *faults: int) -> None:
        """End these faults; the bytes that they held pass."""
        self._do("lift", numbers=faults)

    def refuse(self, target: str) -> None:
        """Reset the target's connections and refuse new ones, until `accept` or `heal`."""
        self._do("refuse", target=target)

    def accept(self, target: str) -> None:
        """End a `refuse`: the target takes connections again."""
        self._do("accept", target=target)

    def heal(self, reset: bool = False) -> None:
        """End all faults and refusals. Held bytes pass; reset: held connections are reset instead."""
        self._do("heal", reset=reset)

    def connections(self) -> dict[str, int]:
        """Return "source>target" -> number of open connections."""
        found: dict[str, int] = self._do("connections")
        return found

    def _do(self, what: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the relay ended with {self._process.wait(5)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the relay cannot {what}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- in the process

_CHUNK = 65_536
#: A direction that holds more is not read from until it has passed some on.
_MOST_HELD = 512 * 1024
_TICK_S = 0.002
_RESET = struct.pack("ii", 1, 0)


class _Gate:
    """The faults of one way from a source to a target: hold, delay and drip."""

    def __init__(self) -> None:
        self.hold, self.delay_s, self.drip = False, 0.0, 0

    @property
    def clear(self) -> bool:
        return not (self.hold or self.delay_s or self.drip)


class _Flow:
    """One direction of a connection. `held`: (when it is due, bytes; b"" is the end, None a reset)."""

    def __init__(self, source: socket.socket, target: socket.socket, gate: _Gate) -> None:
        self.source, self.target, self.gate = source, target, gate
        self.held: deque[tuple[float, bytes | None]] = deque()
        self.held_bytes = 0
        self.next_drip = 0.0
        self.ended = False  # nothing more comes from the source
        self.done = False  # nothing more goes to the target

    def put(self, data: bytes | None) -> None:
        self.held.append((time.monotonic() + self.gate.delay_s, data))
        self.held_bytes += len(data or b"")

    def flush(self) -> bool | None:
        """Pass on the bytes that are due. True: nothing is left; None: the connection has to be reset."""
        if self.gate.hold:
            return not self.held
        room = 1 << 30
        if self.gate.drip and self.held:
            if time.monotonic() < self.next_drip:
                return False
            room, self.next_drip = self.gate.drip, time.monotonic() + _TICK_S
        while self.held and room > 0:
            due, data = self.held[0]
            if due > time.monotonic():
                return False
            if not data:
                self.held.popleft()
                self.done = True
                if data is None:
                    return None
                with suppress(OSError):
                    self.target.shutdown(socket.SHUT_WR)
                return True
            try:
                sent = self.target.send(data[:room])
            except BlockingIOError:
                return False
            except OSError:
                # The other direction reports it to the source, once its gate lets it.
                self.held.clear()
                self.held_bytes = 0
                self.done = True
                return True
            self.held_bytes -= sent
            room -= sent
            if sent < len(data):
                self.held[0] = (due, data[sent:])
            else:
                self.held.popleft()
        return not self.held


class _Pair:
    """A relayed connection: `near` to the process that connected, `far` to the target."""

    def __init__(self, near: socket.socket, far: socket.socket, source: str, target: str, gates: list[_Gate]) -> None:
        self.near, self.far, self.source, self.target = near, far, source, target
        self.flows = (_Flow(near, far, gates[0]), _Flow(far, near, gates[1]))
        self.connected = False

    @property
    def held(self) -> bool:
        return any(flow.gate.hold for flow in self.flows)


class _Route:
    def __init__(self, name: str, listen: Address, target: Address) -> None:
        self.name, self.listen, self.target = name, listen, target
        self.listener: socket.socket | None = None
        self.refused = False  # by order


class _RelayLoop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._routes: list[_Route] = []
        self._names: dict[int, str] = {}
        self._gates: dict[tuple[str, str], list[_Gate]] = {}
        self._faults: dict[int, tuple[str, str, str, dict[str, Any]]] = {}
        self._number = 0
        self._pairs: set[_Pair] = set()
        self._busy: set[_Flow] = set()
        self._pair_of: dict[_Flow, _Pair] = {}
        self._closed_routes: set[_Route] = set()
        self._waiting: set[_Pair] = set()  # held before the target was connected to
        self._input = b""

    def run(self) -> None:
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, self._commands)
        while True:
            timeout = _TICK_S if self._busy or self._waiting else 0.01 if self._closed_routes else 1.0
            for key, mask in self._selector.select(timeout):
                key.data(mask)
            for flow in list(self._busy):
                self._flush(flow)
            for pair in list(self._waiting):
                if not pair.held:
                    self._connect(pair)
            for route in list(self._closed_routes):
                self._look_again(route)

    # Commands.

    def _commands(self, mask: int) -> None:
        data = os.read(0, _CHUNK)
        if not data:
            os._exit(0)
        self._input += data
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            what, arguments = json.loads(line)
            try:
                answer = {"result": getattr(self, f"_do_{what}")(**arguments)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)

    def _do_route(self, name: str, listen: list[Any], target: list[Any]) -> None:
        route = _Route(name, (listen[0], listen[1]), (target[0], target[1]))
        self._open(route)
        self._routes.append(route)

    def _do_name_process(self, pid: int, name: str) -> None:
        self._names = {one: its for one, its in self._names.items() if its != name}
        self._names[pid] = name

    def _do_fault(self, source: str, target: str, way: str, **what: Any) -> int:
        self._number += 1
        self._faults[self._number] = (source, target, way, what)
        self._set_gates()
        return self._number

    def _do_lift(self, numbers: list[int]) -> None:
        for number in numbers:
            self._faults.pop(number, None)
        self._set_gates()

    def _set_gates(self) -> None:
        for (source, target), gates in self._gates.items():
            for gate in gates:
                gate.hold, gate.delay_s, gate.drip = False, 0.0, 0
            for fault in self._faults.values():
                self._apply(source, target, gates, fault)
        self._busy.update(flow for pair in self._pairs for flow in pair.flows if flow.held)

    def _do_refuse(self, target: str) -> None:
        for route in self._routes:
            if route.name == target:
                route.refused = True
                self._close_listener(route)
        for pair in [pair for pair in self._pairs if pair.target == target]:
            self._drop(pair, reset=True)

    def _do_accept(self, target: str) -> None:
        for route in self._routes:
            if route.name == target:
                route.refused = False

    def _do_heal(self, reset: bool) -> None:
        self._faults.clear()
        cut = [pair for pair in self._pairs if pair.held]
        self._set_gates()
        if reset:
            for pair in cut:
                self._drop(pair, reset=True)
        for route in self._routes:
            route.refused = False

    def _do_connections(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for pair in self._pairs:
            link = f"{pair.source}>{pair.target}"
            counts[link] = counts.get(link, 0) + 1
        return counts

    # Connections.

    def _open(self, route: _Route) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(route.listen)
        listener.listen(512)
        listener.setblocking(False)
        route.listener = listener
        self._closed_routes.discard(route)
        self._selector.register(listener, selectors.EVENT_READ, lambda mask: self._accept(route))

    def _close_listener(self, route: _Route) -> None:
        """Close the relay's listener until the target takes connections again (`_look_again`)."""
        if route.listener is not None:
            self._selector.unregister(route.listener)
            route.listener.close()
            route.listener = None
        self._closed_routes.add(route)

    def _look_again(self, route: _Route) -> None:
        if not route.refused and _accepts(route.target):
            self._open(route)

    def _accept(self, route: _Route) -> None:
        if route.listener is None:
            return
        try:
            near, who = route.listener.accept()
        except OSError:
            return
        near.setblocking(False)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = socket.socket()
        far.setblocking(False)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        source = self._owner(who, route.listen)
        pair = _Pair(near, far, source, route.name, self._gates_of(source, route.name))
        self._pairs.add(pair)
        for flow in pair.flows:
            self._pair_of[flow] = pair
        if pair.held:
            self._waiting.add(pair)
        else:
            self._connect(pair)

    def _connect(self, pair: _Pair) -> None:
        self._waiting.discard(pair)
        route = next(one for one in self._routes if one.listen == pair.near.getsockname())
        result = pair.far.connect_ex(route.target)
        if result == errno.EINPROGRESS:
            self._selector.register(pair.far, selectors.EVENT_WRITE, lambda mask: self._connected(pair, route))
        elif result:
            self._refused(pair, route)
        else:
            self._joined(pair)

    def _connected(self, pair: _Pair, route: _Route) -> None:
        if pair not in self._pairs:
            return
        self._selector.unregister(pair.far)
        if pair.far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._refused(pair, route)
        else:
            self._joined(pair)

    def _refused(self, pair: _Pair, route: _Route) -> None:
        self._drop(pair, reset=True)
        self._close_listener(route)

    def _joined(self, pair: _Pair) -> None:
        pair.connected = True
        for flow in pair.flows:
            self._read_on(flow)

    def _read_on(self, flow: _Flow) -> None:
        if not flow.ended and flow.source not in self._selector.get_map():
            self._selector.register(flow.source, selectors.EVENT_READ, lambda mask: self._readable(flow))

    def _readable(self, flow: _Flow) -> None:
        if flow not in self._pair_of:
            return  # dropped since the selector said so
        try:
            data: bytes | None = flow.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = None
        if not data:
            flow.ended = True
            self._selector.unregister(flow.source)
            self._target_may_have_gone(flow)
        elif flow.gate.clear and not flow.held:
            try:
                sent = flow.target.send(data)
            except OSError as error:
                sent = 0 if isinstance(error, BlockingIOError) else len(data)
            if sent == len(data):
                return
            data = data[sent:]
        flow.put(data)
        self._busy.add(flow)
        if flow.held_bytes > _MOST_HELD and not flow.ended:
            self._selector.unregister(flow.source)
        self._flush(flow)

    def _target_may_have_gone(self, flow: _Flow) -> None:
        """Close the target's listeners if its process has ended, so that the next connection is refused.

        A process that ends closes its listening sockets before its connections.
        """
        pair = self._pair_of[flow]
        if flow.source is pair.far and not pair.flows[0].ended:
            for route in self._routes:
                if route.name == pair.target and route.listener is not None:
                    if _accepts(route.target):
                        return  # the process lives: its other ports need no strange visits
                    self._close_listener(route)

    def _flush(self, flow: _Flow) -> None:
        pair = self._pair_of.get(flow)
        if pair is None or not pair.connected:
            self._busy.discard(flow)
            return
        flushed = flow.flush()
        if flushed is None or all(one.done for one in pair.flows):
            self._drop(pair, reset=flushed is None)
            return
        if flushed:
            self._busy.discard(flow)
        if flow.held_bytes <= _MOST_HELD:
            self._read_on(flow)

    def _drop(self, pair: _Pair, reset: bool = False) -> None:
        self._pairs.discard(pair)
        self._waiting.discard(pair)
        for flow in pair.flows:
            self._busy.discard(flow)
            self._pair_of.pop(flow, None)
        for sock in (pair.near, pair.far):
            with suppress(KeyError):
                self._selector.unregister(sock)
            if reset:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()

    # Names and faults of connections.

    def _gates_of(self, source: str, target: str) -> list[_Gate]:
        gates = self._gates.get((source, target))
        if gates is None:
            gates = self._gates[source, target] = [_Gate(), _Gate()]
            for fault in self._faults.values():
                self._apply(source, target, gates, fault)
        return gates

    @staticmethod
    def _apply(source: str, target: str, gates: list[_Gate], fault: tuple[str, str, str, dict[str, Any]]) -> None:
        its_source, its_target, way, what = fault
        if its_source not in (ANYBODY, source) or its_target not in (ANYBODY, target):
            return
        for gate, name in zip(gates, WAYS, strict=True):
            if way in ("both", name):
                gate.hold = gate.hold or what["hold"]
                gate.delay_s = max(gate.delay_s, what["delay_ms"] / 1000)
                gate.drip = what["drip"] or gate.drip

    def _owner(self, who: Address, listen: Address) -> str:
        if not self._names:
            return CLIENTS
        inode = _inode(who, listen)
        for pid, name in self._names.items():
            if inode and _holds(pid, inode):
                return name
        return CLIENTS


def _accepts(target: Address) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(target) != errno.ECONNREFUSED


def _hex(address: Address) -> str:
    return f"{socket.inet_aton(address[0])[::-1].hex().upper()}:{address[1]:04X}"


def _inode(local: Address, remote: Address) -> str:
    """Return the inode of the socket between these two from /proc/net/tcp; "" if there is none."""
    wanted = f" {_hex(local)} {_hex(remote)} "
    with open("/proc/net/tcp") as table:
        for line in table:
            if wanted in line:
                return line.split()[9]
    return ""


def _holds(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    try:
        entries = os.listdir(directory)
    except OSError:
        return False
    for entry in reversed(entries):
        with suppress(OSError):
            if os.readlink(f"{directory}/{entry}") == wanted:
                return True
    return False


if __name__ == "__main__":
    _RelayLoop().run()
