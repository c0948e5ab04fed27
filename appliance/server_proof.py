"""Lets a server prove to a command on its machine that it serves a data directory, before it is sent a token.

Any local program may listen on the port where a server is expected. So the command requests a proof first, on the
connection that it goes on with: a digest of its word and of the address and port that it connected to, under the key
of the data directory. A program that passes the challenge on to the real server has another address (::1, 127.0.0.2)
or another port.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets

ASK, ANSWER = "X-RocketBox-Challenge", "X-RocketBox-Proof"
_LENGTH = 32


def challenge() -> str:
    return secrets.token_hex(_LENGTH // 2)


def proof(key: str, word: str, host: str, port: int) -> str | None:
    """Return the answer to a challenge, None if `word` is not a challenge, or `host` no address.

    host, port: the server's end of the connection.
    """
    if len(word) != _LENGTH or not word.isalnum() or not word.isascii():
        return None
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    plain = getattr(address, "ipv4_mapped", None) or address
    said = f"{word} {plain} {port}"
    return hmac.new(f"server proof {key}".encode(), said.encode(), hashlib.sha256).hexdigest()


def is_proven(key: str, word: str, host: str, port: int, answer: str | None) -> bool:
    expected = proof(key, word, host, port)
    return expected is not None and hmac.compare_digest(expected, answer or "")
