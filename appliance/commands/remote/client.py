"""Calls a server's REST API. Standard library only, and imported only by commands that need it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ... import server_proof
from ...engine.errors import StartError
from ...runtime import is_loopback

#: Time-out of a call, longer than any act of the server takes.
LIMIT_S = 60.0
#: Validity of a token that the command makes for itself; it is removed when the command ends.
MINTED_FOR_S = 300
PIECE_BYTES = 1 << 18


class Problem(Exception):
    """The server refused, or failed. problem: its problem details."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail") or f"status {status}")
        self.status = status
        self.problem = problem


class Unreachable(Exception):
    """No server answers there."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server's address and a token for it. key: of the data directory whose server has to answer there; None: any.
    context: of connections by HTTPS; None: the system's authorities are trusted."""

    url: str
    token: str
    key: str | None = None
    context: ssl.SSLContext | None = None

    def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> dict[str, Any]:
        """Send a request; return the answer's JSON. Raises Problem and Unreachable."""
        with self._asked(method, path, query, body) as response:
            return _json(response.read())

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the answer's bytes as they arrive."""
        with self._asked("GET", path, None, None) as response:
            while piece := response.read(PIECE_BYTES):
                yield piece

    @contextmanager
    def _asked(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any
    ) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        address = f"{parts.path.rstrip('/')}/api/v1{path}"
        if query:
            address += "?" + urlencode(query, doseq=True, quote_via=quote)
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        data = None
        if body is not None:
            is_lines = isinstance(body, bytes)
            data = body if is_lines else json.dumps(body).encode()
            headers["Content-Type"] = "application/x-ndjson" if is_lines else "application/json"
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, parts.port, timeout=LIMIT_S, context=self.context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=LIMIT_S)
        try:
            try:
                if self.key is not None:
                    self._prove(connection, parts.path.rstrip("/"))
                connection.request(method, address, data, headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"{self.url}: {getattr(error, 'strerror', None) or error or 'no answer'}") from None
            if response.status >= 400:
                raise Problem(response.status, _json(response.read(1 << 20)))
            yield response
        finally:
            connection.close()

    def _prove(self, connection: http.client.HTTPConnection, base: str) -> None:
        """Raise Unreachable unless the server of the data directory is at the other end. The token is sent later."""
        word = server_proof.challenge()
        connection.request("GET", f"{base}/healthz", headers={server_proof.ASK: word})
        response = connection.getresponse()
        response.read(PIECE_BYTES)
        # An answer that ends the connection proves nothing: the next connection may reach another program.
        if connection.sock is not None:
            host, port = connection.sock.getpeername()[:2]
            if server_proof.is_proven(self.key or "", word, host, port, response.headers.get(server_proof.ANSWER)):
                connection.auto_open = 0  # never change to another connection
                return
        raise Unreachable(
            f"{self.url}: another program answers there than the server of this data directory, and was sent no token. "
            "Say where the server is (--url) and give its token (--token-file FILE)"
        )


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        found = None
    if isinstance(found, list):
        return {"items": found}
    if not isinstance(found, dict):
        raise Unreachable("another program answers there")
    return found


#: Options of `serve` that say which server of this machine is meant.
LOCAL = ("--data-dir", "-c", "--bind", "--http-port", "--https-port", "--https-cert")


def local_options(given: Mapping[str, str]) -> list[str]:
    """Return the given options of `serve`."""
    return [word for name in LOCAL if name in given for word in (name, given[name])]


@contextmanager
def server(given: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Server]:
    """Yield the server that options and environment name. Without a token one is made in the console's database, if
    this machine has it, and removed at the end. Raises StartError and Unreachable.

    given: --url, --token, --token-file and the options of serve.
    """
    url = (given.get("--url") or environ.get("ROCKETBOX_URL") or "").rstrip("/")
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise StartError(f"{url} is no address: give one like http://127.0.0.1:8080.")
    token = _token(given, environ)
    options = local_options(given)
    if token is not None:
        if url:
            yield Server(url, token)
        else:
            yield Server(*_local(options, environ, token))
        return
    # A token of this machine is sent to another one only if the command line names both, never because of a variable.
    named = bool({"--data-dir", "-c"} & given.keys())
    may = is_loopback(urlsplit(url).hostname or "") or (named and "--url" in given)
    if url and not (may and (named or environ.get("ROCKETBOX_DATA_DIR"))):
        raise StartError("Give a token: --token-file FILE, or the variable ROCKETBOX_TOKEN.")
    from .minted import minted

    with minted(options, MINTED_FOR_S) as secret:
        # On another machine the server need not prove anything: the command line has named it.
        is_here = not url or is_loopback(urlsplit(url).hostname or "")
        if is_here:
            yield Server(*_local(options, environ, secret, url))
        else:
            yield Server(url, secret)


def _token(given: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    if "--token" in given:
        return given["--token"]
    path = given.get("--token-file")
    if not path and not environ.get("ROCKETBOX_TOKEN"):
        path = environ.get("ROCKETBOX_TOKEN_FILE")
    if path:
        try:
            with open(path, encoding="ascii") as file:
                return file.read(4096).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"The token in {path} cannot be read: {getattr(error, 'strerror', error)}.") from None
    return environ.get("ROCKETBOX_TOKEN") or None


def _key(options: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the key of the data directory, by which its server is recognised. Raises StartError."""
    from ...command_line import load
    from ...runtime import Place

    path = Place(load(options, environ)[0].data_dir).directory / "secret-key"
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise StartError(
            f"{path} cannot be read ({why}), so whose server listens there cannot be told: say where it is, with --url."
        ) from None


def _local(
    options: Sequence[str], environ: Mapping[str, str], token: str, url: str = ""
) -> tuple[str, str, str, ssl.SSLContext | None]:
    """Return the fields of the server on this machine, by the settings of `serve`. url: its address if it was given."""
    from ...command_line import load
    from ...engine.host_port import join_host_port, local_host

    config, serve = load(options, environ)
    scheme, context = "http", None
    if serve.https is not None:
        from ...own_certificate import trusting

        scheme, context = "https", trusting(serve.https[0])
    if not url and not serve.http_port:
        raise StartError(f"Which port the console of {config.data_dir} has is not known: give --url.")
    found = url or f"{scheme}://{join_host_port(local_host(serve.bind), serve.http_port)}"
    return found, token, _key(options, environ), context
