"""Signs the requests of a client for servers with access control. PURE."""

from __future__ import annotations

from ..wire import ACCESS_KEY, SIGNATURE, RemotingCommand, SigningKey, signed_content

_TOKEN = "SecurityToken"


class Signer:
    """Constant after construction. The secret is kept only as a prepared hash."""

    __slots__ = ("_key", "_token", "_user")

    def __init__(self, user: str, secret: str, token: str | None) -> None:
        self._user = user
        self._key = SigningKey(secret)
        self._token = token

    def sign(self, request: RemotingCommand) -> dict[str, str]:
        """Return the header fields of a request with user and signature; nothing may be added to them afterwards."""
        fields = request.ext_fields | {ACCESS_KEY: self._user}
        if self._token is not None:
            fields[_TOKEN] = self._token
        fields[SIGNATURE] = self._key.sign(signed_content(fields, request.body))
        return fields
