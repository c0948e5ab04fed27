"""Messages that were cut from this broker's log because its set went on without them: shows them, sends them again.

They are sent to the set's present leader, over the wire as a producer does, since a follower stores nothing itself. A
copy keeps its body, birth, unique id, keys, tags and properties. A message with a unique id that the leader has is left
out. The id alone is no proof: clients set it, and two sends of one message object have the same, as have all retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...broker.role import NO_TIES, Ties
from ...clock import Clock
from ...disk import Disk
from ...errors import FrameError, NotFound, RemotingError, Unavailable
from ...failover.quarantine import Kept, KeptMessage, kept_tails, read_page, read_record
from ...protocol import properties as p
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.names import NO_SEND_TOPICS, SCHEDULE_TOPIC, TIMER_TOPIC
from ...protocol.record import Record, decode_record
from ...remoting.client import RemotingClient
from ..refusals import require_within
from ..sentences import Sentence, say

logger = logging.getLogger(__name__)

ASK_MS = 5000
MAX_LIMIT = 500
#: Name of a producer group that no client uses.
_GROUP = "ROCKETBOX_SENT_AGAIN"
#: Messages with the same unique id that are looked at.
_OF_ONE_ID = 32
#: Flags that the producer sets: the compression of the body, and several tags. The other flags are the broker's.
_SENDERS_FLAGS = 0x703
#: Properties that a broker writes; the leader that stores the copy writes its own.
_OF_BROKERS = frozenset(
    (
        *(p.REAL_TOPIC, p.REAL_QUEUE_ID, p.WAIT_STORE, p.MSG_REGION, p.TRACE_SWITCH, p.CLUSTER),
        *(p.TIMER_OUT_MS, p.TIMER_ENQUEUE_MS, p.TIMER_DEQUEUE_MS, p.TIMER_ROLL_TIMES, p.TIMER_WAS_OUT_MS),
        *(p.TRANSACTION_ID, p.TRANSACTION_PREPARED, p.PREPARED_QUEUE_OFFSET, p.TRANSACTION_CHECK_TIMES),
    )
)
#: Topics whose messages wait; a copy is sent to the topic that the message is for, and waits again.
_WAITING = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))


class QuarantinePage(NamedTuple):
    """Messages in the order of the log. next_offset: where the next page begins, None behind the last one."""

    name: str
    epoch: int
    from_offset: int
    to_offset: int
    records: int
    reason: str
    cut_at_ms: int
    messages: tuple[KeptMessage, ...]
    next_offset: int | None


class SentAgain(NamedTuple):
    """The result of one message. outcome: "sent", "there" (the leader has it), "left_out" or "failed"; why: the reason
    of the latter two."""

    offset: int
    topic: str
    unique_id: str
    outcome: str
    why: Sentence | None


class Quarantine:
    """Any thread; reads and waits in the caller's."""

    def __init__(
        self, directory: Path, disk: Disk, clock: Clock, leader: Callable[[], str | None], ties: Ties = NO_TIES
    ) -> None:
        """leader: returns the clients' address of the present leader; None if it is not known. ties: make the proof
        that the leader may ask for."""
        # Constant after construction.
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._leader = leader
        self._ties = ties

    def _kept(self, name: str) -> Kept:
        for one in kept_tails(self._directory, self._disk):
            if one.tail.path.name == name:
                return one
        raise NotFound("file", name)

    def page(self, name: str, *, offset: int | None = None, limit: int = 50) -> QuarantinePage:
        """Return messages that were cut from this broker's log and are kept in a file, without bodies. name: of the
        file, from `replica_set().quarantine`.

        offset: physical offset at which the page begins; None: the first message. limit: 1 to 500. NotFound (file),
        InvalidInput, Unavailable (it cannot be read).
        """
        require_within("limit", limit, 1, MAX_LIMIT)
        kept = self._kept(name)
        try:
            found = read_page(kept, self._disk, kept.tail.begin if offset is None else offset, limit)
        except OSError as error:
            raise Unavailable(say("quarantine_unreadable", reason=error.strerror or str(error))) from None
        return QuarantinePage(
            name, kept.epoch, kept.tail.begin, kept.tail.end, kept.records, kept.reason, kept.cut_ms,
            tuple(found.messages), None if found.next < 0 else found.next,
        )  # fmt: skip

    def send(
        self, name: str, *, offset: int | None = None, limit: int = 50, by: str = ""
    ) -> tuple[list[SentAgain], int | None]:
        """Send some of these messages to the present leader. Return (their results, offset of the next ones, None
        behind the last). A message with a unique id that the leader already has is not sent; a repeated call sends only
        messages without one twice.

        Errors as `page`; Unavailable also if there is no leader, or it does not answer or accepts nothing now. The
        results until then are lost, but a repeated call reports what was sent before as "there".
        """
        address = self._leader()
        if address is None:
            raise Unavailable(say("quarantine_nowhere"))
        if offset is None:
            logger.info("admin: quarantined messages sent again file=%s to=%s by=%s", name, address, by)
        page = self.page(name, offset=offset, limit=limit)
        kept = self._kept(name)
        client = RemotingClient(
            address, ASK_MS, self._clock, greet=self._ties.greeting(), connect=self._ties.guard.connect
        )
        try:
            return [self._again(client, kept, one) for one in page.messages], page.next_offset
        except (RemotingError, FrameError, OSError) as error:
            raise Unavailable(say("leader_silent", address=address, reason=str(error))) from None
        finally:
            client.close()

    def _again(self, client: RemotingClient, kept: Kept, message: KeptMessage) -> SentAgain:
        def told(outcome: str, why: Sentence | None = None) -> SentAgain:
            return SentAgain(message.offset, message.topic, message.unique_key, outcome, why)

        record = read_record(kept, self._disk, message.offset)
        if record is None:
            return told("failed", say("message_gone"))
        properties = p.decode_properties(record.properties)
        topic, queue_id = record.topic, record.queue_id
        if topic in _WAITING:
            topic = properties.get(p.REAL_TOPIC, "")
            queue_id = int(properties.get(p.REAL_QUEUE_ID, "") or 0)
        if not topic or topic in NO_SEND_TOPICS:
            return told("left_out", say("quarantine_of_the_broker", topic=record.topic))
        # What waits at the leader is found by the topic in which it waits.
        if message.unique_key and any(
            self._is_there(client, where, message.unique_key, record) for where in dict.fromkeys((topic, record.topic))
        ):
            return told("there")
        answer = client.invoke_sync(_send(record, topic, queue_id, properties), ASK_MS)
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            raise Unavailable(say("leader_silent", address=client.address, reason=answer.remark or str(answer.code)))
        if answer.code not in _STORED:
            return told("failed", say("quarantine_refused", reason=answer.remark or str(answer.code)))
        return told("sent")

    def _is_there(self, client: RemotingClient, topic: str, unique_key: str, record: Record) -> bool:
        """True if the leader has a message with this unique id, birth time and body, and as many retries."""
        wanted = (record.born_time_ms, record.reconsume_times, record.body)
        # Asked as any key: a query by unique key may answer before the index has the newest messages with it.
        fields = {
            "topic": topic, "key": unique_key, "maxNum": str(_OF_ONE_ID), "beginTimestamp": "0",
            "endTimestamp": str((1 << 63) - 1),
        }  # fmt: skip
        answer = client.invoke_sync(RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=fields), ASK_MS)
        if answer.code != ResponseCode.SUCCESS:
            return False
        at = 0
        while at < len(answer.body):
            found = decode_record(answer.body, at)
            if (found.born_time_ms, found.reconsume_times, found.body) == wanted:
                return True
            at += found.size
        return False


#: Codes of answers to a stored message, also if it is not known to be on disk or on slaves yet.
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


def _send(record: Record, topic: str, queue_id: int, properties: dict[str, str]) -> RemotingCommand:
    kept = {name: value for name, value in properties.items() if name not in _OF_BROKERS}
    flags = record.sys_flag & _SENDERS_FLAGS
    fields = {
        "a": _GROUP, "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": str(flags),
        "g": str(record.born_time_ms), "h": str(record.flag), "i": p.encode_properties(kept),
        "j": str(record.reconsume_times), "k": "false", "l": "0", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=record.body)
