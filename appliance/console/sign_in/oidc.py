"""Signing in by OpenID Connect: the code flow with PKCE, state and nonce, by authlib.

The provider's discovery document, whose issuer has to be the one in the settings, gives its endpoints and keys. An id
token is accepted if it is signed with one of these keys (RS256, ES256 and the like: never unsigned, never with a shared
secret), and issuer, audience, nonce and times are right. RocketBox itself exchanges the code, so no token goes through
the browser. The libraries are imported at the first such sign-in.
"""

from __future__ import annotations

import logging
import math
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...engine.regular_file import open_regular
from ...sign_in_options import ROLES, OidcSignIn

logger = logging.getLogger(__name__)

#: Longest time for an answer of the provider; and how long its metadata and keys are kept.
TIMEOUT_S = 10.0
KEPT_S = 3600.0
#: After a failure the provider is not asked again for FAILED_S; a request waits at most WAIT_S for another one that is
#: asking it. Strangers who click must not take the turns of pages.
FAILED_S, WAIT_S = 10.0, 2.0
#: Largest tolerated difference between the provider's clock and this one.
LEEWAY_S = 60
#: A browser that was sent to the provider comes back within this time.
FLOW_S = 600
#: When RocketBox demands a new sign-in, the provider must have asked for the password within this time.
AGAIN_S = 300
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
# Longer answers of the provider are refused; of the file with the client's secret, the second number of bytes is read.
_MOST_BYTES, _SECRET_BYTES = 1 << 20, 4096
# What libraries raise for an answer that is none, or while it is fetched, besides errors of their own.
_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)
# Limits the threads that wait for answers: a provider that sends its headers byte by byte keeps its thread.
_answers = threading.BoundedSemaphore(8)


class NotSignedIn(Exception):
    """The provider's answer is not good. The text is for the log; `code` is for the page and the audit log."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Flow:
    """A sign-in while the browser is at the provider. binding: also in a cookie of the browser that began. network: the
    one it began from."""

    state: str
    nonce: str
    verifier: str
    binding: str
    next_page: str
    again: bool
    network: str
    at: float

    @property
    def is_over(self) -> bool:
        return not 0 <= time.time() - self.at <= FLOW_S


@dataclass(frozen=True, slots=True)
class Person:
    """The user whom the provider vouches for. identity: the issuer and the user's subject there, which stays the same
    when names change."""

    identity: str
    name: str
    role: str


_lock = threading.Lock()
# Guarded by _lock. State -> flow, the oldest first. Strangers may begin many, so only MOST_FLOWS are kept: the network
# with the most of them loses its oldest.
_flows: dict[str, Flow] = {}
MOST_FLOWS = 1000
# Guarded by _lock. Issuer -> (until when, its metadata, its keys).
_known: dict[str, tuple[float, dict[str, Any], Any]] = {}


# Held by the request that loads metadata and keys from the provider.
_asking = threading.Lock()
# Guarded by _lock. Issuer -> (until when it is not asked again, the failure).
_failed: dict[str, tuple[float, NotSignedIn]] = {}


def forget() -> None:
    """Forget the provider's metadata and keys, its failures, and all flows."""
    with _lock:
        _known.clear()
        _failed.clear()
        _flows.clear()


def begin(options: OidcSignIn, callback: str, next_page: str, again: bool, network: str = "") -> tuple[str, Flow]:
    """Begin a sign-in; return the address to send the browser to, and the flow. again: make the provider ask for the
    password even if the user is signed in there. network: the caller's. Raises NotSignedIn."""
    metadata, _ = _provider(options)
    state, nonce, binding = (secrets.token_urlsafe(32) for _ in range(3))
    flow = Flow(state, nonce, secrets.token_urlsafe(48), binding, next_page, again, network, time.time())
    more = {"prompt": "login", "max_age": "0"} if again else {}
    with _client(options, callback) as client:
        address, _ = client.create_authorization_url(
            metadata["authorization_endpoint"], state=flow.state, nonce=flow.nonce, code_verifier=flow.verifier, **more
        )
    with _lock:
        while len(_flows) >= MOST_FLOWS:
            [(crowd, _)] = Counter(one.network for one in _flows.values()).most_common(1)
            del _flows[next(state for state, one in _flows.items() if one.network == crowd)]
        _flows[state] = flow
    return str(address), flow


def recall(state: str, binding: str) -> Flow:
    """Return the flow to which an answer belongs, and forget it. Raises NotSignedIn."""
    with _lock:
        flow = _flows.pop(state, None)
    if flow is None or flow.is_over or not secrets.compare_digest(binding.encode(), flow.binding.encode()):
        raise NotSignedIn("state", "the answer belongs to no sign-in that began in this browser, or came before")
    return flow


def finish(options: OidcSignIn, callback: str, flow: Flow, query: dict[str, str]) -> Person:
    """Check the provider's answer and return the user it vouches for. Raises NotSignedIn."""
    # RFC 9207: another provider's answer, which a malicious page led here.
    if query.get("iss") not in (None, options.issuer):
        raise NotSignedIn("issuer", "the answer is of another provider")
    if "error" in query:
        raise NotSignedIn("refused", f"the provider refused: {query['error'][:100]!r}")
    if not query.get("code"):
        raise NotSignedIn("refused", "the provider sent no code")
    metadata, _ = _provider(options)
    token = _exchange(options, callback, metadata, query["code"], flow.verifier)
    claims = _checked(options, token, flow.nonce)
    if flow.again and not _is_recent(claims.get("auth_time")):
        raise NotSignedIn("not_again", "the provider did not ask for the password again")
    return _person(options, claims)


def _is_recent(at: Any) -> bool:
    return _is_number(at) and abs(time.time() - at) <= AGAIN_S


def _client(options: OidcSignIn, callback: str) -> Any:
    from authlib.integrations.requests_client import OAuth2Session

    secret = None
    if options.secret_file is not None:
        try:
            with open_regular(options.secret_file) as file:
                secret = file.read(_SECRET_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            raise NotSignedIn("unreachable", f"oidcClientSecretFile {options.secret_file} cannot be read") from None
    client = OAuth2Session(
        options.client_id, secret, scope=options.scopes, redirect_uri=callback, code_challenge_method="S256",
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )  # fmt: skip
    client.max_redirects = 0
    return _bounded_session(client)


def _provider(options: OidcSignIn) -> tuple[dict[str, Any], Any]:
    """Return the provider's metadata and keys, which are kept for KEPT_S. Raises NotSignedIn."""
    found = _remembered(options)
    if found is not None:
        return found
    if not _asking.acquire(timeout=WAIT_S):
        raise NotSignedIn("unreachable", "the provider is being asked, and does not answer")
    try:
        found = _remembered(options)
        if found is None:
            try:
                found = _ask(options)
            except NotSignedIn as error:
                with _lock:
                    _failed[options.issuer] = time.monotonic() + FAILED_S, error
                raise
        return found
    finally:
        _asking.release()


def _remembered(options: OidcSignIn) -> tuple[dict[str, Any], Any] | None:
    """Return the kept metadata and keys; None if they have to be loaded. Raises NotSignedIn if loading has failed
    within FAILED_S."""
    now = time.monotonic()
    with _lock:
        found, failed = _known.get(options.issuer), _failed.get(options.issuer)
    if found is not None and found[0] > now:
        return found[1], found[2]
    if failed is not None and failed[0] > now:
        raise NotSignedIn(failed[1].code, str(failed[1]))
    return None


def _ask(options: OidcSignIn) -> tuple[dict[str, Any], Any]:
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    metadata = _get(options.issuer.rstrip("/") + "/.well-known/openid-configuration")
    if metadata.get("issuer") != options.issuer:
        raise NotSignedIn("issuer", f"the provider calls itself {str(metadata.get('issuer'))[:200]!r}")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not _is_good_address(metadata.get(name), options.issuer):
            raise NotSignedIn("unreachable", f"the provider's {name} is no https address")
    keys = _get(metadata["jwks_uri"]).get("keys")
    found = [one for one in keys if isinstance(one, dict)] if isinstance(keys, list) else []
    # Only public keys for signatures: shared keys, and keys for encryption, must not verify a token.
    good = [one for one in found if one.get("kty") in ("RSA", "EC") and one.get("use", "sig") == "sig"]
    try:
        key_set = KeySet.import_key_set({"keys": good})
    except (JoseError, *_BROKEN) as error:
        raise NotSignedIn("unreachable", f"the provider's keys cannot be read: {error}") from None
    with _lock:
        _known[options.issuer] = time.monotonic() + KEPT_S, metadata, key_set
    return metadata, key_set


def _is_good_address(value: Any, issuer: str) -> bool:
    schemes = ("https://", "http://") if issuer.startswith("http://") else ("https://",)
    try:
        return (
            isinstance(value, str) and value.isascii() and value.startswith(schemes) and bool(urlsplit(value).hostname)
        )
    except ValueError:  # brackets that do not match
        return False


def _get(address: str) -> dict[str, Any]:
    import json

    import requests

    try:
        with _bounded_session(requests.Session()) as session:
            answer = session.get(address, timeout=TIMEOUT_S, allow_redirects=False)
            if answer.status_code != 200:
                raise NotSignedIn("unreachable", f"{address} answered {answer.status_code}")
        found = json.loads(answer.content)
    except _BROKEN as error:
        raise NotSignedIn("unreachable", f"{address}: {error}") from None
    if not isinstance(found, dict):
        raise NotSignedIn("unreachable", f"{address} is no JSON object")
    return found


def _bounded_session(session: Any) -> Any:
    """Return the session, changed so that its answers come whole within TIMEOUT_S and have at most _MOST_BYTES: a
    provider that sends byte by byte cannot hold a request. The library's own timeouts apply between two bytes."""
    from requests.adapters import HTTPAdapter

    class Bounded(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **named: Any) -> Any:
            return _within(TIMEOUT_S, super().send, request, *arguments, **{**named, "stream": True})

    for scheme in ("https://", "http://"):
        session.mount(scheme, Bounded())
    return session


def _within(limit_s: float, send: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Send a request in a thread of its own and return the answer with its whole body. After limit_s the connection is
    shut down, which ends the thread. Raises requests.RequestException, and what `send` raises."""
    import requests

    if not _answers.acquire(blocking=False):
        raise requests.ConnectionError("it owes several answers already")
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    came: list[Any] = []
    late = threading.Event()

    def ask() -> None:
        try:
            answer = send(*arguments, **named)
            came.append(answer)
            body = bytearray()
            for piece in answer.iter_content(65_536):
                body += piece
                if late.is_set() or len(body) > _MOST_BYTES:
                    answer.close()
                    raise requests.ConnectionError("the answer is too long")
            answer._content = bytes(body)
            done.put(answer)
        except Exception as error:
            done.put(error)
        finally:
            _answers.release()

    threading.Thread(target=ask, name="oidc-provider", daemon=True).start()
    try:
        found = done.get(timeout=limit_s)
    except queue.Empty:
        late.set()
        for answer in came:
            _cut_off(answer)
        raise requests.Timeout(f"no whole answer within {limit_s:.0f} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def _cut_off(answer: Any) -> None:
    """Shut the connection down while another thread reads from it."""
    import contextlib
    import socket

    with contextlib.suppress(AttributeError, OSError):
        answer.raw._connection.sock.shutdown(socket.SHUT_RDWR)


def _exchange(options: OidcSignIn, callback: str, metadata: dict[str, Any], code: str, verifier: str) -> str:
    """Exchange the code for the id token. Raises NotSignedIn."""
    from authlib.common.errors import AuthlibBaseError

    try:
        with _client(options, callback) as client:
            answer = client.fetch_token(
                metadata["token_endpoint"], code=code, code_verifier=verifier, timeout=TIMEOUT_S,
                allow_redirects=False,
            )  # fmt: skip
    except (AuthlibBaseError, *_BROKEN) as error:
        raise NotSignedIn("refused", f"the provider did not take the code: {error}") from None
    token = answer.get("id_token") if isinstance(answer, dict) else None
    if not isinstance(token, str):
        raise NotSignedIn("refused", "the provider sent no id token")
    return token


def _checked(options: OidcSignIn, token: str, nonce: str) -> dict[str, Any]:
    """Verify an id token and return its claims. Raises NotSignedIn."""
    from joserfc.errors import JoseError

    _, keys = _provider(options)
    try:
        claims = _decoded(token, keys)
    except (JoseError, *_BROKEN):
        _, keys = _ask(options)  # it may have changed its keys
        try:
            claims = _decoded(token, keys)
        except (JoseError, *_BROKEN) as error:
            raise NotSignedIn("token", f"the id token's signature is not good: {error}") from None
    now = time.time()
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    wrong = {
        "iss": claims.get("iss") != options.issuer,
        "aud": options.client_id not in audiences,
        "azp": claims.get("azp", options.client_id if len(audiences) == 1 else None) != options.client_id,
        "exp": not _is_number(claims.get("exp")) or claims["exp"] <= now - LEEWAY_S,
        "iat": not _is_number(claims.get("iat")) or claims["iat"] > now + LEEWAY_S,
        "nbf": "nbf" in claims and (not _is_number(claims["nbf"]) or claims["nbf"] > now + LEEWAY_S),
        "nonce": claims.get("nonce") != nonce,  # its answer was signed, so nobody tries letters here
        "sub": not isinstance(claims.get("sub"), str) or not 0 < len(claims["sub"]) <= 255,
    }
    bad = [name for name, is_wrong in wrong.items() if is_wrong]
    if bad:
        raise NotSignedIn("token", f"wrong in the id token: {', '.join(bad)}")
    return claims


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decoded(token: str, keys: Any) -> dict[str, Any]:
    from joserfc import jwt

    return dict(jwt.decode(token, keys, algorithms=ALGORITHMS).claims)


def _person(options: OidcSignIn, claims: dict[str, Any]) -> Person:
    mail = claims.get("email")
    if options.domains:
        domain = mail.rpartition("@")[2].lower() if isinstance(mail, str) and "@" in mail else ""
        if domain not in {one.lower() for one in options.domains} or claims.get("email_verified") is not True:
            raise NotSignedIn("domain", "the mail address is not verified, or of none of the allowed domains")
    groups = claims.get(options.groups_claim)
    members = {one for one in groups if isinstance(one, str)} if isinstance(groups, list) else set()
    found = [role for group, role in options.roles if group in members] or [options.default_role]
    role = max(found, key=lambda one: ROLES.index(one) if one else -1)
    if not role:
        raise NotSignedIn("no_role", "none of the user's groups has a role here")
    name = claims.get(options.name_claim) or mail or claims["sub"]
    return Person(f"oidc:{options.issuer} {claims['sub']}", str(name)[:64], role)
