"""The proof that two brokers of one name share a secret, and the sealing of users that they exchange. PURE.

    member                              broker
    710002  nonce=M            ->       nonce=B
    710002  nonce=M proof=P1   ->       proof=P2

    P1, P2   HMAC-SHA256(secret, label, M, B), as hexadecimal text; the labels differ, so neither proves the other
    session  HMAC-SHA256(secret, another label, M, B): the key of this connection, known to both ends

Both nonces are new for each connection, so a proof that was read on the wire is worth nothing on another one. Over TLS
the labels hold the certificate's digest (`over`), so one in the middle with another certificate cannot pass proofs on.
Sealed bytes are encrypted with SHAKE-256 of key and nonce as a key stream, and authenticated with HMAC-SHA256 over
nonce, encrypted bytes and the request's own nonce, so that an answer fits the one request that it was made for.

    sealed   16 bytes nonce, the encrypted bytes, 32 bytes HMAC
"""

from __future__ import annotations

import hashlib
import hmac

#: Fields of the requests. FOR_USER: "name address", of a request that a member passes on for a client's user.
NONCE, PROOF, FOR_USER = "nonce", "proof", "rocketboxForUser"
#: Labels of the two proofs.
MEMBER, BROKER = b"member", b"broker"
#: Label of a proof on a connection for the log: a proof for one port does not hold on the other.
LOG_MEMBER, LOG_BROKER = b"log member", b"log broker"
_NONCE_BYTES, _TAG_BYTES = 16, 32
#: Bytes that may be sealed at once: encrypting them holds the interpreter for less than 2 ms.
PAGE_BYTES = 256 * 1024


def over(channel: bytes, label: bytes) -> bytes:
    """Return the label of a proof on a connection over TLS. channel: digest of the certificate that the broker showed;
    empty without TLS."""
    # Not as a part of the nonce, which the other side chooses.
    return label + b" over " + channel if channel else label


def proof(secret: bytes, label: bytes, member_nonce: str, broker_nonce: str) -> str:
    """Return the proof of one side. label: MEMBER or BROKER."""
    return _hmac(secret, b"rocketbox %b" % label, member_nonce.encode(), broker_nonce.encode()).hex()


def session_key(secret: bytes, member_nonce: str, broker_nonce: str) -> bytes:
    """Return the key of a connection whose ends have proved themselves."""
    return _hmac(secret, b"rocketbox session", member_nonce.encode(), broker_nonce.encode())


def seal(key: bytes, plain: bytes, request_nonce: str, nonce: bytes) -> bytes:
    """Encrypt and authenticate. nonce: 16 random bytes, never used twice with this key."""
    assert len(nonce) == _NONCE_BYTES
    hidden = _crypt(key, nonce, plain)
    return nonce + hidden + _tag(key, nonce, hidden, request_nonce)


def unseal(key: bytes, sealed: bytes, request_nonce: str) -> bytes:
    """Return what was sealed. Raises ValueError if it was sealed with another key, or for another request."""
    nonce, hidden, tag = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:-_TAG_BYTES], sealed[-_TAG_BYTES:]
    if len(sealed) < _NONCE_BYTES + _TAG_BYTES or not hmac.compare_digest(tag, _tag(key, nonce, hidden, request_nonce)):
        raise ValueError("it was not sealed with this secret for this request")
    return _crypt(key, nonce, hidden)


def _crypt(key: bytes, nonce: bytes, data: bytes) -> bytes:
    stream = hashlib.shake_256(_hmac(key, b"encrypt", nonce)).digest(len(data))
    mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(data), "big")


def _tag(key: bytes, nonce: bytes, hidden: bytes, request_nonce: str) -> bytes:
    return _hmac(key, b"authenticate", request_nonce.encode(), nonce, hidden)


def _hmac(key: bytes, *parts: bytes) -> bytes:
    """Each part counts with its length, so that no two lists of parts are the same text."""
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, text, "sha256")
