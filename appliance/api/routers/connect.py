"""Connecting a client: complete programs, and a connection that is tried."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from ... import runtime
from ...console.system.connect_views import ELSEWHERE, door_of, may_ask_of_users, with_shell
from ...console.system.snippets import GROUP, TOPIC, projects
from ...engine.errors import InvalidInput
from ...engine.window.snapshots import fields_of
from ..errors import Refused
from ..schemas import ChecksOut, ProgramsOut, Text, worst_of

router = Router(tags=["clients"])

Client = Literal["java", "java4", "go", "python", "cpp", "python-cpp"]


@router.get("/connect", response=ProgramsOut)
def programs(
    request: HttpRequest,
    topic: Text = Query(TOPIC, max_length=127, description="The topic that they send to and consume."),
    user: Text = Query("", max_length=64, description="The user of the wire whose requests they sign."),
    tls: Literal["yes", "no"] = Query("yes", description="no: they do not encrypt, where that is possible."),
    language: Client | None = Query(None, description="Only the one for this client."),
) -> Any:
    """A producer and a consumer for each client, with this server's address. They read the user's secret from the
    environment."""
    admin = runtime.window()
    broker, namesrv = admin.addresses()
    door = admin.client_door()
    try:
        found = projects(namesrv or ELSEWHERE, topic, door_of(user, tls == "yes"))
    except ValueError as error:
        raise InvalidInput("topic" if error.args == (topic,) else "user", "Clients cannot use this name.") from None
    items = [
        fields_of(project) | {"files": [{"name": name, "text": text} for name, text in project.files], "shell": shell}
        for project, shell in with_shell(found)
        if language in (None, project.key)
    ]
    return {"broker": broker, "namesrv": namesrv, "access": door.access, "tls": door.tls, "items": items}


@router.get("/connect/trial", response=ChecksOut)
def trial(
    request: HttpRequest,
    client: Client = "python",
    host: Text = Query("", max_length=253, description="Of the name server; empty: the advertised one."),
    tls: bool = Query(False, description="The client encrypts."),
    topic: Text = Query(TOPIC, max_length=127),
    group: Text = Query(GROUP, max_length=255),
    user: Text = Query("", max_length=64, description="The user of the wire who signs; for administrators."),
    address: Text = Query("127.0.0.1", max_length=60, description="The client's, for entries that name sources."),
) -> Any:
    """Try a connection as this client would make it, from the server's own machine: name, port, TLS, route, the
    brokers' addresses, and what the user may do. Each step is a sentence that says what to do."""
    may_ask = may_ask_of_users(request.user)
    if user and not may_ask:
        raise Refused("forbidden", "What users of the wire may do is for administrators.")
    checks = runtime.window().try_connection(
        topic, group, host=host, client=client, tls=tls, user=user if may_ask else None, address=address
    )
    return {"worst": worst_of(checks), "items": checks}
