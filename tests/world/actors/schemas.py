"""Administrators who give topics schemas, and take them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.engine.errors import AdminError
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.machine import Machine
from tests.world.oracle import Violation
from tests.world.schemas import NAMES, name_at, put, schemas_of

if TYPE_CHECKING:
    from tests.world.world import World


def _schema(world: World, act: Act) -> str:
    topic, name, oracle = act["topic"], act["name"], world.oracle
    look(world, world.machine)
    before = oracle.schemas.setdefault(topic, {""})
    oracle.schemas[topic] = before | {name}
    machine = world.machine
    answer = world.act_on(lambda: [put(schemas_of(machine.broker, machine.pools, machine.config), topic, name)()])
    if isinstance(answer, AdminError):
        if topic in oracle.topics and not world.has_faults:
            raise Violation("a schema is not taken", f"{act}: {answer}")
        return f"refused: {answer}"
    if answer is None:
        return "no answer"
    if topic in oracle.topics:
        oracle.schemas[topic] = {name}
    look(world, machine)
    return "taken"


def look(world: World, machine: Machine) -> None:
    """The schemas that a machine's window shows are those that were acknowledged."""
    if machine.killed or world.has_faults:
        return
    schemas = schemas_of(machine.broker, machine.pools, machine.config)
    found = world.act_on(lambda: {topic: name_at(schemas, topic) for topic in world.oracle.schemas})
    if found is None:
        return
    if isinstance(found, AdminError):
        raise Violation("schemas cannot be read", str(found))
    for topic, allowed in world.oracle.schemas.items():
        if found[topic] not in allowed and topic in world.oracle.topics:
            raise Violation("a topic has another schema", f"{topic}: {found[topic]!r}, not {allowed}")
        if topic in world.oracle.topics:
            world.oracle.schemas[topic] = {found[topic]}


KINDS = [
    Kind(
        "administrators",
        "schema",
        1,
        lambda chance, before: {"topic": chance.choice(TOPICS[:2]), "name": chance.choice(NAMES)},
        _schema,
    )
]
