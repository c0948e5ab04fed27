"""Inputs from the running broker to a run of the reports."""

import time

import msgspec
import pytest

from appliance.engine.store.dispatch import tag_code
from appliance.engine.window.health.disk_room import DiskRoom
from appliance.engine.window.sentences import say
from tests.support.waiting import wait_for


def test_positions_topics_and_groups_of_one_moment(running):
    running.put("Orders", b"a", b"b", b"c")
    running.put("Orders", b"d", queue=2)
    member = running.join("c1", "billing")
    other = running.join("c2", "billing", tags="red")
    running.commit("billing", "Orders", 0, 1)
    running.commit("billing", "Orders", 2, 1)
    before = time.time() * 1000
    found = running.window.report_inputs.take()
    store = running.window._parts.sampler._store
    assert found.log_begin == 0
    assert found.log_end == store.published > 4 * 91
    assert [(q.queue_id, q.min_offset, q.max_offset) for q in found.queues if q.topic == "Orders" and q.max_offset] == [
        (0, 0, 3),
        (2, 0, 1),
    ]
    topics = {topic.name: topic for topic in found.topics}
    assert topics["Orders"].kind == "user"
    assert topics["TBW102"].kind == "system"
    assert topics["%RETRY%billing"].kind == "retry"
    assert topics["%RETRY%billing"].newest_ms is None
    assert before - 60_000 < topics["Orders"].newest_ms <= before
    (group,) = found.groups
    assert group.name == "billing"
    assert group.mode == "clustering"
    assert [client[0] for client in group.clients] == ["c1", "c2"]
    assert group.lag == 2
    assert found.earliest_ms <= group.oldest_unread_ms <= topics["Orders"].newest_ms
    assert group.conflicts == ("Orders",)
    assert found.disk_free < found.disk_total
    assert found.log_file_bytes == running.engine.broker.store.log.segment_bytes > 0
    assert found.disk_limit_percent == 100  # as `ROOMY` has it
    assert 0 < found.store_bytes < 1 << 30
    assert found.retention_ms == 72 * 3_600_000
    member.close(), other.close()


def test_queues_that_a_group_has_not_read_to_their_end_with_the_tags_it_wants(running):
    running.put("Orders", b"a", b"b", b"c")
    running.put("Orders", b"d", queue=2)
    members = [running.join("c1", "billing"), running.join("c2", "red", tags="red"), running.join("c3", "sql")]
    subscription = running.engine.broker.clients.consumer_group("sql").subscriptions
    subscription["Orders"] = msgspec.structs.replace(subscription["Orders"], expression_type="SQL92")
    running.window.group_commands.create("gone")
    for group in ("billing", "red", "sql", "gone"):
        running.commit(group, "Orders", 0, 1)
        running.commit(group, "Orders", 2, 1)
    found = {one.group: one[1:] for one in running.window.report_inputs.take().waiting}
    assert found == {
        "billing": ("Orders", 0, 1, None), "gone": ("Orders", 0, 1, None), "red": ("Orders", 0, 1, (tag_code("red"),)),
    }  # fmt: skip
    for member in members:
        member.close()


def test_a_group_that_has_read_all_has_nothing_unread_and_one_that_never_said_is_not_known(running):
    running.put("Orders", b"a")
    member = running.join("c0", "done")
    running.commit("done", "Orders", 0, 1)
    member.close()
    wait_for(lambda: running.window.groups.detail("done").clients == 0, "the member leaves")
    running.join("c1", "silent")
    running.join("c2", "everyone", model="BROADCASTING")
    groups = {group.name: group for group in running.window.report_inputs.take().groups}
    assert (groups["done"].lag, groups["done"].oldest_unread_ms) == (0, None)
    assert (groups["silent"].lag, groups["silent"].oldest_unread_ms) == (None, None)
    assert groups["everyone"].mode == "broadcasting"
    assert groups["done"].mode == ""


def test_a_store_without_messages(running):
    found = running.window.report_inputs.take()
    assert found.log_end == found.log_begin == 0
    assert found.earliest_ms is None
    assert all(queue.max_offset == 0 for queue in found.queues)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((1_800_000_000_000, None), 1_800_000_000_000),
        ((None, say("disk_not_filling")), 0),
        ((None, say("disk_kept_by_retention")), 0),
        ((None, say("not_measured_yet")), None),
        ((None, say("disk_unreadable", reason="x")), None),
    ],
)
def test_when_the_disk_is_full_is_what_the_overview_says(running, monkeypatch, said, expected):
    monkeypatch.setattr(DiskRoom, "full_at_ms", lambda self, disk: said)
    assert running.window.report_inputs.take().disk_full_ms == expected
    assert running.window.overview.snapshot().disk_full_at_ms == said[0]
