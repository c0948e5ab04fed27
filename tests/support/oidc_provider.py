"""An OpenID provider: discovery, keys, and signed tokens, over real sockets, as those that people run.

    with OidcProvider() as provider:
        options = OidcSignIn(issuer=provider.issuer, client_id=provider.client_id)
        address = provider.sign_in(where_the_console_sent_the_browser)   # the way back, with code and state

It checks what a strict one checks: the registered way back, the code's single use, PKCE, and the client's secret. What
a test puts into `claims`, `signed_by`, `lies` and `instead` makes it a wicked or a broken one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@cache
def _key(kid: str, _whose: str = "") -> RSAKey:
    """Made once: it takes a while."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


class OidcProvider:
    """claims: put over those of the user who signs in; None takes one away. lies: put over the discovery document.
    instead: last part of a path -> what is answered there."""

    def __init__(self, secret: str = "") -> None:
        self.client_id = "rocketbox"
        self.secret = secret
        self.callbacks: set[str] = set()
        self.user: dict[str, Any] = {"sub": "0815", "preferred_username": "olga", "groups": ["ops"]}
        self.claims: dict[str, Any] = {}
        self.lies: dict[str, Any] = {}
        self.instead: dict[str, bytes] = {}
        #: "RS256" as it should be; "none", "HS256" (with the public key for a secret) or "stranger" (another key).
        self.signed_by = "RS256"
        self.asked: list[str] = []
        self._key, self._strange = _key("one"), _key("one", "a stranger's")
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*provider.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
                self._answer(*provider.post(self.path, body, self.headers.get("Authorization", "")))

            def _answer(self, status: int, document: Any) -> None:
                data = provider.instead.get(self.path.rpartition("/")[2], json.dumps(document).encode())
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}/realm"

    def __enter__(self) -> OidcProvider:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server: requests get no answer from now on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join(60)

    def change_keys(self) -> None:
        """Change the signing key, as providers do now and then."""
        self._key = _key("two")

    def get(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if path == "/realm/.well-known/openid-configuration":
            document = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
            return 200, document | self.lies
        if path == "/realm/keys":
            return 200, {"keys": [self._key.as_dict(private=False)]}
        return 404, {"error": "not_found"}

    def sign_in(self, address: str) -> str:
        """Do what a browser of a user who signs in does at `address`. Return the address that it is sent back to."""
        parts = urlsplit(address)
        assert address.startswith(f"{self.issuer}/authorize?"), address
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == self.client_id
        assert asked["redirect_uri"] in self.callbacks, "only to where this client registered"
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["state"]) > 20
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return asked["redirect_uri"] + "?" + urlencode({"code": code, "state": asked["state"], "iss": self.issuer})

    def post(self, path: str, body: str, authorization: str) -> tuple[int, Any]:
        self.asked.append(path)
        form = {name: values[0] for name, values in parse_qs(body).items()}
        if path != "/realm/token":
            return 404, {"error": "not_found"}
        if self.secret:
            expected = base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
            if authorization != f"Basic {expected}":
                return 401, {"error": "invalid_client"}
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = _packed(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or challenge != asked["code_challenge"] or form.get("redirect_uri") != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.token(asked)}

    def token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": self.client_id, "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            "auth_time": now if asked.get("prompt") == "login" else now - 86_400, **self.user, **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"kid": self._key.kid, "typ": "JWT"}
        match self.signed_by:
            case "none":
                parts = (json.dumps({"alg": "none", **header}), json.dumps(claims))
                return ".".join(_packed(part.encode()) for part in parts) + "."
            case "HS256":
                parts = (json.dumps({"alg": "HS256", **header}), json.dumps(claims))
                signing = ".".join(_packed(part.encode()) for part in parts)
                digest = hmac.new(self._key.as_pem(private=False), signing.encode(), "sha256").digest()
                return f"{signing}.{_packed(digest)}"
            case "stranger":
                return jwt.encode({"alg": "RS256", **header}, claims, self._strange)
        return jwt.encode({"alg": "RS256", **header}, claims, self._key)
