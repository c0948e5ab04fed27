"""The part of replication that every broker has: what its role allows it to serve, and its answer to 907.

`master_side.py` serves the slaves of a broker, `slave_side.py` follows its master: most brokers need neither, and load
none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..config import BrokerConfig, StoreConfig
from ..errors import RefusedRequest
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from ..replication.roles import slaves_needed
from ..store.message_store import MessageStore
from .durability import SlaveWait
from .role import Kind, Role
from .sending.admission import SendAdmission
from .sending.fields import SendFields

if TYPE_CHECKING:
    from ..replication.master import ReplicationServer
    from ..replication.slave_link import LinkStatus
    from .slave_side import SlaveSide


def slave_wait(config: StoreConfig, role: Role) -> SlaveWait | None:
    """Return the limits of the wait of sends for slaves; None if they do not wait."""
    waits = role.position is not None and role.appends if role.is_member else slaves_needed(config) > 0
    return SlaveWait(config.slave_timeout_ms, config.ha_slave_fallbehind_max_bytes) if waits else None


#: A slave that lacks fewer bytes counts as in sync. Upstream: haMaxGapNotInSync.
IN_SYNC_BYTES = 256 * 1024 * 1024


class NoAdmission(SendAdmission):
    """The admission of a broker that takes no sends, such as a slave."""

    def __init__(self, why: str, *parts: Any) -> None:
        """why: as `Role.no_sends`. parts: what SendAdmission takes."""
        super().__init__(*parts)
        self._why = why

    def admit(self, fields: SendFields, client_version: int, born_host: bytes) -> NoReturn:
        raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {self._why}")


def refuse_pulls(role: Role, config: BrokerConfig) -> RefusedRequest | None:
    """Return the refusal of pulls with which a broker starts; None if it serves them. A slave serves them only with
    slaveReadEnable, a follower only after its leader has confirmed all that it held."""
    if role.kind is Kind.FENCED:
        return RefusedRequest(ResponseCode.SYSTEM_BUSY, role.no_sends)
    if role.appends or config.slave_read_enable:
        return NOT_CONFIRMED if role.kind is Kind.FOLLOWER else None
    return RefusedRequest(ResponseCode.SYSTEM_BUSY, "this broker is a slave without slaveReadEnable")


NOT_CONFIRMED = RefusedRequest(ResponseCode.SYSTEM_BUSY, "the leader has not confirmed yet what this broker holds")


def ha_status(
    store: MessageStore, server: ReplicationServer | None, slave: SlaveSide | None, follows: bool
) -> dict[str, object]:
    """Return the fields of 907 besides the log's end. follows: True if the broker takes no messages itself."""
    if slave is None and follows:
        return {"master": False}
    if slave is not None:
        status, now_ms = slave.follower.status, slave.follower.clock.wall_ms()

        def at(ago_s: float | None) -> int:
            return 0 if ago_s is None else now_ms - int(ago_s * 1000)

        client = {
            "lastReadTimestamp": at(status.heard_s),
            "lastWriteTimestamp": at(status.said_s),
            "activated": bool(status.following),
            "masterAddr": status.following,
            "masterFlushOffset": slave.sync.master_end or 0,
            "maxOffset": store.log.written,
            "transferredByteInSecond": int(status.bytes_per_s),
        }
        return {"master": False, "haClientRuntimeInfo": client}
    end = store.kept()
    links = server.slaves if server is not None else []
    connections = [
        {
            "addr": one.peer,
            "diff": end - max(0, one.acknowledged),
            "inSync": is_in_sync(one, end),
            "slaveAckOffset": one.acknowledged,
            "transferFromWhere": one.sent,
            "transferredByteInSecond": int(one.bytes_per_s),
        }
        for one in links
    ]
    return {"haConnectionInfo": connections, "inSyncSlaveNums": sum(bool(one["inSync"]) for one in connections)}


def is_in_sync(slave: LinkStatus, end: int) -> bool:
    """True if a slave has reported its offset, and that is close to the end."""
    return slave.acknowledged >= 0 and end - slave.acknowledged < IN_SYNC_BYTES


#: Requests that a slave refuses: they change tables that come from its master, and the next copy would undo that. It
#: does its own cleaning, and has its own options.
REFUSED = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
)


def refuse_changes(dispatcher: Dispatcher, where: Callable[[], str], follows: Callable[[], bool]) -> None:
    """Replace the handlers of these requests by refusals. where: returns a text that says what to do instead. follows:
    returns True if deletions are taken over from another broker.

    Deleting a topic is answered 0, and nothing is done: `mqadmin deleteTopic` sends 215 to every broker of a cluster,
    slaves too, and stops at the first that refuses. A deletion at the master is taken over here a moment later. While a
    set has no leader, nobody deletes it: then it is refused.
    """

    def remark() -> str:
        return f"what this broker has comes from another one, and is changed there: {where()}"

    def refuse(request: RemotingCommand, conn: Connection) -> NoReturn:
        raise RefusedRequest(ResponseCode.NO_PERMISSION, remark())

    def leave(request: RemotingCommand, conn: Connection) -> RemotingCommand:
        if not follows():
            refuse(request, conn)
        return RemotingCommand.response(ResponseCode.SUCCESS, remark())

    for code in REFUSED:
        dispatcher.add(code, refuse)
    dispatcher.add(RequestCode.DELETE_TOPIC_IN_BROKER, leave)
