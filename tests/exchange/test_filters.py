"""The stored filters of groups (consumerFilter.json), in a store that RocketBox and Apache open in turns.

A member whose heartbeat is older than the other broker's entry shows that the entry was read: the heartbeat does not
replace it, and the member's pulls are answered by the entry's expression.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from appliance.engine.filter.sql92 import compile_sql92
from appliance.engine.protocol.properties import decode_properties
from tests.exchange.both_ways import BROKER_NAME, conf
from tests.support.apache import ApacheBroker
from tests.support.effort import NIGHTLY
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.golden import extract_store, store_manifest
from tests.support.server import Server
from tests.support.waiting import wait_for

#: An orderly stop takes 5.3.3 some 20 s of fixed pauses.
VERSIONS = ["4.9.7", "5.3.3"] if NIGHTLY else ["4.9.7"]
COLOURS = ("red", "blue", "green", "blue")


def beat(peer: Peer, group: str, expression: str, version: int) -> None:
    subscription = {
        "topic": "Colours", "subString": expression, "expressionType": "SQL92", "subVersion": version,
        "tagsSet": [], "codeSet": [], "classFilterMode": False,
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": f"{group}@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert peer.ask(34, {}, json.dumps(body).encode()).code == 0


def pulled(peer: Peer, group: str, version: int) -> list[str]:
    """Pull as a member of the group; return the colours of the messages."""
    fields = pull_fields("Colours", 0, 0, sysFlag=0, consumerGroup=group, subVersion=version)
    fields.pop("subscription", None)
    peer.send(11, fields)
    while (answer := peer.receive()).code == 40:
        pass  # the notice that a member joined
    assert answer.code == 0, answer
    return [decode_properties(record.properties)["colour"] for record in records(answer.body)]


def kept(store: Path) -> dict[str, dict]:
    """Return the entries in the file by group."""
    document = json.loads((store / "config" / "consumerFilter.json").read_text())
    return document["filterDataByTopic"]["Colours"]["groupFilterData"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.nightly
def test_each_goes_on_with_what_the_other_kept(tmp_path: Path, version: str) -> None:
    store = tmp_path / "store"
    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)), log_file_mib=None)
    with Server(tmp_path / "names" / "data", roles="namesrv") as names:
        with ours, closing(Peer(ours.broker)) as peer:
            for colour in COLOURS:
                fields = send_fields("Colours", 0, properties=f"colour\x01{colour}\x02")
                assert peer.ask(310, fields, colour.encode()).code == 0
            beat(peer, "G_Ours", "colour = 'blue'", 5)
            assert pulled(peer, "G_Ours", 5) == ["blue", "blue"]
        by_us = kept(store)["G_Ours"]
        assert by_us["dead"] is True

        config = {**where, "brokerName": BROKER_NAME, "enablePropertyFilter": "true"}
        config |= dict(line.split("=", 1) for line in (tmp_path / "broker.conf").read_text().splitlines())
        apache = ApacheBroker(version, names.namesrv, scratch=tmp_path / "apache", heap="256m", config=config)
        (tmp_path / "apache").mkdir(exist_ok=True)
        with apache, closing(Peer(apache.address)) as peer:
            beat(peer, "G_Ours", "colour = 'red'", 3)
            assert pulled(peer, "G_Ours", 3) == ["blue", "blue"], "Apache has read our entry"
            beat(peer, "G_Theirs", "colour IN ('red', 'green')", 7)
            assert pulled(peer, "G_Theirs", 7) == ["red", "green"]
            apache.stop(timeout_s=60)
        by_them = kept(store)
        assert by_them["G_Ours"]["bloomFilterData"] == by_us["bloomFilterData"]
        assert by_them["G_Ours"]["bornTime"] == by_us["bornTime"]

        with ours, closing(Peer(ours.broker)) as peer:
            beat(peer, "G_Theirs", "colour = 'blue'", 4)
            assert pulled(peer, "G_Theirs", 4) == ["red", "green"], "we have read Apache's entry"
            beat(peer, "G_Theirs", "colour = 'blue'", 8)
            assert pulled(peer, "G_Theirs", 8) == ["blue", "blue"]


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_messages_with_extension_units_are_judged_by_what_they_say(tmp_path: Path, version: str) -> None:
    """Apache wrote bit maps beside their queue entries; RocketBox filters by the messages' properties instead."""
    manifest = store_manifest(version, "cqext")
    extract_store(version, "cqext", tmp_path)
    store = tmp_path / "store"
    sizes = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog", "maxMessageSize": 65_000}
    where |= {name: manifest["config"][name] for name in sizes}
    expression = "a between 3 and 7 or TAGS = 'TagB'"
    judge = compile_sql92(expression)
    messages = [message for message in manifest["messages"] if message["topic"] == "StoreExt"]
    wanted = {m["uniqKey"] for m in messages if judge.matches(m["properties"])}
    assert 0 < len(wanted) < len(messages)
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)), log_file_mib=None)
    found: set[str] = set()
    with ours, closing(Peer(ours.broker)) as peer:
        for queue in range(4):
            offset = 0
            while True:
                fields = pull_fields("StoreExt", queue, offset, expressionType="SQL92", subscription=expression)
                answer = wait_for(lambda f=fields: peer.ask(11, f), "an answer")
                if answer.code not in (0, 20):
                    break
                found |= {decode_properties(one.properties)["UNIQ_KEY"] for one in records(answer.body)}
                offset = int(answer.ext_fields["nextBeginOffset"])
    assert found == wanted
