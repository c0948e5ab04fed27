"""A remoting server with a few handlers, and blocking peers that speak bytes to it."""

import socket
import struct
import threading
import time

from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.command import MAX_FRAME_BYTES, RemotingCommand, decode_frame, encode_command
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer, listen

ECHO, REFUSE, BUG, SLOW, BIG, HOT = 1, 2, 3, 4, 5, 310


class Peer:
    """A blocking client that speaks bytes."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buffer = b""

    def send(self, *frames):
        self.sock.sendall(b"".join(frames))

    def receive(self):
        """The next frame, or None when the server closed."""
        while True:
            if len(self.buffer) >= 4:
                size = 4 + struct.unpack_from(">i", self.buffer)[0]
                if len(self.buffer) >= size:
                    frame, self.buffer = self.buffer[:size], self.buffer[size:]
                    return decode_frame(frame)
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data

    def ask(self, code, opaque=1, body=b"", **ext):
        self.send(request(code, opaque, body, **ext))
        return self.receive()

    def close(self):
        self.sock.close()


def request(code, opaque=1, body=b"", codec=0, flag=0, **ext):
    return encode_command(RemotingCommand(code, opaque=opaque, flag=flag, ext_fields=ext, body=body), codec)


class Rig:
    """A server with a few handlers, and peers that are closed with it."""

    def __init__(self):
        self.loop = EventLoop()
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
        dispatcher.add_hot(HOT, self.hot)
        self.hot_calls = 0
        self.server.on_close(self.closed.append)
        self.loop.at_tick_end(self.server.flush_dirty)
        sock = listen("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.server.listen(sock, dispatcher)
        self.loop.start()
        for pool in self.pools.values():
            pool.start()
        self.peers = []

    def echo(self, request, conn):
        self.seen.append(request)
        return RemotingCommand.response(0, ext=dict(request.ext_fields), body=request.body)

    def refuse(self, request, conn):
        raise RefusedRequest(17, "no such thing")

    def slow(self, request, conn):
        self.release.wait(5)
        return RemotingCommand.response(0, body=b"slow")

    def hot(self, conn, view, header, body, end):
        if b'"decline"' in bytes(view[header:body]):
            return False
        self.hot_calls += 1
        return_frame = RemotingCommand.response(0, body=bytes(view[body:end]))
        conn.answer(7, return_frame)
        return True

    def peer(self):
        peer = Peer(self.port)
        self.peers.append(peer)
        return peer

    def stop(self):
        self.release.set()
        for peer in self.peers:
            peer.close()
        for pool in self.pools.values():
            pool.stop()
        self.loop.stop()
        self.loop.close()


def wait_until(condition, message, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.005)
