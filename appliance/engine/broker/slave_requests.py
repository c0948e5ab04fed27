"""Requests that a slave refuses: they change tables that come from its master, and the next copy would undo that.

Deleting a topic is answered 0, and nothing is done: `mqadmin deleteTopic` sends 215 to every broker of a cluster,
slaves too, and stops at the first that refuses. A deletion at the master is taken over here a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ..errors import RefusedRequest
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher

#: Requests for the master only. A slave does its own cleaning, and has its own options.
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


def refuse_changes(dispatcher: Dispatcher, where: Callable[[], str]) -> None:
    """Replace the handlers of these requests by refusals. where: returns a text that says what to do instead."""

    def remark() -> str:
        return f"what this broker has comes from another one, and is changed there: {where()}"

    def refuse(request: RemotingCommand, conn: Connection) -> NoReturn:
        raise RefusedRequest(ResponseCode.NO_PERMISSION, remark())

    def leave(request: RemotingCommand, conn: Connection) -> RemotingCommand:
        return RemotingCommand.response(ResponseCode.SUCCESS, remark())

    for code in REFUSED:
        dispatcher.add(code, refuse)
    dispatcher.add(RequestCode.DELETE_TOPIC_IN_BROKER, leave)
