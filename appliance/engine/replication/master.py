"""The master's side of replication: which slaves may follow this broker, and which do.

Listens only when configured to (`haListenPort`, or a role that needs slaves), on the broker's address. A slave that is
let in may read the whole log, and a sync master trusts its acknowledgements: so only this machine is let in, and the
networks that `haSlaveAddresses` names. With `haSecretFile` those networks, and any peer that proves that it has the
secret.
"""

from __future__ import annotations

import ipaddress
import logging
import select
import socket
import threading

from ..clock import Clock
from ..host_port import host_of, join_host_port
from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from . import places
from .acknowledged import ReplicatedPosition
from .bound_link import Door, Leading
from .roles import NO_GUARD, Guard
from .slave_link import LinkSettings, LinkStatus, SlaveLink
from .slaves_seen import SlavesSeen

logger = logging.getLogger(__name__)

#: Most slaves at a time of a master that leads no set.
MAX_SLAVES = 16
#: Time between two notes of the log's end, by which slaves' delay is shown in milliseconds.
_LOOK_MS = 200
#: Shortest time between two log lines about connections that were turned away.
_LOG_S = 60.0


class ReplicationServer(ServiceThread):
    """The thread `replication-listen`. Owns: the listening socket. Woken by: it."""

    def __init__(
        self,
        sock: socket.socket,
        store: MessageStore,
        settings: LinkSettings,
        replicated: ReplicatedPosition | None,
        clock: Clock,
        leading: Leading | None = None,
        guard: Guard = NO_GUARD,
    ) -> None:
        """replicated: takes the acknowledgements; None if nothing waits for them. leading: given when this broker leads
        a set: members are bound, and other slaves are served as observers."""
        super().__init__("replication-listen", clock)
        # Constant after construction.
        self._sock = sock
        self._allowed = settings.allowed
        self._log = log = store.log
        self._sendable = store.kept
        self._settings = settings
        self._replicated = replicated
        self._guard = guard
        #: For people: the slaves' rates, slaves that are gone, and hosts that were turned away.
        self.seen = SlavesSeen(clock)
        self._lock = threading.Lock()
        # Replaced whole, under _lock; the oldest first.
        self._links: tuple[SlaveLink, ...] = ()
        self._door = Door(leading, lambda: self._links, log.segment_bytes) if leading is not None else None
        # Guarded by _lock.
        self._said_at = -_LOG_S

    @property
    def slaves(self) -> list[LinkStatus]:
        """Status of each connected slave, now. Any thread."""
        return [link.status._replace(bytes_per_s=self.seen.bytes_per_s(link)) for link in self._links]

    @property
    def port(self) -> int:
        """Port to which slaves connect."""
        return int(self._sock.getsockname()[1])

    def log_grew(self) -> None:
        """Wake links that sleep: there is more to send. Any thread; costs nothing while every link is at work."""
        for link in self._links:
            link.log_grew()

    # --- this thread

    def run(self) -> None:
        self._sock.setblocking(False)
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        while not self.stopped:
            self.seen.look(self._links, self._sendable())
            if not poller.poll(_LOOK_MS):
                continue
            try:
                sock, address = self._sock.accept()
            except OSError:
                self.wait(0.05)  # gone again, or no descriptors for now
                continue
            try:
                self._take(sock, str(address[0]).partition("%")[0], int(address[1]))
            except (OSError, RuntimeError) as error:  # no descriptors or threads for it; others may follow later
                sock.close()
                logger.warning("replication: peer=%s cannot be served: %s", address[0], error)
                self.wait(0.05)

    def _take(self, sock: socket.socket, host: str, port: int) -> None:
        why = self._refusal(host)
        if why:
            sock.close()
            self._turned_away(join_host_port(host, port), why)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = SlaveLink(
            sock,
            join_host_port(host, port),
            self._log,
            self._sendable,
            self._settings,
            self._admit,
            self._progress,
            self._forget,
            self.clock,
            self._door,
            self._guard,
            self._is_named(host),
        )
        with self._lock:
            self._links += (link,)
        try:
            link.start()
        except RuntimeError:  # no further thread can be started
            self._forget(link)
            raise

    def _turned_away(self, peer: str, why: str) -> None:
        """Note a connection that may not follow. Any thread."""
        self.seen.refused(host_of(peer), why)
        with self._lock:
            now = self.clock.monotonic()
            says = now - self._said_at >= _LOG_S
            if says:
                self._said_at = now
        if says:
            logger.warning("replication: turned away peer=%s: %s", peer, why)

    def _is_named(self, host: str) -> bool:
        """True if a peer may follow because of its address. Where there is a secret, this machine has to prove it."""
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        named = any(address in network for network in self._allowed)
        return named or (address.is_loopback and not self._guard.secret)

    def _refusal(self, host: str) -> str:
        named = self._is_named(host)
        if not named and not self._guard.secret:
            return "haSlaveAddresses does not name it"
        # Peers that have yet to prove the secret take no place from named ones.
        silent = [one for one in self._links if not one.member and not one.observes and one.is_named == named]
        return places.make_room(silent, host)

    # --- on the threads of links

    def _admit(self, link: SlaveLink, asked: int) -> str:
        """Take a connection that requests the log from offset `asked` on, without a preamble, as a slave; return "", or
        why it is refused."""
        if self._door is not None:
            return self._door.observer(link, asked)
        with self._lock:
            if not places.take_place(link, [one for one in self._links if one.observes], MAX_SLAVES):
                return f"{MAX_SLAVES} slaves are connected already"
            link.observes = True
        return ""

    def _progress(self) -> None:
        if self._replicated is not None:
            self._replicated.take([link.acknowledged for link in self._links])
        elif self._door is not None:
            self._door.leading.position.moved()

    def _forget(self, gone: SlaveLink) -> None:
        with self._lock:
            self._links = tuple(link for link in self._links if link is not gone)
        if not self.stopped:
            self.seen.left(gone, gone.ended)
            if gone.turned_away and not gone.stopped:
                self._turned_away(gone.peer, gone.ended)
        if self._door is not None:
            self._door.gone(gone)

    def stop(self, deadline: float = 5.0) -> bool:
        ended = super().stop(deadline)
        self._sock.close()
        links = self._links
        for link in links:
            link.request_stop()
        for link in links:
            ended = link.stop(deadline) and ended
        return ended
