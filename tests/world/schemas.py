"""Schemas of topics, as administrators keep them through the window."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from appliance.engine.errors import NotFound
from appliance.engine.window.admin_pool import POOL, AdminPool
from appliance.engine.window.topics.schemas import TopicSchemas

if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.engine.broker.broker import Broker
    from appliance.engine.config import EngineConfig

#: Names of schemas; "" for none.
NAMES = ("Order", "Bill", "")


def schemas_of(broker: Broker, pools: dict[str, Any], config: EngineConfig) -> TopicSchemas:
    """The window's view and command, which read the file anew."""
    return TopicSchemas(broker.topics, broker.store, AdminPool(pools[POOL]), config.broker, follows=False)


def forget_schemas(broker: Broker, pools: dict[str, Any], config: EngineConfig) -> None:
    """Have a new broker forget the schema of a topic that is deleted, as the window does."""
    broker.topic_service.forget_more = lambda topic: schemas_of(broker, pools, config).forget(topic)


def put(schemas: TopicSchemas, topic: str, name: str) -> Callable[[], object]:
    """Return what gives a topic a schema, or takes it away."""

    def work() -> object:
        if name:
            fields = [{"name": "id", "type": "long"}]
            data = json.dumps({"type": "record", "name": name, "fields": fields}).encode()
            return schemas.put(topic, kind="avro", data=data)
        try:
            return schemas.remove(topic)
        except NotFound:
            return None

    return work


def name_at(schemas: TopicSchemas, topic: str) -> str:
    """Return the name of a topic's schema, "" without one."""
    found = schemas.find(topic)
    return "" if found is None else found.name
