"""The whole way from the bytes of a log and of delivery events, through facts on the disk, to the reports."""

from __future__ import annotations

import json
from pathlib import Path

from appliance.engine.broker.replay.provenance import REPLAYED
from appliance.engine.protocol.properties import RETRY_TOPIC
from spark_reports import reports
from spark_reports.facts import keeping
from spark_reports.facts.in_python import count
from spark_reports.snapshot import ClientFacts, GroupFacts, QueueEnds

from ..facts.made import DAY_MS, HOUR_MS, MadeDeliveries, MadeStore, snapshot_of, who
from .checks import check

DAY = "2023-11-15"


def test_a_day_of_a_store(tmp_path: Path):
    store = MadeStore(tmp_path)
    for n in range(40):
        store.put("orders", 0, DAY_MS + n * 60_000)
    store.put("rmq_sys_wheel_timer", 0, DAY_MS)
    store.put("%RETRY%g", 0, DAY_MS + HOUR_MS, properties={RETRY_TOPIC: "orders"}, reconsume_times=2)
    store.put("%RETRY%g", 0, DAY_MS + HOUR_MS, properties={RETRY_TOPIC: "orders", REPLAYED: "1"})
    store.put("%DLQ%g", 0, DAY_MS + 2 * HOUR_MS, properties={RETRY_TOPIC: "orders"}, reconsume_times=16)
    ring = MadeDeliveries(tmp_path / "deliveries")
    ring.start(0, DAY_MS)
    # The first thirty messages are delivered at one moment.
    ring.batch(store.end, DAY_MS + 31 * 60_000, [(who("g", "orders"), 0, 30, DAY_MS + 30 * 60_000)])
    ring.stop()
    group = GroupFacts("g", "clustering", (ClientFacts("c@1", "JAVA", "5.3.3"),), 10, DAY_MS + 30 * 60_000, 60_000)
    ends = (QueueEnds("orders", 0, 0, 40), QueueEnds("%DLQ%g", 0, 0, 1))
    snapshot = snapshot_of(store, ring.directory, groups=(group,), queues=ends)
    lag = {"group": "g", "hour_ms": DAY_MS, "samples": 120, "p95_ms": 90_000, "max_ms": 120_000, "over_ms": 30_000}
    (tmp_path / "lag.jsonl").write_text(json.dumps({**lag, "rebalances": 1}) + "\n")

    facts = count(snapshot, tmp_path)
    keeping.write(tmp_path / "facts", DAY, facts)
    kept = keeping.read(tmp_path / "facts", [DAY])
    made = {document.report: document for document in reports.make(snapshot, kept)}
    for document in made.values():
        check(document)
    assert [one.to_json() for one in reports.make(snapshot, {DAY: facts})] == [one.to_json() for one in made.values()]

    stored = sum(record.size for record in store.records if record.topic == "orders")
    assert made["digest"].figures == {
        "messages": 40, "bytes": stored, "worst_behind_ms": 120_000, "groups_over_limit": 1, "rebalances": 1,
        "retries": 1, "dead_letters": 1, "refused_sends": None, "forced_deletions": None,
        "role_changes": None, "starts": None, "down": None,
    }  # fmt: skip
    tables = {(name, table.key): table.rows for name, document in made.items() for table in document.tables}
    assert tables["group-health", "groups"] == (("g", 120_000, DAY_MS, 30_000, 60_000, 1, 1, 30),)
    letter = next(record.size for record in store.records if record.topic == "%DLQ%g")
    assert tables["failures", "pairs"] == (("g", "orders", 1, None, 1, letter, 1),)
    assert tables["failures", "groups"] == (("g", 1, 1, None, 1, 1),)
    assert tables["failures", "depths"] == ((0, 0, 1), (2, 1, 0))
    assert tables["latency", "groups"][0][:2] == ("g", 30)
    assert 15 * 60_000 <= tables["latency", "groups"][0][4] <= 30 * 60_000
    assert sum(row[2] for row in tables["capacity", "topics"]) == sum(record.size for record in store.records)
    assert tables["capacity", "margins"] == (("g", 10, 25 * HOUR_MS + 1_800_000, 72 * HOUR_MS, 354, 0, None),)
    assert tables["hygiene", "clients"] == (("JAVA", "5.3.3", 1),)
