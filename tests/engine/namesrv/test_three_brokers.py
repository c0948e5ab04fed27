"""Three `rocketbox serve --roles broker` of one cluster behind one `--roles namesrv`, as processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.protocol.codes import RequestCode
from tests.support.apache import ask
from tests.support.server import Server
from tests.support.waiting import wait_for

NAMES = ("broker-a", "broker-b", "broker-c")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Server, dict[str, Server]]]:
    """Return (the name server, broker name -> its process)."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(Server(tmp_path / "namesrv", roles="namesrv"))
        brokers = {}
        for name in NAMES:
            arguments = ("--namesrv-addr", namesrv.namesrv, "--broker-name", name, "--flush", "async")
            config = tmp_path / f"{name}.toml"
            config.write_text("[store]\nmappedFileSizeCommitLog = 33554432\n")
            server = Server(tmp_path / name, *arguments, "-c", str(config), roles="broker", log_file_mib=None)
            brokers[name] = stack.enter_context(server)
        yield namesrv, brokers


def _routed(namesrv: Server, topic: str) -> dict[str, str]:
    """Return broker name -> master address in a topic's route."""
    header, body = ask(namesrv.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if header["code"] != 0:
        return {}
    route: dict[str, Any] = json.loads(body)
    return {broker["brokerName"]: broker["brokerAddrs"]["0"] for broker in route["brokerDatas"]}


def test_three_brokers_of_one_cluster_are_one_route(cluster: tuple[Server, dict[str, Server]]) -> None:
    namesrv, brokers = cluster
    everyone = {name: server.broker for name, server in brokers.items()}
    for topic in ("TBW102", "DefaultCluster"):
        wait_for(lambda topic=topic: _routed(namesrv, topic) == everyone, f"the route of {topic}")
    for name, address in everyone.items():
        assert _routed(namesrv, name) == {name: address}

    # One dies: its connection closes, and the route is without it at once.
    brokers["broker-b"].kill()
    left = {name: address for name, address in everyone.items() if name != "broker-b"}
    wait_for(lambda: _routed(namesrv, "TBW102") == left, "the killed broker to leave the route")
    assert _routed(namesrv, "broker-b") == {}
    brokers["broker-b"].restart()
    wait_for(lambda: _routed(namesrv, "TBW102") == everyone, "the broker that came back")

    # One stops: it has left the route when it has ended.
    brokers["broker-c"].stop()
    assert set(_routed(namesrv, "TBW102")) == {"broker-a", "broker-b"}

    # The name server dies and comes back: the brokers notice, and register before the next period.
    namesrv.kill()
    namesrv.restart()
    back = {name: address for name, address in everyone.items() if name != "broker-c"}
    wait_for(lambda: _routed(namesrv, "TBW102") == back, "the name server to hear it again")
