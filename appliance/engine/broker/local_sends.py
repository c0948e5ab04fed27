"""Sends that come from this process: the same checks, staging, publication and answer as a client's (D1, D7).

The send is handed to remoting-io, which treats it like a frame that has just arrived from a peer whose answers end in a
future. So it is staged in a tick, written and synced with whatever else the tick holds, and answered when the tick is
published; there is no second way into the log.
"""

from __future__ import annotations

from concurrent.futures import Future

from ..errors import Unavailable
from ..protocol.codes import VERSION, RequestCode
from ..protocol.command import RemotingCommand, decode_frame
from ..remoting.event_loop import EventLoop
from .processors.send import SendProcessor

#: Sends under way at a time; more are refused, so that nothing piles up before a slow disk.
PENDING_LIMIT = 64


class LocalPeer:
    """What the send path sees of a connection, for one send. Its one answer becomes the future's result."""

    remote_host = "console"
    closed = False

    def __init__(self, born_host: bytes) -> None:
        self.born_host = born_host
        self.result: Future[RemotingCommand] = Future()

    def answer(self, opaque: int, response: RemotingCommand) -> None:
        """A refusal."""
        self._resolve(response)

    def send(self, frame: bytes | memoryview) -> None:
        """The answer of a published tick, or of one that failed."""
        self._resolve(decode_frame(bytes(frame)))

    def _resolve(self, response: RemotingCommand) -> None:
        if not self.result.done():
            self.result.set_result(response)


class LocalSends:
    """`submit` may be called by any thread; the rest happens on remoting-io."""

    def __init__(self, send: SendProcessor, loop: EventLoop, born_host: bytes) -> None:
        # Constant after construction.
        self._send = send
        self._loop = loop
        self._born_host = born_host
        # Each is under way; set and discard are one C call each.
        self._pending: set[LocalPeer] = set()

    def submit(self, fields: dict[str, str], body: bytes) -> Future[RemotingCommand]:
        """Send one message; fields: the header of 310 (letters). The future gives the answer a client would get.

        Raises Unavailable when PENDING_LIMIT sends are under way or the I/O thread has ended.
        """
        if len(self._pending) >= PENDING_LIMIT or not self._loop.alive:
            raise Unavailable("Too many messages of the console's own are under way; try again.")
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, version=VERSION, ext_fields=fields, body=body)
        peer = LocalPeer(self._born_host)
        self._pending.add(peer)
        peer.result.add_done_callback(lambda _: self._pending.discard(peer))
        self._loop.call_soon(lambda: self._stage(request, peer))
        return peer.result

    def _stage(self, request: RemotingCommand, peer: LocalPeer) -> None:
        try:
            self._send.handle_send(request, peer)  # type: ignore[arg-type]  # the part of a Connection it uses
        except BaseException as error:
            peer.result.set_exception(error)
