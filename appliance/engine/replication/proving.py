"""The proof that both ends of a connection for the log have the same secret (`haSecretFile`), before anything else.

    follower -> port    Prove: a nonce
    port -> follower    Challenge: a nonce
    follower -> port    Proof
    port -> follower    Proof; then the connection goes on as it would begin without a secret. Or Refusal, and it ends

As words of `protocol/ha_preamble.py`. Over TLS the proofs cover the certificate that the server showed, so one that
passes bytes on between two others, with a certificate of its own, proves nothing. Without TLS nothing protects the
bytes that follow.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
from typing import TYPE_CHECKING

from ..clock import Clock
from ..errors import FrameError
from ..protocol.ha_preamble import Challenge, Opening, Preamble, Proof, Prove, Reason, Refusal, pack
from ..protocol.member_proof import LOG_BROKER, LOG_MEMBER, proof

if TYPE_CHECKING:
    from ..tls.between_brokers import Wait

#: Longest wait for an answer: a master without this proof may not answer.
ANSWER_S = 2.0
_RECEIVE_BYTES = 4096


class ProofFailed(Exception):
    """The other side has another secret, or breaks the order of messages; the text says which."""


class Challenger:
    """The port's side, for one connection. Belongs to its thread."""

    def __init__(self, secret: bytes, channel: bytes) -> None:
        """channel: digest of the certificate that was shown; empty without TLS."""
        # Constant after construction.
        self._secret = secret
        self._channel = channel
        #: True once the other side has proved that it has the secret.
        self.is_proved = False
        self._theirs = self._mine = ""

    def answer(self, said: Prove | Proof) -> Challenge | Proof | Refusal:
        """Return what is sent next. A challenge is good for one proof. Raises FrameError for a second Prove."""
        if isinstance(said, Prove):
            if self._theirs:  # thousands in one read would each be answered
                raise FrameError("it begins a second proof")
            self._theirs, self._mine = said.nonce, secrets.token_hex(16)
            return Challenge(self._mine)
        mine, self._mine = self._mine, ""
        wanted = _proof(self._secret, LOG_MEMBER, self._theirs, mine, self._channel)
        if not mine or not hmac.compare_digest(said.proof.encode(), wanted.encode()):
            return Refusal(Reason.OTHER_SECRET, 0, "it has another secret in its haSecretFile")
        self.is_proved = True
        return Proof(_proof(self._secret, LOG_BROKER, self._theirs, mine, self._channel))


def prove(sock: socket.socket, wait: Wait, secret: bytes, channel: bytes, clock: Clock) -> bool:
    """Prove both sides on a new connection, which does not block. channel: digest of the certificate that the server
    showed.

    Return False if the port there requests no proof: it is Apache's, of an older version, or has no secret; this
    connection is of no use then. Raises ProofFailed, OSError, FrameError, and what `wait` raises.
    """
    nonce = secrets.token_hex(16)
    try:
        challenge = _exchange(sock, wait, Prove(nonce), clock)
    except (FrameError, ConnectionError):
        return False
    if challenge is None:
        return False
    if not isinstance(challenge, Challenge):
        raise ProofFailed(f"it answers a nonce with {challenge}")
    said = Proof(_proof(secret, LOG_MEMBER, nonce, challenge.nonce, channel))
    answer = _exchange(sock, wait, said, clock)
    wanted = _proof(secret, LOG_BROKER, nonce, challenge.nonce, channel)
    if isinstance(answer, Refusal):
        raise ProofFailed(f"it refuses the proof of the secret in haSecretFile: {answer.text}")
    if not isinstance(answer, Proof) or not hmac.compare_digest(answer.proof.encode(), wanted.encode()):
        raise ProofFailed("it has not proved that it has the secret in haSecretFile")
    return True


def _exchange(sock: socket.socket, wait: Wait, said: Prove | Proof, clock: Clock) -> Preamble | None:
    """Send, and return the answer; None if there is none."""
    words = pack(said)
    if sock.send(words) != len(words):
        return None
    opening = Opening()
    until = clock.monotonic() + ANSWER_S
    answer = None
    while answer is None:
        try:
            wait(sock, select.POLLIN, until - clock.monotonic())
        except TimeoutError:
            return None
        data = sock.recv(_RECEIVE_BYTES)
        if not data:
            return None
        answer = opening.feed(data)
    if opening.rest:
        raise FrameError("more than the answer to a proof")
    return answer


def _proof(secret: bytes, label: bytes, member_nonce: str, broker_nonce: str, channel: bytes) -> str:
    return proof(secret, label, member_nonce, f"{broker_nonce} {channel.hex()}")
