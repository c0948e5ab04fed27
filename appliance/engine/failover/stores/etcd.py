"""etcd as the leader store: the JSON gateway of its API v3 (etcd 3.4 and newer), over http.client.

No client library: five calls are needed, and the maintained libraries use one endpoint only or bring 25 MB of gRPC.
Keys and values go in base64, 64-bit numbers as texts. Every answer's header has the cluster's id and the revision of
the whole store, which grows with each write.

    POST /v3/kv/range            linearizable unless requested otherwise: the member consults a majority first
    POST /v3/kv/txn              compare MOD (revision of the key's last write) or CREATE = 0 (there is none), then put
    POST /v3/kv/put
    POST /v3/kv/compaction       forgets values that were replaced before a revision
    POST /v3/maintenance/alarm   alarms, such as a quota that is used up
    POST /metrics                of one endpoint, without a token: the size of its database, and its quota
    POST /v3/auth/authenticate   name and password -> a token, sent as `Authorization`; etcd forgets it after minutes
"""

from __future__ import annotations

import base64
import contextlib
import logging
import ssl
import threading
import time
from typing import Any, TypeVar

import msgspec

from ...errors import StartError
from ...regular_file import require_regular
from ..leader_store import Revision, StoreReplaced, StoreUnavailable, SwapConflict
from .access import Access
from .json_calls import CallFailed, Endpoint

logger = logging.getLogger(__name__)

#: Time between two reads in `wait`. A read goes to a majority and takes half a millisecond.
POLL_S = 0.125
#: Members of a set are few; RocketBox did not write a longer list.
MAX_KEYS = 1000
#: Writes of two days at two beats a second: an etcd that still has a revision this old is not compacted.
LONG_HISTORY = 345_600
#: Error text of etcd when `--quota-backend-bytes` is used up.
_FULL = "database space exceeded"
#: Used share of the quota from which a person has to see to it: at the beats of one set, days before it is used up.
_NEAR_FULL = 0.8
_SIZE, _QUOTA = b"etcd_mvcc_db_total_size_in_bytes", b"etcd_server_quota_backend_bytes"
_NO_KEY = Revision("0")
_Answer = TypeVar("_Answer", "_RangeAnswer", "_TxnAnswer", "_PutAnswer")


class _Header(msgspec.Struct):
    cluster_id: str
    revision: int = 0


class _KeyValue(msgspec.Struct):
    key: bytes
    mod_revision: int
    value: bytes = b""


class _RangeAnswer(msgspec.Struct):
    header: _Header
    kvs: list[_KeyValue] = []
    more: bool = False


class _InTxn(msgspec.Struct):
    """The header within a transaction's answers has no cluster."""

    kvs: list[_KeyValue] = []


class _TxnPart(msgspec.Struct):
    response_range: _InTxn | None = None


class _TxnAnswer(msgspec.Struct):
    header: _Header
    succeeded: bool = False
    responses: list[_TxnPart] = []


class _PutAnswer(msgspec.Struct):
    header: _Header


class _Alarm(msgspec.Struct):
    alarm: str = ""


class _AlarmAnswer(msgspec.Struct):
    """This answer has no header."""

    alarms: list[_Alarm] = []


class _Token(msgspec.Struct):
    token: str


class _Error(msgspec.Struct):
    error: str = ""
    message: str = ""


# Not strict: numbers come as texts.
_RANGE = msgspec.json.Decoder(_RangeAnswer, strict=False)
_TXN = msgspec.json.Decoder(_TxnAnswer, strict=False)
_PUT = msgspec.json.Decoder(_PutAnswer, strict=False)
_ALARMS = msgspec.json.Decoder(_AlarmAnswer, strict=False)
_TOKEN = msgspec.json.Decoder(_Token)
_ERROR = msgspec.json.Decoder(_Error)


class _Unbelievable(CallFailed):
    """The endpoint answered, but as another cluster or from an older state."""


class _Refused(CallFailed):
    """The endpoint answered with an error. status: of HTTP."""

    def __init__(self, address: str, status: int, text: str) -> None:
        super().__init__(f"{address} answers {status}: {text}")
        self.status = status
        self.text = text


class EtcdStore:
    """A LeaderStore. One thread calls it.

    A call goes to the endpoint that answered last, and to the others in turn when that fails: each gets half of the
    remaining time, the last one all of it. So one request may be sent twice, and a swap may conflict with its own first
    sending: SwapConflict then has the caller's own value.
    """

    def __init__(self, endpoints: tuple[tuple[str, int], ...], access: Access, tls: bool = False) -> None:
        context = _tls_context(access) if tls else None
        self._endpoints = [Endpoint(host, port, context) for host, port in endpoints]
        self._access = access
        self._cluster = access.cluster
        self._revision = 0
        self._token = ""
        # The one key that is swapped again and again: name, last known revision, and value at that revision.
        self._held: tuple[str, Revision, bytes] = ("", _NO_KEY, b"")
        self._closed = threading.Event()
        # `tidy`: the revision of an hour ago.
        self._compact_to = 0
        self._warned = False

    # --- LeaderStore

    def read(self, key: str) -> tuple[bytes | None, Revision]:
        return self._hold(key, *_value(self._call("kv/range", {"key": _b64(key)}, _RANGE, key), key))

    def _hold(self, key: str, value: bytes | None, revision: Revision) -> tuple[bytes | None, Revision]:
        if value is not None:
            self._held = (key, revision, value)
        return value, revision

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        name = _b64(key)
        compare: dict[str, str] = {"key": name, "result": "EQUAL"}
        if expected is None:
            compare |= {"target": "CREATE", "create_revision": "0"}
        else:
            compare |= {"target": "MOD", "mod_revision": expected}
        compares = [compare]
        held, at, before = self._held
        if expected is not None and (held, at) == (key, expected):
            # A restored etcd counts on from a lower revision, and reaches this one again with another value.
            compares.append({"key": name, "result": "EQUAL", "target": "VALUE", "value": _b64(before)})
        request = {
            "compare": compares,
            "success": [{"request_put": {"key": name, "value": _b64(value)}}],
            "failure": [{"request_range": {"key": name}}],
        }
        answer = self._call("kv/txn", request, _TXN, key)
        if answer.succeeded:
            revision = Revision(str(answer.header.revision))
            if expected is not None:
                self._hold(key, value, revision)
            return revision
        found = answer.responses[0].response_range if answer.responses else None
        if found is None:
            raise StoreUnavailable("etcd answered a refused swap without saying what the key is")
        raise SwapConflict(*self._hold(key, *_value(found, key)))

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        request = {"key": _b64(key), "keys_only": True}
        while not self._closed.wait(max(0.0, min(POLL_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return
            try:
                if _value(self._call("kv/range", request, _RANGE, key, until=deadline), key)[1] != seen:
                    return
            except StoreUnavailable:
                pass

    def put(self, key: str, value: bytes) -> None:
        self._call("kv/put", {"key": _b64(key), "value": _b64(value)}, _PUT, key)

    def list(self, prefix: str) -> dict[str, bytes]:
        # "/" comes directly before "0".
        end = prefix.removesuffix("/") + "0"
        answer = self._call(
            "kv/range", {"key": _b64(prefix), "range_end": _b64(end), "limit": str(MAX_KEYS)}, _RANGE, prefix
        )
        if answer.more:
            raise StoreUnavailable(f"etcd holds more than {MAX_KEYS} keys below {prefix}")
        try:
            return {pair.key.decode(): pair.value for pair in answer.kvs if pair.key.startswith(prefix.encode())}
        except UnicodeDecodeError:
            raise StoreUnavailable(f"etcd holds keys below {prefix} that are no text") from None

    def identity(self) -> str:
        key = f"{self._access.prefix}/"
        request = {"key": _b64(key), "keys_only": True}
        return self._call("kv/range", request, _RANGE, key, believe=True).header.cluster_id

    def close(self) -> None:
        self._closed.set()
        for endpoint in self._endpoints:
            endpoint.close()

    # --- history

    def tidy(self, compact: bool) -> None:
        """See `stores.tidy`. Each beat of a set is a revision, and etcd keeps replaced values until it is compacted; it
        compacts itself only when configured to."""
        try:
            if compact:
                self._compact()
                self._warned = False
            elif self._keeps_history():
                if not self._warned:
                    self._warned = True
                    logger.warning(
                        "leader store: etcd keeps the history of more than %d writes, and nothing is seen to compact "
                        "it; start etcd with --auto-compaction-retention=1h, or set haCompactStore where it serves "
                        "nothing else",
                        LONG_HISTORY,
                    )
            else:
                self._warned = False
        except StoreUnavailable as error:
            log = logger.info if self._warned or not compact else logger.warning
            log("leader store: etcd's history could not be %s: %s", "compacted" if compact else "looked at", error)
            self._warned = self._warned or compact

    def _compact(self) -> None:
        before, self._compact_to = self._compact_to, self._now()
        if not before:
            return
        try:
            self._call("kv/compaction", {"revision": str(before)}, _PUT, "")
        except StoreUnavailable as error:
            if "compacted" not in str(error):  # by another member of the set
                raise

    def _keeps_history(self) -> bool:
        then = self._now() - LONG_HISTORY
        if then < 1:
            return False
        key = f"{self._access.prefix}/"
        try:
            self._call("kv/range", {"key": _b64(key), "keys_only": True, "revision": str(then)}, _RANGE, key)
        except StoreUnavailable as error:
            if "compacted" in str(error):
                return False
            raise
        return True

    def _now(self) -> int:
        key = f"{self._access.prefix}/"
        return self._call("kv/range", {"key": _b64(key), "keys_only": True}, _RANGE, key).header.revision

    # --- room

    def shortage(self) -> str:
        """See `stores.shortage`. "" for an etcd that does not give its alarms or its size."""
        endpoint, alarms = self._endpoints[0], list[_Alarm]()
        with contextlib.suppress(CallFailed):
            deadline = time.monotonic() + self._access.timeout_s
            alarms = self._post(endpoint, "maintenance/alarm", b'{"action":"GET"}', _ALARMS, deadline).alarms
        if any(one.alarm == "NOSPACE" for one in alarms):
            return "etcd alarms NOSPACE: its quota is used up, it takes no writes, and nobody can be elected"
        try:
            _, text = endpoint.post("/metrics", b"", {}, time.monotonic() + self._access.timeout_s)
            size, quota = _number(text, _SIZE), _number(text, _QUOTA)
        except (CallFailed, ValueError):
            return ""
        if not 0 < quota * _NEAR_FULL <= size:
            return ""
        return (
            f"the database of etcd at {endpoint.address} has {size / quota:.0%} of its quota ({size:.0f} of "
            f"{quota:.0f} bytes); full, it takes no writes, and nobody can be elected: compact and defragment it"
        )

    # --- calls

    def _call(
        self,
        path: str,
        request: dict[str, Any],
        decoder: msgspec.json.Decoder[_Answer],
        key: str,
        *,
        until: float = 0.0,
        believe: bool = False,
    ) -> _Answer:
        """Return the first answer that can be believed. until: deadline, if earlier than the time-out. believe: accept
        any cluster and revision. Raises StoreUnavailable.
        """
        if self._closed.is_set():
            raise StoreUnavailable("the leader store was closed")
        deadline = time.monotonic() + self._access.timeout_s
        if until:
            deadline = min(deadline, until)
        body = msgspec.json.encode(request)
        failed: list[CallFailed] = []
        for at, endpoint in enumerate(list(self._endpoints)):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            mine = deadline if at == len(self._endpoints) - 1 else time.monotonic() + left / 2
            try:
                answer = self._ask(endpoint, path, body, decoder, key, mine, believe)
            except CallFailed as error:
                failed.append(error)
                continue
            if at:
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
            return answer
        text = "; ".join(str(error) for error in failed) or "no answer in time"
        # An endpoint of a replaced store decides the error even if the others do not answer.
        raise (StoreReplaced if any(isinstance(error, _Unbelievable) for error in failed) else StoreUnavailable)(
            f"etcd: {text}"
        )

    def _ask(
        self,
        endpoint: Endpoint,
        path: str,
        body: bytes,
        decoder: msgspec.json.Decoder[_Answer],
        key: str,
        deadline: float,
        believe: bool,
    ) -> _Answer:
        """Call one endpoint. A connection that broke since the last call is made anew once."""
        again = endpoint.connected
        while True:
            try:
                if not endpoint.connected:
                    endpoint.connect(deadline)
                    # Before anything is written there: which cluster is it? This read needs no majority.
                    look = msgspec.json.encode({"key": _b64(key or "/"), "keys_only": True, "serializable": True})
                    header = self._post(endpoint, "kv/range", look, _RANGE, deadline).header
                    self._believe(endpoint, header, believe, old=True)
                answer = self._post(endpoint, path, body, decoder, deadline)
                self._believe(endpoint, answer.header, believe)
                return answer
            except (_Unbelievable, _Refused):
                raise
            except CallFailed:
                if not again or time.monotonic() >= deadline:
                    raise
                again = False

    def _believe(self, endpoint: Endpoint, header: _Header, believe: bool, old: bool = False) -> None:
        """Check cluster and revision of an answer. old: its revision may lag behind. Raises _Unbelievable."""
        if believe:
            if header.cluster_id != self._cluster:
                endpoint.close()  # the next call checks it anew, before it writes there
            return
        if self._cluster and header.cluster_id != self._cluster:
            endpoint.close()
            raise _Unbelievable(f"{endpoint.address} belongs to cluster {header.cluster_id}, not {self._cluster}")
        if not old:
            if header.revision < self._revision:
                raise _Unbelievable(
                    f"{endpoint.address} answers from revision {header.revision}, and {self._revision} was seen before"
                )
            self._revision = header.revision
            self._cluster = header.cluster_id

    def _post(
        self, endpoint: Endpoint, path: str, body: bytes, decoder: msgspec.json.Decoder[_Decoded], deadline: float
    ) -> _Decoded:
        """POST with the token, which is fetched if there is none or etcd no longer accepts it."""
        if not self._access.user:
            return _decoded(endpoint, *endpoint.post(f"/v3/{path}", body, {}, deadline), decoder)
        fresh = not self._token
        if fresh:
            self._authenticate(endpoint, deadline)
        try:
            return self._with_token(endpoint, path, body, decoder, deadline)
        except _Refused as refused:
            if fresh or not (refused.status == 401 or "auth" in refused.text):
                raise
        self._authenticate(endpoint, deadline)
        return self._with_token(endpoint, path, body, decoder, deadline)

    def _with_token(
        self, endpoint: Endpoint, path: str, body: bytes, decoder: msgspec.json.Decoder[_Decoded], deadline: float
    ) -> _Decoded:
        headers = {"Authorization": self._token}
        return _decoded(endpoint, *endpoint.post(f"/v3/{path}", body, headers, deadline), decoder)

    def _authenticate(self, endpoint: Endpoint, deadline: float) -> None:
        self._token = ""
        request = msgspec.json.encode({"name": self._access.user, "password": self._access.password})
        found = _decoded(endpoint, *endpoint.post("/v3/auth/authenticate", request, {}, deadline), _TOKEN)
        # It goes into a header.
        if not found.token.isascii() or not found.token.isprintable():
            raise CallFailed(f"{endpoint.address} gave a token that cannot be sent")
        self._token = found.token


_Decoded = TypeVar("_Decoded")


def _decoded(endpoint: Endpoint, status: int, body: bytes, decoder: msgspec.json.Decoder[_Decoded]) -> _Decoded:
    """Decode an answer. Raises _Refused, CallFailed."""
    if status == 404:
        # With a configuration file the gateway is off unless the file enables it.
        raise _Refused(endpoint.address, status, "its JSON gateway is off: set enable-grpc-gateway: true there")
    if status != 200:
        text = _error_of(body)
        if _FULL in text:
            text += ": its quota is used up, and it takes no writes; compact and defragment it, then disarm its alarm"
        raise _Refused(endpoint.address, status, text)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        endpoint.close()
        raise CallFailed(f"{endpoint.address} does not answer as etcd: {error}") from None


def _number(metrics: bytes, name: bytes) -> float:
    """Return a metric's value, 0 if it is missing. Raises ValueError."""
    at = metrics.find(b"\n" + name + b" ")
    return float(metrics[at + len(name) + 2 :].partition(b"\n")[0]) if at >= 0 else 0.0


def _error_of(body: bytes) -> str:
    """Return etcd's error text on one line; if the body is not etcd's, its beginning."""
    try:
        said = _ERROR.decode(body)
        text = said.message or said.error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:200].decode(errors="replace")
    return " ".join(text[:300].split())


def _value(found: _RangeAnswer | _InTxn, key: str) -> tuple[bytes | None, Revision]:
    """Return value and revision of a key, None without one. Raises StoreUnavailable if the answer has another key."""
    if not found.kvs:
        return None, _NO_KEY
    pair = found.kvs[0]
    if len(found.kvs) > 1 or pair.key != key.encode() or pair.mod_revision < 1:
        raise StoreUnavailable(f"etcd answered for another key than {key}")
    return pair.value, Revision(str(pair.mod_revision))


def _b64(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _tls_context(access: Access) -> ssl.SSLContext:
    """Return the context for TLS. Raises StartError for files that hold no certificate or key."""
    try:
        require_regular(access.ca, access.certificate, access.key)
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key or None, password=_no_password)
    except (OSError, ValueError) as error:
        raise StartError(f"haStore: the files for TLS cannot be used: {error}.") from None
    return context


def _no_password() -> str:
    """Refuse an encrypted key. Otherwise OpenSSL would ask for the password at the terminal."""
    raise ValueError("the key is encrypted")
