"""/metrics: Prometheus text."""

import json
import shutil

import pytest

from appliance.console.health.metrics_views import prometheus_text
from appliance.console.reports import records
from appliance.engine import hotpath
from tests.support import report_days
from tests.support.waiting import wait_for

#: Names that operators build on: if one goes away, their dashboards break.
NAMES = {
    "connections", "topics", "subscription_groups", "consume_queues", "messages_put_total", "bytes_put_total",
    "messages_pulled_total", "bytes_pulled_total", "pulls_found_total", "pulls_missed_total", "parked_pulls",
    "commit_log_min_offset", "commit_log_published_offset", "commit_log_unsynced_bytes", "commit_log_writable",
    "commit_log_files", "index_files", "index_behind_bytes", "disk_used_ratio", "commit_log_files_deleted_total",
    "queue_files_deleted_total", "namesrv_topics", "namesrv_brokers", "rocketmq_half_messages",
    "rocketmq_commit_messages_total", "rocketmq_rollback_messages_total",
}  # fmt: skip


def samples(client) -> dict[str, str]:
    """name -> value, as the page has them."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.content.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_every_number_of_the_engine_is_a_sample(client, broker, topic):
    def counts_two():
        """Return what is shown behind two sends. Not if a message that an earlier test left comes due in between."""
        before = samples(client)
        broker.sender.send(topic, b"one")
        broker.sender.send(topic, b"two")
        found = samples(client)
        counted = int(found["rocketbox_messages_put_total"]) - int(before["rocketbox_messages_put_total"])
        same_topics = found["rocketbox_topics"] == before["rocketbox_topics"]
        is_more = int(found["rocketbox_bytes_put_total"]) > int(before["rocketbox_bytes_put_total"])
        return counted == 2 and same_topics and is_more and found

    found = wait_for(counts_two, "two messages to count as two")
    assert {name for name in found if name.startswith("rocketbox_")} - {"rocketbox_metrics_pairs_left_out"} == {
        f"rocketbox_{name}"
        for name in (*broker.metrics(), 'build_info{version="0.1.0"}', "uptime_seconds")
        if not name.startswith("rocketmq_")
    }
    assert 0 < float(found["rocketbox_disk_used_ratio"]) < 1


def test_which_twin_of_the_hot_path_runs_is_a_label(client, broker):
    found = {name: value for name, value in samples(client).items() if name.startswith("rocketbox_hot_path_info")}
    twin = "compiled" if hotpath.COMPILED else "pure"
    assert found == {f'rocketbox_hot_path_info{{twin="{twin}"}}': "1"}


def test_no_name_that_was_there_goes_away(broker):
    assert set(broker.metrics()) >= NAMES


def test_the_build_and_the_time_since_the_start_are_told_without_a_broker_too(client, serve):
    serve(up_s=100)
    found = samples(client)
    assert found['rocketbox_build_info{version="0.1.0"}'] == "1"
    assert 100 <= float(found["rocketbox_uptime_seconds"]) < 110
    assert found["rocketbox_connections"] == "0"
    assert "rocketbox_messages_put_total" not in found, "nothing counts messages here"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"a_total": 1}, "# TYPE rocketbox_a_total counter\nrocketbox_a_total 1\n"),
        ({"a": 1.5}, "# TYPE rocketbox_a gauge\nrocketbox_a 1.5\n"),
        ({"a.b-c": True}, "# TYPE rocketbox_a_b_c gauge\nrocketbox_a_b_c 1\n"),
        ({"rocketmq_a_total": 1}, "# TYPE rocketmq_a_total counter\nrocketmq_a_total 1\n"),
        ({"big": 2**60}, f"# TYPE rocketbox_big gauge\nrocketbox_big {2**60}\n"),
        (
            {'d{k="x"}': 1, "e": 2, 'd{k="y"}': 3},
            '# TYPE rocketbox_d gauge\nrocketbox_d{k="x"} 1\nrocketbox_d{k="y"} 3\n'
            "# TYPE rocketbox_e gauge\nrocketbox_e 2\n",
        ),
    ],
)
def test_text_follows_the_exposition_format(numbers, text):
    assert prometheus_text(numbers) == text


def test_without_an_engine_there_are_no_numbers(client):
    response = client.get("/metrics")
    assert response.status_code == 503
    assert b"rocketbox_" not in response.content


def test_when_the_newest_reports_were_made_and_what_they_count(client, broker):
    assert not [name for name in samples(client) if name.startswith("rocketbox_reports")]
    day = report_days.put(records.directory().parents[1])
    try:
        report_days.put(records.directory().parents[1], "2026-03-19")
        found = samples(client)
        assert float(found["rocketbox_reports_made_timestamp_seconds"]) * 1000 == report_days.BEGIN_MS + 26 * 3_600_000
        assert found["rocketbox_reports_messages"] == "41200000"
        digest = json.loads((day / "digest.json").read_bytes())
        for damaged in ({}, digest | {"figures": [1]}, digest | {"figures": {"messages": "many"}}):
            (day / "digest.json").write_text(json.dumps(damaged))
            found = samples(client)
            assert "rocketbox_reports_made_timestamp_seconds" in found
            assert "rocketbox_reports_messages" not in found
    finally:
        shutil.rmtree(day.parent)
