"""Traffic of official clients whose truth the test knows, and each figure that the reports make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_reports.reports.document import REPORTS
from tests.clients.agents import Agent
from tests.clients.conftest import create_topic, wait_for_clients
from tests.clients.messages import Message, plain
from tests.clients.stage import LEVELS
from tests.spark_reports.run.again import make_again, reports_of
from tests.support.report_box import Box

pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", ["java-5.3.3"], indirect=True), pytest.mark.nightly]

READY_S = 90


def rows(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """A table's rows, by the names of its columns."""
    found = next(one for one in document["tables"] if one["key"] == table)
    return [dict(zip((name for name, _ in found["columns"]), row, strict=True)) for row in found["rows"]]


def tiles(document: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in document["tiles"]}


def test_each_figure_is_what_was_sent(agent: Agent, tmp_path: Path) -> None:
    more = {
        "ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": LEVELS, "ROCKETBOX_BROKER_TRANSACTIONTIMEOUT": "600000",
    }  # fmt: skip
    box = Box(tmp_path, more=more)
    server = box.server
    namesrv = server.namesrv
    try:
        create_topic(agent, server, "orders", queues=4)
        create_topic(agent, server, "gone", queues=1)
        tagged = [Message(b"%d" % n, "paid" if n % 3 else "open", properties={"n": str(n)}) for n in range(120)]
        with (
            agent.producer(namesrv, group="shop") as producer,
            agent.producer(namesrv, group="bank", transactional=True) as bank,
            agent.push(namesrv, "orders", "billing") as billing,
            agent.push(namesrv, "orders", "paid-only", expression="paid") as paid,
            agent.push(namesrv, "orders", "high", sql="n > 99") as high,
            agent.push(namesrv, "orders", "screens", model="BROADCASTING") as screens,
            agent.push(namesrv, "orders", "failing", sql="n BETWEEN 10 AND 14", fail=-1, max_reconsume=2) as failing,
        ):
            for one in (billing, paid, high, failing):  # who broadcasts is allocated nothing
                one.wait_for_queues(4, READY_S)
            producer.send("orders", tagged)
            producer.send("orders", plain(30, seed=1), how="batch")
            producer.send("orders", [Message(b"abc" * 20_000 + b"%d" % n) for n in range(7)])  # compressed
            producer.send("orders", [Message(b"later %d" % n, delay=1) for n in range(9)])
            producer.send("orders", [Message(b"timed %d" % n, timer={"TIMER_DELAY_MS": 2000}) for n in range(4)])
            ends = (("commit", 6), ("rollback", 3), ("unknown", 2))
            for local, count in ends:
                body = [
                    Message(b"%s %d" % (local.encode(), n), properties={"local": local, "check": "unknown"})
                    for n in range(count)
                ]
                bank.send("orders", body, how="transaction")
            producer.send("gone", plain(11, seed=2))
            whole = 120 + 30 + 7 + 9 + 4 + 6
            billing.wait_for(whole, READY_S)
            screens.wait_for(whole, READY_S)
            paid.wait_for(80, READY_S)
            high.wait_for(20, READY_S)
            failing.wait_for(15, READY_S)
            letters = lambda: box.ask("GET", "/groups/failing")["dead_letters"] == 5  # noqa: E731
            wait_for_clients(letters, "the dead letters", READY_S)
            failing.stop()
            # Three are sent again, and no consumer takes them.
            box.ask("POST", "/groups/failing/replays", {"offsets": [[0, 0], [0, 1], [0, 2]]})
            wait_for_clients(
                lambda: all(one["state"] == "done" for one in box.ask("GET", "/replays")["items"]), "replayed"
            )
            box.ask("DELETE", "/topics/gone?force=true")
            box.wait_for_deliveries(billing=whole, screens=whole, **{"paid-only": 80})
            box.settings(engine="python")
            found = box.ended(run := box.start_run())
        assert (found["state"], found["error"], found["engine"]) == ("done", "", "python"), box.log(run)
        day = found["day"]
        made = {report: box.ask("GET", f"/reports/days/{day}/{report}") for report in REPORTS}
        folder = box.reports / "runs" / run
        outcome, again = make_again(folder, tmp_path, engine="spark")
        assert outcome.ok, outcome.error
        assert outcome.versions.keys() >= {"spark", "java"}
        assert reports_of(again) == reports_of(folder)
        told = tiles(made["digest"])
        assert told["messages"] == whole + 11
        assert (told["retries"], told["dead_letters"]) == (10, 5)
        failures = made["failures"]
        depths = {row["depth"]: (row["retries"], row["replayed"]) for row in rows(failures, "depths")}
        assert depths == {0: (0, 3), 1: (5, 0), 2: (5, 0)}
        delivered = {row["group"]: row["messages"] for row in rows(made["latency"], "groups")}
        print(delivered, tiles(made["latency"]), tiles(made["capacity"]), tiles(made["hygiene"]))
        assert delivered == {"billing": whole, "paid-only": 80, "screens": whole}, "an SQL filter's are unknown"
        health = {row["group"]: row["messages"] for row in rows(made["group-health"], "groups")}
        assert health == {**delivered, "high": None, "failing": None}
        assert rows(made["hygiene"], "clients") == [{"language": "JAVA", "version": "5.3.3", "clients": 4}]
    finally:
        server.kill()
