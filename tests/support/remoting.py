"""A remoting server with a few handlers, and peers that speak to it."""

import threading

import msgspec

from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.command import MAX_FRAME_BYTES, RemotingCommand, encode_command
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer, listen
from tests.support.peer import Peer

ECHO, REFUSE, BUG, SLOW, BIG, HOT = 1, 2, 3, 4, 5, 310


def request(code, opaque=1, body=b"", codec=0, flag=0, **ext):
    """The frame of a request."""
    return encode_command(RemotingCommand(code, opaque=opaque, flag=flag, ext_fields=ext, body=body), codec)


class HotFields(msgspec.Struct):
    """The fields of HOT that is read in place."""

    a: str


class Rig:
    """A server with a few handlers, and peers that are closed with it."""

    def __init__(self, clock=None):
        self.loop = EventLoop(clock)
        self.server = RemotingServer(self.loop)
        self.pools = {}
        self.seen = []
        self.closed = []
        self.release = threading.Event()
        dispatcher = Dispatcher(self.pools)
        dispatcher.add(ECHO, self.echo)
        dispatcher.add(REFUSE, self.refuse)
        dispatcher.add(BUG, lambda request, conn: 1 / 0)
        dispatcher.add(SLOW, self.slow, "slow")
        dispatcher.add(BIG, lambda request, conn: RemotingCommand.response(0, body=bytes(MAX_FRAME_BYTES)))
        dispatcher.add(HOT, self.echo)
        dispatcher.add_hot(HOT, HotFields, self.hot)
        self.hot_calls = 0
        self.server.on_close(self.closed.append)
        self.loop.at_tick_end(self.server.flush_dirty)
        sock = listen("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.server.listen(sock, dispatcher)
        self.prepare()
        self.loop.start()
        for pool in self.pools.values():
            pool.start()
        self.peers = []

    def prepare(self):
        """Called before the loop starts."""

    def echo(self, request, conn):
        self.seen.append(request)
        return RemotingCommand.response(0, ext=dict(request.ext_fields), body=request.body)

    def refuse(self, request, conn):
        raise RefusedRequest(17, "no such thing")

    def slow(self, request, conn):
        self.release.wait(60)
        return RemotingCommand.response(0, body=b"slow")

    def hot(self, conn, frame, body):
        self.hot_calls += 1
        conn.answer(frame.opaque, RemotingCommand.response(0, body=bytes(body)))

    def peer(self):
        peer = Peer(f"127.0.0.1:{self.port}")
        self.peers.append(peer)
        return peer

    def close_door(self):
        """Called when all connections are closed, before the loop ends."""

    def stop(self):
        self.release.set()
        closed = threading.Event()
        self.loop.call_soon(lambda: (self.server.stop_accepting(), self.server.close_all(), closed.set()))
        assert closed.wait(60), "the loop is stuck"
        for peer in self.peers:
            peer.close()
        for pool in self.pools.values():
            pool.stop()
        self.close_door()
        self.loop.stop()
        self.loop.close()
