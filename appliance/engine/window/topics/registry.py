"""Schemas of a registry that speaks Confluent's protocol: bodies are a zero, an id of 4 bytes, and a value in Avro.

Strangers choose the ids, so questions are bounded: one at a time, MOST_QUESTIONS in SPAN_S seconds, and answers and
failures are kept. The address comes from the configuration alone, and no redirect is followed.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ...bodies.avro import AvroSchema
from ...bodies.schemas import json_of
from ...bodies.work import SCHEMA_BYTES, BadSchema, Unfit
from ...clock import SYSTEM, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

#: A registry that sends nothing for this long, or does not finish in twice the time, has failed.
TIMEOUT_S = 3.0
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
    """There is no schema with this id, or the registry does not answer."""


class Registry:
    """Any thread."""

    #: For a page, in place of a schema's name.
    label = "Avro by the schema registry"

    def __init__(self, address: str, secret_file: str = "", clock: Clock = SYSTEM) -> None:
        """address: http or https. secret_file: holds user:password."""
        # Constant after construction.
        self._address = urlsplit(address)
        self._secret_file = secret_file
        self._clock = clock
        # Held while the registry is asked.
        self._asking = threading.Lock()
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._kept: dict[int, AvroSchema] = {}
        self._failed: dict[int, tuple[str, float]] = {}
        self._asked: deque[float] = deque(maxlen=MOST_QUESTIONS)

    def decode(self, data: bytes, most_values: int | None = None) -> bytes:
        """Return a body as JSON. Raises Unfit."""
        if data[:1] != b"\0" or len(data) < 5:
            raise Unfit("it does not begin with a zero and a schema's id")
        return json_of(self._schema(int.from_bytes(data[1:5], "big")), data[5:], most_values)

    def decoded(self, data: bytes, most_values: int | None = None) -> bytes | None:
        """Return a body as JSON; None if it does not fit."""
        try:
            return self.decode(data, most_values)
        except Unfit:
            return None

    def _schema(self, number: int) -> AvroSchema:
        found = self._known(number)
        if found is None:
            if not self._asking.acquire(timeout=TIMEOUT_S):
                raise Unfit("the schema registry is being asked for others")
            try:
                found = self._known(number)  # another thread may have asked meanwhile
                if found is None:
                    found = self._ask_and_keep(number)
            finally:
                self._asking.release()
        if isinstance(found, str):
            raise Unfit(found)
        return found

    def _known(self, number: int) -> AvroSchema | str | None:
        with self._lock:
            schema = self._kept.get(number)
            reason, until = self._failed.get(number, ("", 0.0))
        return schema or (reason if self._clock.monotonic() < until else None)

    def _ask_and_keep(self, number: int) -> AvroSchema | str:
        now = self._clock.monotonic()
        if len(self._asked) == MOST_QUESTIONS and now - self._asked[0] < SPAN_S:
            return "the schema registry was asked for too many schemas just now"
        self._asked.append(now)
        found: AvroSchema | str
        try:
            found = self._ask(number)
        except (_Failure, BadSchema) as error:
            found = f"schema {number} of the registry: {error}"
        except (OSError, http.client.HTTPException) as error:
            found = f"the schema registry does not answer: {error or type(error).__name__}"[:200]
        with self._lock:
            # Apart, so that ids which strangers make up push no schema out.
            for kept in (self._kept, self._failed):
                while len(kept) >= _MOST_KEPT:
                    del kept[next(iter(kept))]
            if isinstance(found, str):
                self._failed[number] = found, self._clock.monotonic() + FAILURE_S
            else:
                self._kept[number] = found
        return found

    def _ask(self, number: int) -> AvroSchema:
        of = self._address
        make: Callable[..., http.client.HTTPConnection] = (
            http.client.HTTPSConnection if of.scheme == "https" else http.client.HTTPConnection
        )
        connection = make(of.hostname or "", of.port, timeout=TIMEOUT_S)
        try:
            headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            if self._secret_file:
                secret = Path(self._secret_file).read_bytes().strip()
                headers["Authorization"] = "Basic " + base64.b64encode(secret).decode()
            connection.request("GET", f"{of.path.rstrip('/')}/schemas/ids/{number}", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _Failure(
                    "there is none" if answer.status == 404 else f"the answer has the status {answer.status}"
                )
            data = _read(answer)
        finally:
            connection.close()
        try:
            told = msgspec.json.decode(data, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _Failure("the answer is none of a schema registry") from None
        if told.schema_type != "AVRO" or told.references:
            raise _Failure("it is not Avro, or has references to others")
        text = told.schema.encode("utf-8", "replace")
        if len(text) > SCHEMA_BYTES:
            raise _Failure("it is too long")
        return AvroSchema(text)


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Return the body of an answer. Raises _Failure if it is too long or too slow."""
    data, until = b"", time.monotonic() + TIMEOUT_S
    while piece := answer.read1(_ANSWER_BYTES + 1 - len(data)):
        data += piece
        if len(data) > _ANSWER_BYTES:
            raise _Failure("the answer is too long")
        if time.monotonic() > until:
            raise _Failure("the answer comes too slowly")
    return data
