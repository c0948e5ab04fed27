"""Sends rows as messages: `df.write.format("rocketbox")` and `df.writeStream.format("rocketbox")`, at least once.

A task is done when brokers have confirmed all its messages. A task or a micro-batch that fails is done again as a whole
by Spark, so messages of its first try come twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..bare_errors import bare
from ..options import OptionError, Options
from .asked import access_of
from .connection import tls_context
from .errors import Unreachable

if TYPE_CHECKING:
    from appliance.client import Message, Pending, Producer

#: Columns that are written: name -> types that they may have. Of `topic`, the column or the option is needed.
COLUMNS = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "shard": ("string",),
    "delay_level": ("int", "bigint"),
    "delay_ms": ("int", "bigint"),
    "deliver_at_ms": ("int", "bigint"),
}
GROUP = "SPARK_PRODUCER"
#: Seconds for one message with all its attempts.
SEND_S = 30.0
#: Unconfirmed messages of a task, and bytes of the bodies that it keeps to send them again.
_MOST_WAITING, _MOST_BYTES = 2_000, 64 << 20
#: Seconds without any confirmation after which a task fails, as brokers are away; pause before it sends again.
AWAY_S, _PAUSE_S = 30.0, 0.5


class _Sending:
    """Sends messages, and those again that did not get to a broker, as it was away. Belongs to one task."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        #: Messages that were not waited for, in their order, and the bytes of their bodies.
        self._waiting: deque[tuple[Message, Pending[Any]]] = deque()
        self._bytes = 0
        #: Since when (monotonic) nothing was confirmed, None while all is well.
        self._away_since: float | None = None

    def send(self, message: Message) -> None:
        self._waiting.append((message, self._producer.submit(message)))
        self._bytes += len(message.body)

    def wait(self, most: int) -> None:
        """Wait until at most `most` messages are not confirmed, and none is sent again. Raises ClientError if brokers
        refuse one, or were away for AWAY_S, and Unreachable if name servers were."""
        # Rows may come slowly: the time until they are looked at again would count as one without brokers.
        while self._waiting and (
            len(self._waiting) > most or self._bytes > _MOST_BYTES or self._away_since is not None
        ):
            message, promised = self._waiting[0]
            try:
                promised.result()
            except ConnectionError as error:
                self._send_again(error)
            else:
                self._waiting.popleft()
                self._bytes -= len(message.body)
                self._away_since = None

    def _send_again(self, error: ConnectionError) -> None:
        """Send what was not confirmed again, and of a shard of such messages all later ones, so that the last copies
        are in order."""
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if now - self._away_since > AWAY_S:
            raise _in_options_words(error)
        time.sleep(_PAUSE_S)
        old, self._waiting, self._bytes = self._waiting, deque(), 0
        shards = set[str]()
        for message, promised in old:
            try:
                promised.result()
            except ConnectionError:
                if message.shard is not None:
                    shards.add(str(message.shard))
            else:
                if message.shard is None or str(message.shard) not in shards:
                    continue
            self.send(message)


def _in_options_words(error: ConnectionError) -> Exception:
    """Return the error for a job, which names its name servers by the option brokers and not in a call."""
    from appliance.client import NoNameServer
    from appliance.client.core.directory import HOW_TO_SAY_WHERE

    if not isinstance(error, NoNameServer):
        return error
    why = str(error).removesuffix(HOW_TO_SAY_WHERE).rstrip()
    return Unreachable(
        f"{why} They were tried for {AWAY_S:g} s. The option brokers has the host:port of name servers, which is not "
        "that of brokers."
    )


@dataclass
class Written(WriterCommitMessage):
    """messages: number that brokers have confirmed to a task."""

    messages: int


class Sender:
    """Pickles: it is sent to the executors with each task, and connects there."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        """Raises OptionError if such rows cannot be sent."""
        if not options.brokers:
            raise OptionError("The files of a store cannot be written: name servers in the option brokers can.")
        if overwrite:
            raise OptionError("Messages cannot be overwritten: write with mode('append').")
        given = {field.name: field.dataType.simpleString() for field in schema.fields}
        _check(given)
        if options.topic_pattern is not None or len(options.topics) > 1 or ("topic" in given) == bool(options.topics):
            raise OptionError("Each row needs one topic: give a column topic, or one name in the option topic.")
        self._access = access_of(options)
        self._topic = options.topics[0] if options.topics else None

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send all rows; return when brokers have confirmed them. Raises ClientError and Unreachable."""
        from appliance.client import Client, Credentials

        access, keys = self._access, self._access.credentials
        count, topics = 0, set[str]()
        with Client(
            access.name_servers,
            timeout=SEND_S,
            credentials=None if keys is None else Credentials(keys.access_key, keys.secret_key),
            tls=tls_context(access.tls_ca) if access.tls else False,
        ) as client:
            sending = _Sending(client.producer(GROUP, max_in_flight=_MOST_WAITING))
            for row in iterator:
                message = self._message(row.asDict())
                sending.send(message)
                count += 1
                # While a topic's route is looked up, later sends would overtake the first.
                sending.wait(0 if message.topic not in topics else _MOST_WAITING)
                topics.add(message.topic)
            sending.wait(0)
        return Written(count)

    def _message(self, row: dict[str, Any]) -> Message:
        from appliance.client import InvalidMessage, Message
        from appliance.client.packing import RESERVED

        topic, body = row.get("topic", self._topic), row["body"]
        if topic is None or body is None:
            raise InvalidMessage(f"A row has no {'topic' if topic is None else 'body'}: {str(row)[:300]}")
        # Rows that were read hold RocketMQ's own properties, too: those of a new message are made anew.
        properties = {name: value for name, value in (row.get("properties") or {}).items() if name not in RESERVED}
        return Message(
            topic,
            body if isinstance(body, str) else bytes(body),
            row.get("tags") or None,
            (row.get("keys") or "").split(),
            properties,
            row.get("shard"),
            row.get("delay_level"),
            None if row.get("delay_ms") is None else row["delay_ms"] / 1000,
            None if row.get("deliver_at_ms") is None else datetime.fromtimestamp(row["deliver_at_ms"] / 1000, UTC),
        )


def _check(given: dict[str, str]) -> None:
    """Raise OptionError if the columns are not those of messages."""
    if "body" not in given:
        raise OptionError("Rows are written as messages from a column body, and there is none.")
    for name, kind in given.items():
        if name not in COLUMNS:
            raise OptionError(
                f"The column {name} cannot be written; select some of {', '.join(COLUMNS)} before writing."
            )
        if kind not in COLUMNS[name]:
            raise OptionError(f"The column {name} is {' or '.join(COLUMNS[name])} when it is written, not {kind}.")


@bare("write")
class BatchSink(Sender, DataSourceWriter):
    pass


@bare("write")
class StreamSink(Sender, DataSourceStreamWriter):
    pass
