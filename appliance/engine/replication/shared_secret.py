"""The secret that the brokers of one name share (`haSecretFile`), and the client's half of the proof made with it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

from ..errors import ConnectError, StartError
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.member_proof import BROKER, MEMBER, NONCE, PROOF, over, proof, session_key
from ..secret_file import read_secret_file

#: 32 characters are 128 bits as hexadecimal text: too many to try, since a proof can be checked far from any broker.
SHORTEST, LONGEST = 32, 1024


def read_secret(file: str) -> bytes:
    """Return the one line of haSecretFile. Raises StartError if it is no such file, or may be read by others."""
    path = Path(file)
    lines = read_secret_file("haSecretFile", path, LONGEST + 2).splitlines()
    if len(lines) != 1 or not SHORTEST <= len(lines[0].strip()) <= LONGEST:
        raise StartError(
            f"haSecretFile {path} must hold one line of {SHORTEST} to {LONGEST} characters; "
            "`openssl rand -hex 32` makes one."
        )
    return lines[0].strip()


class Greeting:
    """Proves this broker on each new connection of one client. Owned by the client's calls."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        #: Key of the present connection; empty before the first one, and if the other broker needs no proof.
        self.session = b""

    def __call__(self, exchange: Callable[[RemotingCommand], RemotingCommand], channel: bytes = b"") -> None:
        """Prove both sides. exchange: sends a request on the new connection, and returns its answer. channel: digest
        of the certificate that the other broker showed; empty without TLS. Raises ConnectError if the other broker has
        another secret."""
        self.session = b""
        mine = secrets.token_hex(16)
        answer = exchange(RemotingCommand(RequestCode.ROCKETBOX_MEMBER, ext_fields={NONCE: mine}))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return  # without access control or haSecretFile, an older version, or Apache's
        if answer.code != ResponseCode.SUCCESS:  # as while it changes its role
            raise ConnectError(f"the broker there takes no proof now: {answer.code} {answer.remark}")
        theirs = (answer.ext_fields or {}).get(NONCE, "")
        fields = {NONCE: mine, PROOF: proof(self._secret, over(channel, MEMBER), mine, theirs)}
        answer = exchange(RemotingCommand(RequestCode.ROCKETBOX_MEMBER, ext_fields=fields))
        given = (answer.ext_fields or {}).get(PROOF, "")
        wanted = proof(self._secret, over(channel, BROKER), mine, theirs)
        if answer.code != ResponseCode.SUCCESS or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise ConnectError("the broker there has another secret in its haSecretFile")
        self.session = session_key(self._secret, mine, theirs)
