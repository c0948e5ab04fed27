"""Lets a server prove to a command on its machine that it serves a data directory, before it is sent a token.

Any local program may listen on the port where a server is expected. So the command requests a proof first, on the
connection that it goes on with: a digest of its word and of the port, under the key of the data directory. A program
that passes the challenge on to the real server has the wrong port.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

ASK, ANSWER = "X-RocketBox-Challenge", "X-RocketBox-Proof"
_LENGTH = 32


def challenge() -> str:
    return secrets.token_hex(_LENGTH // 2)


def proof(key: str, word: str, port: int) -> str | None:
    """Return the answer to a challenge, None if `word` is not a challenge."""
    if len(word) != _LENGTH or not word.isalnum() or not word.isascii():
        return None
    return hmac.new(f"server proof {key}".encode(), f"{word} {port}".encode(), hashlib.sha256).hexdigest()


def is_proven(key: str, word: str, port: int, answer: str | None) -> bool:
    expected = proof(key, word, port)
    return expected is not None and hmac.compare_digest(expected, answer or "")
