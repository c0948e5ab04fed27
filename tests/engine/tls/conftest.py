import socket
from types import SimpleNamespace

import pytest

from appliance.engine.config import BrokerConfig
from appliance.engine.tls.door import Door
from tests.support.peer import Peer
from tests.support.remoting import Rig
from tests.support.tls import TlsPeer, make_pair


class TlsRig(Rig):
    """A `Rig` behind a door. Its peers speak TLS; plain ones come from `plain`."""

    def __init__(self, directory, mode="permissive", clock=None):
        files = make_pair(directory)
        self.files = files
        self.options = BrokerConfig(tls_mode=mode, tls_cert_file=str(files[0]), tls_key_file=str(files[1]))
        super().__init__(clock)

    def prepare(self):
        self.door = Door(self.options, self.server, self.loop.clock)
        self.server.door = self.door.take
        self.door.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def kept(self, peer):
        self.peers.append(peer)
        return peer

    def peer(self, *context, **options):
        return self.kept(TlsPeer(self.address, *context, **options))

    def slow_peer(self):
        """A peer for which the kernel buffers little: an answer of LARGE bytes (tests/support/tls.py) has to wait."""
        peer = self.peer()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        return peer

    def plain(self):
        return self.kept(Peer(self.address))

    def close_door(self):
        self.door.stop(1.0)


@pytest.fixture
def rigs(tmp_path):
    """`rigs(mode)` starts a rig; all are stopped at the end."""
    started = []

    def start(mode="permissive", **options):
        started.append(TlsRig(tmp_path, mode, **options))
        return started[-1]

    yield start
    for rig in started:
        rig.stop()


@pytest.fixture
def rig(rigs):
    return rigs()


@pytest.fixture
def pair(tmp_path):
    certificate, key = make_pair(tmp_path)
    return SimpleNamespace(certificate=certificate, key=key)
