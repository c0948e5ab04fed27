"""Schemas of a registry that speaks Confluent's protocol: bodies are a zero, an id of 4 bytes, and a value in Avro or
Protobuf.

Strangers choose the ids, so questions are bounded: one at a time, MOST_QUESTIONS in SPAN_S seconds, and answers and
failures are kept. A registry that does not answer is left alone for a while, and lines of lists never wait for it. The
address comes from the configuration alone, and no redirect is followed.
"""

from __future__ import annotations

import base64
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...bodies.schemas import BodyReader, Decodes, json_of, registered
from ...bodies.work import SCHEMA_BYTES, BadSchema, Undecided, Unfit
from ...clock import SYSTEM, Clock
from ...failover.stores.json_calls import CallFailed, Endpoint, TooLong
from ...regular_file import open_regular

#: Time for one question, with all of its answer; and for how long a registry that did not answer is left alone.
TIMEOUT_S, AWAY_S = 3.0, 5.0
#: Longest user:password that is read.
_SECRET_BYTES = 4096
#: The schema is a text in JSON, which may double it.
_ANSWER_BYTES = 2 * SCHEMA_BYTES + 4096
#: Schemas and failures that are kept, and for how long a failure is.
_MOST_KEPT, FAILURE_S = 256, 30.0
MOST_QUESTIONS, SPAN_S = 20, 10.0


class _Answer(msgspec.Struct):
    """The used fields of GET /schemas/ids/ID."""

    schema: str
    schema_type: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[msgspec.Raw] = []


class _Failure(Exception):
    """The registry has no usable schema with this id."""


class Registry(BodyReader):
    """Any thread."""

    #: For a page, in place of a schema's name.
    label = "schema registry"

    def __init__(self, address: str, secret_file: str = "", clock: Clock = SYSTEM) -> None:
        """address: http or https. secret_file: holds user:password."""
        # Constant after construction.
        of = urlsplit(address)
        port = of.port or (443 if of.scheme == "https" else 80)
        context = ssl.create_default_context() if of.scheme == "https" else None
        self._path = of.path.rstrip("/")
        self._secret_file = secret_file
        self._clock = clock
        # Held while the registry is asked.
        self._asking = threading.Lock()
        # Guarded by it. _away: why the registry is not asked, and until when.
        self._endpoint = Endpoint(of.hostname or "", port, context)
        self._asked: deque[float] = deque(maxlen=MOST_QUESTIONS)
        self._away: tuple[str, float] = ("", 0.0)
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._kept: dict[int, Decodes] = {}
        self._failed: dict[int, tuple[str, float]] = {}

    def prepare(self, data: bytes) -> None:
        """Ask for the schema of a body, and wait for the answer. Raises nothing."""
        if data[:1] == b"\0" and len(data) >= 5:
            with suppress(Unfit):
                self._schema(int.from_bytes(data[1:5], "big"))

    def decode(self, data: bytes, most_values: int | None = None) -> bytes:
        """Return a body as JSON. Raises Unfit. With `most_values`, as for a line of a list, it waits for no registry: a
        schema that is not known is asked for meanwhile."""
        if data[:1] != b"\0" or len(data) < 5:
            raise Unfit("it does not begin with a zero and a schema's id")
        number = int.from_bytes(data[1:5], "big")
        schema = self._schema(number) if most_values is None else self._schema_at_hand(number)
        return json_of(schema, data[5:], most_values)

    def _schema(self, number: int) -> Decodes:
        found = self._known(number)
        if found is None:
            if not self._asking.acquire(timeout=TIMEOUT_S):
                raise Undecided("the schema registry is being asked for others")
            found = self._ask_in_turn(number)
        if isinstance(found, str):
            raise Undecided(found)
        return found

    def _schema_at_hand(self, number: int) -> Decodes:
        found = self._known(number)
        if found is None and self._asking.acquire(blocking=False):
            found = self._not_now()
            if found is not None:
                self._asking.release()
            else:
                thread = threading.Thread(target=self._ask_in_turn, args=(number,), name="schema-registry", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no further thread can be started
                    self._asking.release()
        if found is None:
            raise Undecided("its schema is being asked for")
        if isinstance(found, str):
            raise Undecided(found)
        return found

    def _ask_in_turn(self, number: int) -> Decodes | str:
        """Called with _asking held, and lets it go."""
        try:  # another thread may have asked meanwhile
            return self._known(number) or self._not_now() or self._ask_and_keep(number)
        finally:
            self._asking.release()

    def _not_now(self) -> str | None:
        """Return why the registry is not asked now."""
        now = self._clock.monotonic()
        if now < self._away[1]:
            return self._away[0]
        if len(self._asked) == MOST_QUESTIONS and now - self._asked[0] < SPAN_S:
            return "the schema registry was asked for too many schemas just now"
        return None

    def _known(self, number: int) -> Decodes | str | None:
        with self._lock:
            schema = self._kept.get(number)
            reason, until = self._failed.get(number, ("", 0.0))
        return schema or (reason if self._clock.monotonic() < until else None)

    def _ask_and_keep(self, number: int) -> Decodes | str:
        self._asked.append(self._clock.monotonic())
        found: Decodes | str
        try:
            found = self._ask(number)
        except (_Failure, BadSchema) as error:
            found = f"schema {number} of the registry: {error}"
        except CallFailed as error:
            self._away = f"the schema registry does not answer: {error}"[:200], self._clock.monotonic() + AWAY_S
            return self._away[0]
        with self._lock:
            # Apart, so that ids which strangers make up push no schema out.
            table: dict[int, Any] = self._failed if isinstance(found, str) else self._kept
            while len(table) >= _MOST_KEPT:
                del table[next(iter(table))]
            if isinstance(found, str):
                self._failed[number] = found, self._clock.monotonic() + FAILURE_S
            else:
                self._kept[number] = found
        return found

    def _ask(self, number: int) -> Decodes:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._secret_file:
            try:
                with open_regular(self._secret_file) as file:
                    secret = file.read(_SECRET_BYTES).strip()
            except OSError as error:
                raise CallFailed(f"its secret file cannot be read: {error.strerror}") from None
            headers["Authorization"] = "Basic " + base64.b64encode(secret).decode()
        path = f"{self._path}/schemas/ids/{number}"
        try:
            status, data = self._endpoint.get(path, headers, time.monotonic() + TIMEOUT_S, _ANSWER_BYTES)
        except TooLong:
            raise _Failure("the answer is too long") from None
        finally:
            self._endpoint.close()
        if status != 200:
            raise _Failure("there is none" if status == 404 else f"the answer has the status {status}")
        try:
            told = msgspec.json.decode(data, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _Failure("the answer is none of a schema registry") from None
        if told.references:
            raise _Failure("it has references to others")
        text = told.schema.encode("utf-8", "replace")
        if len(text) > SCHEMA_BYTES:
            raise _Failure("it is too long")
        return registered(told.schema_type, text)
