"""Sends rows as messages: `df.write.format("rocketbox")` and `df.writeStream.format("rocketbox")`, at least once.

A task is done when brokers have confirmed all its messages. A task or a micro-batch that fails is done again as a whole
by Spark, so messages of its first try come twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..options import OptionError, Options
from .asked import access_of
from .connection import tls_context

if TYPE_CHECKING:
    from appliance.client import Message

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
#: Unconfirmed messages of a task.
_MOST_WAITING = 2_000


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
        """Send all rows; return when brokers have confirmed them. Raises ClientError."""
        from appliance.client import Client, Credentials

        access, keys = self._access, self._access.credentials
        count, waiting = 0, deque[Any]()
        topics = set[str]()
        with Client(
            access.name_servers,
            timeout=SEND_S,
            credentials=None if keys is None else Credentials(keys.access_key, keys.secret_key),
            tls=tls_context(access.tls_ca) if access.tls else False,
        ) as client:
            producer = client.producer(GROUP, max_in_flight=_MOST_WAITING)
            for row in iterator:
                message = self._message(row.asDict())
                one = producer.submit(message)
                count += 1
                if message.topic not in topics:
                    # While a topic's route is looked up, later sends would overtake the first.
                    topics.add(message.topic)
                    one.result()
                else:
                    waiting.append(one)
                if len(waiting) > _MOST_WAITING:
                    waiting.popleft().result()
            for one in waiting:
                one.result()
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


class BatchSink(Sender, DataSourceWriter):
    pass


class StreamSink(Sender, DataSourceStreamWriter):
    pass
