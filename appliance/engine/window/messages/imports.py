"""Sends messages from elsewhere to a topic as copies: they keep what their sender set, not what a broker set.

A copy keeps body, tag, keys, flag and the properties that users set. It is born now, on this host, under a unique id
that the caller chose, so that after a crash its copies differ from all other messages. Copies are appended as the
broker's own messages (`OwnAppends`): checked as a test message is, stored with their tick, answered once durable.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ...broker.sending.own_appends import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES, OwnAppends, OwnMessage
from ...broker.topics import TopicConfigManager
from ...errors import InvalidInput, Unavailable
from ...protocol.codes import ResponseCode
from ...protocol.properties import KEYS, MAX_PROPERTIES_BYTES, SHARDING_KEY, TAGS, UNIQUE_KEY, encode_properties
from ..options import Options
from ..sentences import say
from .sending import NOT_IN_TAGS, check_text, may_be_set, writable
from .snapshots import Imported

logger = logging.getLogger(__name__)


class MessageImport:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        topics: TopicConfigManager,
        appends: OwnAppends,
        added: Callable[[], dict[str, str]],
        options: Options,
    ) -> None:
        """added: returns the properties that the broker adds to every message."""
        # Constant after construction.
        self._topics = topics
        self._appends = appends
        self._added = added
        self._options = options

    def send(
        self,
        topic: str,
        items: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        timeout_s: float = 15.0,
        by: str = "",
    ) -> tuple[Imported, ...]:
        """Send copies of messages to a topic as the broker's own producer. Return the result of each; durable in sync
        flush.

        An item has `body`, and may have `tags`, `keys`, `properties`, `flag`, `queue_id` (used modulo the topic's
        number of queues) and `unique_id`, which the copy gets. Properties that clients and brokers set are left out;
        the result names them. dry_run: only checks. NotFound (topic), InvalidInput (topic), Unavailable: some copies
        may have been stored then; find them with `messages(since=...)`.
        """
        queues = writable(self._topics, topic).write_queue_nums
        found: list[Imported | None] = [None] * len(items)
        ready: list[tuple[int, OwnMessage, tuple[str, ...]]] = []
        for number, item in enumerate(items):
            try:
                ready.append((number, *self._message(topic, queues, item)))
            except InvalidInput as error:
                found[number] = Imported("failed", str(error), -1, -1, ())
        for batch in _batches(ready):
            if dry_run:
                for number, _, left_out in batch:
                    found[number] = Imported("valid", None, -1, -1, left_out)
                continue
            try:
                outcomes = self._appends.submit([message for _, message, _ in batch]).result(timeout_s)
            except FutureTimeout:
                raise Unavailable(say("no_answer_in_time", seconds=round(timeout_s))) from None
            for (number, _, left_out), outcome in zip(batch, outcomes, strict=True):
                if outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise Unavailable(outcome.reason)
                if outcome.physical_offsets:
                    found[number] = Imported("sent", None, outcome.queue_id, outcome.queue_offset, left_out)
                else:
                    found[number] = Imported("failed", outcome.reason, -1, -1, left_out)
        if ready and not dry_run:
            logger.info("admin: messages imported topic=%s count=%d by=%s", topic, len(ready), by)
        return tuple([one for one in found if one is not None])

    def _message(self, topic: str, queues: int, item: Mapping[str, Any]) -> tuple[OwnMessage, tuple[str, ...]]:
        """Return (message, names of the properties that were left out). Raises InvalidInput."""
        body: bytes = item["body"]
        limit = self._options.config.store.max_message_size
        if not body:
            raise InvalidInput("body", say("body_missing"))
        if len(body) > limit:
            raise InvalidInput("body", say("body_too_long", size=len(body), limit=limit))
        unique = item.get("unique_id") or secrets.token_hex(16).upper()
        properties = {UNIQUE_KEY: unique}
        tags: str = item.get("tags") or ""
        if tags:
            check_text("tags", tags)
            if any(sign in tags for sign in NOT_IN_TAGS):
                raise InvalidInput("tags", say("bad_tag"))
            properties[TAGS] = tags
        keys: Sequence[str] = item.get("keys") or ()
        for key in keys:
            check_text("keys", key)
            if not key or any(sign.isspace() for sign in key):
                raise InvalidInput("keys", say("bad_key"))
        if keys:
            properties[KEYS] = " ".join(keys)
        left_out = []
        for name, value in item.get("properties", {}).items():
            if name != SHARDING_KEY and not may_be_set(name):
                if name not in (TAGS, KEYS):
                    left_out.append(name)
                continue
            check_text("properties", name)
            check_text("properties", value)
            if not name or not value:
                raise InvalidInput("properties", say("bad_property"))
            properties[name] = value
        text = encode_properties(properties | self._added())
        if len(text.encode()) > MAX_PROPERTIES_BYTES:
            raise InvalidInput("properties", say("properties_too_long", size=len(text.encode())))
        queue_id = item.get("queue_id")
        if queue_id is None or not 0 <= queue_id < queues:
            # Messages of one queue stay together in one queue, in their order.
            queue_id = secrets.randbelow(queues) if queue_id is None else queue_id % queues
        flag = item.get("flag", 0)
        message = OwnMessage(topic, queue_id, body, text, unique, born_ms=int(time.time() * 1000), flag=flag)
        return message, tuple(left_out)


_Ready = tuple[int, OwnMessage, tuple[str, ...]]


def _batches(ready: list[_Ready]) -> Iterator[list[_Ready]]:
    """Yield the messages in batches that `OwnAppends` accepts."""
    batch: list[_Ready] = []
    size = 0
    for one in ready:
        size += len(one[1].body)
        if batch and (size > MAX_BATCH_BYTES or len(batch) >= MAX_BATCH_MESSAGES):
            yield batch
            batch, size = [], len(one[1].body)
        batch.append(one)
    if batch:
        yield batch
