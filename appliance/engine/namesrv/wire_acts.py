"""Describes the name server's administrative requests for the audit log."""

from __future__ import annotations

from collections.abc import Callable

from ..protocol.codes import RequestCode
from ..protocol.command import RemotingCommand
from ..wire_gate import Act, Names, State, option_names
from .kv_config import KVConfigManager
from .route_info import RouteInfoManager
from .settings import NamesrvSettings


def _field(*names: str) -> Callable[[RemotingCommand], Names]:
    return lambda request: tuple(request.ext_fields[name] for name in names if request.ext_fields.get(name))


def namesrv_acts(routes: RouteInfoManager, kv: KVConfigManager, settings: NamesrvSettings) -> dict[int, Act]:
    """Return request code -> how the audit log shows it."""

    def value_now(names: Names) -> State:
        value = kv.get(*names) if len(names) == 2 else None
        return {} if value is None else {"value": value}

    def settings_now(names: Names) -> State:
        current = settings.texts
        return {name: current[name] for name in names if name in current}

    def brokers_now(names: Names) -> State:
        return {"brokers": ", ".join(routes.brokers_of(names[0]))} if names else {}

    code = RequestCode
    return {
        code.PUT_KV_CONFIG: Act("kv.put", _field("namespace", "key"), value_now),
        code.DELETE_KV_CONFIG: Act("kv.delete", _field("namespace", "key"), value_now),
        code.WIPE_WRITE_PERM_OF_BROKER: Act("broker.wipe_write", _field("brokerName"), answered=("wipeTopicCount",)),
        code.ADD_WRITE_PERM_OF_BROKER: Act("broker.add_write", _field("brokerName"), answered=("addTopicCount",)),
        code.DELETE_TOPIC_IN_NAMESRV: Act("route.delete", _field("topic"), brokers_now, told=("clusterName",)),
        code.UPDATE_NAMESRV_CONFIG: Act("namesrv.change", option_names, settings_now),
    }
