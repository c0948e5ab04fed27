"""Official clients at work, and the reports of their day: made by plain Python, and by Spark from the same snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_reports.reports.document import REPORTS
from tests.clients.agents import Agent
from tests.clients.conftest import create_topic, wait_for_clients
from tests.clients.messages import Message, rich
from tests.spark_reports.run.again import make_again, reports_of
from tests.support.report_box import Box

pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", ["java-5.3.3"], indirect=True)]


def test_six_reports_of_official_clients(agent: Agent, tmp_path: Path) -> None:
    box = Box(tmp_path)
    server = box.server
    try:
        create_topic(agent, server, "orders", queues=4)
        messages = rich(200, seed=7)
        with (
            agent.producer(server.namesrv, group="shop") as producer,
            agent.push(server.namesrv, "orders", "billing") as billing,
            agent.push(server.namesrv, "orders", "shipping", fail=-1, max_reconsume=0) as shipping,
        ):
            producer.send("orders", messages)
            producer.send("orders", [Message(b"late", "paid", ("k",))])
            billing.wait_for(201, 90)
            shipping.wait_for(201, 90)
            letters = lambda: box.ask("GET", "/groups/shipping")["dead_letters"] == 201  # noqa: E731
            wait_for_clients(letters, "the dead letters")
            box.wait_for_deliveries(billing=201, shipping=201)
            box.settings(engine="python")
            found = box.ended(run := box.start_run())
        assert (found["state"], found["error"], found["engine"]) == ("done", "", "python"), box.log(run)
        day = found["day"]
        made = {report: box.ask("GET", f"/reports/days/{day}/{report}") for report in REPORTS}
        figures = made["digest"]["figures"]
        assert (figures["messages"], figures["dead_letters"]) == (201, 201)
        groups = {row[0] for table in made["latency"]["tables"] for row in table["rows"]}
        assert {"billing", "shipping"} <= groups, "deliveries to both"
        failing = [table for table in made["failures"]["tables"] if table["rows"]]
        assert "shipping" in str(failing)
        print({name: (len(one["tiles"]), len(one["tables"]), len(one["plots"])) for name, one in made.items()})
        print(found["steps"], found["versions"], found["rows"])

        folder = box.reports / "runs" / run
        outcome, again = make_again(folder, tmp_path, engine="spark")
        assert outcome.ok, outcome.error
        assert outcome.versions.keys() >= {"spark", "java"}
        assert reports_of(again) == reports_of(folder)
        assert any(report["plots"] for report in made.values())
    finally:
        server.kill()
