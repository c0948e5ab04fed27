"""The addresses of the name servers, for clients and brokers that are configured with this address only.

RocketMQ's clients fetch `http://<domain>:8080/rocketmq/nsaddr` (with a unit: `nsaddr-<unit>?nofix=1`) at their start
and every two minutes if no name server is configured; brokers do with fetchNamesrvAddrByAddressServer. So a list that
grows reaches them without a restart.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from .. import runtime
from ..engine.errors import Unavailable
from ..engine.host_port import join_host_port, local_host, split_host_port


@require_safe
def nsaddr(request: HttpRequest, unit: str = "") -> HttpResponse:
    """`host:port;host:port` as text, in one line; the same for every unit, for there is one cluster here.

    Answered without a sign-in by design: clients send no credentials here, and each has the same from its own
    settings elsewhere. It says addresses only. 503 while there is no name server to name.
    """
    try:
        addresses = namesrv_addresses()
    except (runtime.EngineNotRunning, Unavailable):
        addresses = []
    return HttpResponse(";".join(addresses), status=200 if addresses else 503, content_type="text/plain; charset=utf-8")


def namesrv_addresses() -> list[str]:
    """The name servers that know this broker, as clients reach them; else our own one."""
    engine = runtime.window().system()
    own = engine.namesrv_address
    if own is None:
        return list(engine.namesrvs)
    # The broker reaches its own name server at the bound address; clients get the advertised one.
    inside = join_host_port(local_host(engine.bind), split_host_port(own)[1])
    return [own if address == inside else address for address in engine.namesrvs] or [own]
