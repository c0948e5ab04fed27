"""The story of a message, from its birth to the last retry, and which groups have it: by the broker's own records."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.deliveries import history
from appliance.engine.broker.deliveries.history import MOST_FOUND
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.window.messages import snapshots as m
from appliance.engine.window.messages.story import MOST_PASSED
from appliance.engine.window.waiting.snapshots import WaitingPlace
from tests.support.engine import Peer, RunningEngine, pull_fields, records
from tests.support.waiting import wait_for

UNIQUE = "7F0000016AB14E0E2F2A69208FBA0000"
TEXT = encode_properties({"UNIQ_KEY": UNIQUE, "TAGS": "paid"})
RETRY = "%RETRY%"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    engine = RunningEngine(tmp_path, store={"message_delay_level": "1s 1s 1s 1s 2h"})
    yield engine
    engine.stop()


def taken(running: RunningEngine) -> None:
    """Wait until the deliveries recorded so far are in the files."""
    broker = running.engine.broker
    assert broker is not None
    broker._loop.call_soon(broker.deliveries.recorder.hand_over)
    wait_for(lambda: broker.deliveries.service.written == broker.pull.found_count, "every answer is in a file")


def pull(peer: Peer, group: str, topic: str, offset: int, queue: int = 0, **fields: Any) -> list[Any]:
    answer = peer.ask(11, pull_fields(topic, queue, offset, consumerGroup=group, **fields))
    return records(answer.body) if answer.code == 0 else []


def what(detail: m.MessageDetail) -> list[str]:
    return [line.what for line in detail.story]


def states(detail: m.MessageDetail) -> dict[str, m.DeliveryState]:
    return {one.group: one for one in detail.groups}


def send_back(peer: Peer, group: str, offset_id: str, level: int = 0) -> None:
    physical = decode_offset_id(offset_id)[2]
    fields = {
        "group": group, "offset": physical, "delayLevel": level, "originMsgId": offset_id, "originTopic": "Orders",
        "unitMode": "false", "maxReconsumeTimes": 1,
    }  # fmt: skip
    answer = peer.ask(36, fields)
    assert answer.code == 0, answer.remark


def test_a_message_through_delivery_retry_and_dead_letter(running):
    running.put("Orders", b"body", properties=TEXT)
    peer = running.join("10.0.0.1@7", "CG")
    assert len(pull(peer, "CG", "Orders", 0)) == 1
    taken(running)
    first = running.window.messages.detail("Orders/0/0")
    assert what(first) == ["born", "stored", "delivered"]
    assert first.story_notes == ()
    assert first.story[2].detail["client"] == "10.0.0.1@7"
    state = states(first)["CG"]
    assert (state.state, state.why.code, state.deliveries) == ("delivered", "delivered_never_committed", 1)
    assert state.delivered_to == "10.0.0.1@7"
    running.commit("CG", "Orders", 0, 0)
    assert states(running.window.messages.detail("Orders/0/0"))["CG"].why.code == "not_committed_yet"

    send_back(peer, "CG", first.offset_id)
    running.commit("CG", "Orders", 0, 1)
    waits = running.window.messages.detail("Orders/0/0")
    assert what(waits)[:4] == ["born", "stored", "delivered", "sent_back"]
    line = waits.story[3].detail
    assert (line["level"], line["waits"], line["target"], line["times"]) == (3, True, "%RETRY%CG", 1)
    state = states(waits)["CG"]
    assert (state.state, state.level, state.deliveries) == ("retrying", 3, 1)
    assert state.due_ms == waits.story[3].at_ms + 1000

    retry = running.engine.broker.store.find_queue
    wait_for(lambda: (queue := retry("%RETRY%CG", 0)) is not None and queue.max_offset == 1, "the retry is due")
    ready = running.window.messages.detail("Orders/0/0")
    assert what(ready)[-1] == "retried"
    assert ready.story[3].detail["waits"] is False
    assert states(ready)["CG"].place == "%RETRY%CG/0/0"
    assert states(ready)["CG"].state == "unknown"
    assert states(ready)["CG"].why.code == "not_subscribed"

    (copy,) = pull(peer, "CG", "%RETRY%CG", 0)
    taken(running)
    again = running.window.messages.detail("Orders/0/0")
    assert what(again)[-2:] == ["retried", "delivered"]
    assert states(again)["CG"].state == "delivered"

    of_copy = running.window.messages.detail("%RETRY%CG/0/0")
    assert what(of_copy) == what(again), "the story of a copy is that of its message"
    send_back(peer, "CG", of_copy.offset_id)
    dead = running.window.messages.detail("Orders/0/0")
    assert what(dead)[-1] == "dead"
    assert states(dead)["CG"].state == "dead"
    assert states(running.window.messages.detail("%DLQ%CG/0/0"))["CG"].state == "dead"
    assert copy is not None


def test_a_delayed_message_before_and_after_its_time(running):
    text = encode_properties({"UNIQ_KEY": UNIQUE, "DELAY": "5"})
    running.join("c@1", "CG")
    running.put("Orders", b"later", properties=text)
    waits = running.window.messages.detail("SCHEDULE_TOPIC_XXXX/4/0")
    assert what(waits) == ["born", "delayed"]
    assert waits.story[1].detail["due_ms"] == waits.stored_at_ms + 7_200_000
    assert (states(waits)["CG"].state, states(waits)["CG"].why.code) == ("delayed", "waits_delayed")

    running.put("Orders", b"soon", properties=encode_properties({"UNIQ_KEY": UNIQUE + "1", "DELAY": "1"}))
    queue = running.engine.broker.store.find_queue
    wait_for(lambda: (found := queue("Orders", 0)) is not None and found.max_offset == 1, "it is due")
    due = running.window.messages.detail("Orders/0/0")
    assert what(due) == ["born", "delayed", "due"]
    assert due.story[1].detail["waits"] is False
    assert due.story[2].at_ms >= due.story[1].detail["due_ms"]


def a_dead_letter(running: RunningEngine) -> Peer:
    """Make Orders/0/0 a dead letter of CG; return its member."""
    running.put("Orders", b"body", properties=TEXT)
    peer = running.join("10.0.0.1@7", "CG")
    pull(peer, "CG", "Orders", 0)
    send_back(peer, "CG", running.window.messages.detail("Orders/0/0").offset_id, level=-1)
    running.commit("CG", "Orders", 0, 1)
    assert states(running.window.messages.detail("Orders/0/0"))["CG"].state == "dead"
    return peer


def replayed(running: RunningEngine, **options: Any) -> str:
    """Run a job that replays CG's dead letters, and return it."""
    job = running.window.replay_commands.start("CG", rate=1000, **options).job
    assert job is not None
    wait_for(lambda: running.window.replays.job(job.id).state == "done", "the job is done")
    return job.id


def test_a_dead_letter_that_a_job_replayed_to_its_group(running):
    a_dead_letter(running)
    job = replayed(running)
    detail = running.window.messages.detail("Orders/0/0")
    line = detail.story[-1]
    assert (line.what, line.detail["job"], line.detail["replays"], line.detail["group"]) == ("replayed", job, "1", "CG")
    assert line.detail["place"] == "%RETRY%CG/0/0"
    assert what(detail) == ["born", "stored", "delivered", "dead", "replayed"]
    assert states(detail)["CG"].place == "%RETRY%CG/0/0"


def test_a_dead_letter_that_a_job_replayed_to_its_topic_is_the_groups_again(running):
    peer = a_dead_letter(running)
    running.window.group_commands.create("Others")
    running.commit("Others", "Orders", 0, 1)
    replayed(running, target="original")
    (place,) = [
        line.detail["place"] for line in running.window.messages.detail("Orders/0/0").story if line.what == "replayed"
    ]
    queue, offset = map(int, str(place).split("/")[1:])
    for ref in ("Orders/0/0", "%DLQ%CG/0/0"):
        state = states(running.window.messages.detail(ref))["CG"]
        assert (state.state, state.place) == ("waiting" if queue == 0 else "unknown", place), ref
    assert states(running.window.messages.detail("Orders/0/0"))["Others"].state == "consumed", "it has had the message"
    pull(peer, "CG", "Orders", offset, queue=queue)
    running.commit("CG", "Orders", queue, offset + 1)
    for ref in ("Orders/0/0", "%DLQ%CG/0/0"):
        assert states(running.window.messages.detail(ref))["CG"].state == "consumed", ref


def test_a_retry_that_was_dropped_says_so(running):
    running.put("Orders", b"body", properties=TEXT)
    peer = running.join("10.0.0.1@7", "CG")
    pull(peer, "CG", "Orders", 0)
    send_back(peer, "CG", running.window.messages.detail("Orders/0/0").offset_id, level=5)
    assert states(running.window.messages.detail("Orders/0/0"))["CG"].why.code == "waits_to_retry"
    running.window.waiting_commands.run("drop", [WaitingPlace(5, 0)])
    detail = running.window.messages.detail("Orders/0/0")
    assert (states(detail)["CG"].state, states(detail)["CG"].why.code) == ("unknown", "handled_early")
    assert detail.story[-1].detail["waits"] is False


def test_the_groups_that_passed_it_are_not_all_lines(running):
    running.put("Orders", b"body", properties=TEXT)
    for number in range(MOST_PASSED + 3):
        running.window.group_commands.create(f"G{number:02d}")
        running.commit(f"G{number:02d}", "Orders", 0, 1)
    detail = running.window.messages.detail("Orders/0/0")
    assert what(detail).count("passed") == MOST_PASSED
    assert ("story_passed", {"count": 3}) in [(note.code, note.args) for note in detail.story_notes]
    assert len(detail.groups) == MOST_PASSED + 3


def test_of_very_many_deliveries_the_last_ones_are_told(running):
    running.put("Orders", b"body", properties=TEXT)
    peer = running.join("c@1", "CG")
    for _ in range(MOST_FOUND + 20):
        pull(peer, "CG", "Orders", 0)
    taken(running)
    detail = running.window.messages.detail("Orders/0/0")
    assert [note.code for note in detail.story_notes] == ["deliveries_many"]
    assert detail.deliveries_since_ms is None, "nothing is missing for its age"


def test_what_keeps_a_group_from_a_message(running):
    running.put("Orders", *[b"%d" % number for number in range(4)], properties=TEXT)
    running.put("Orders", b"other queue", queue=1, properties=TEXT)
    peers = {group: running.join(f"{group}-1", group) for group in ("idle", "off", "gone", "holds", "reads")}
    running.join("v-1", "vip", tags="vip || gold")
    running.join("d-1", "dear", tags="price > 5", expressionType="SQL92")
    running.join("w-1", "wrong", tags="price >", expressionType="SQL92")
    running.window.group_commands.create("away")
    for group in ("idle", "off", "holds", "away", "reads"):
        running.commit(group, "Orders", 0, 1)
    running.window.group_commands.edit("off", consume_enable=False)
    running.commit("gone", "Orders", 0, 0)
    running.window.group_commands.delete("gone", offsets=False, force=True)
    pull(peers["holds"], "holds", "Orders", 0)
    pull(peers["reads"], "reads", "Orders", 1, maxMsgNums=1)
    taken(running)
    found = states(running.window.messages.detail("Orders/0/3"))
    codes = {group: (one.state, one.why.code) for group, one in found.items()}
    assert codes == {
        "idle": ("waiting", "nobody_pulls"),
        "off": ("waiting", "consumption_is_off"),
        "gone": ("waiting", "group_is_gone"),
        "away": ("waiting", "no_consumer_online"),
        "holds": ("delivered", "held_back"),
        "reads": ("waiting", "not_reached"),
        "vip": ("filtered", "filtered_by_tag"),
        "dear": ("filtered", "filtered_by_expression"),
        "wrong": ("unknown", "expression_refused"),
    }
    assert found["holds"].why.args["offset"] == 1
    assert (found["reads"].ahead, found["idle"].ahead) == (2, 2)
    assert all(str(one.why) for one in found.values())


def test_where_members_subscribe_differently_it_is_not_claimed_who_gets_it(running):
    running.put("Orders", *(b"%d" % number for number in range(4)), properties="TAGS\x01paid\x02")
    running.join("one", "clash", tags="paid")
    running.join("two", "clash", tags="sent")
    running.join("one", "alike", tags="sent")
    running.join("two", "alike", tags="other || sent")
    found = states(running.window.messages.detail("Orders/0/2"))
    assert (found["clash"].state, found["clash"].why.code) == ("unknown", "filter_depends")
    assert (found["alike"].state, found["alike"].why.code) == ("filtered", "filtered_by_tag"), "both keep it out"
    running.commit("clash", "Orders", 0, 4)
    found = states(running.window.messages.detail("Orders/0/2"))
    assert (found["clash"].state, found["clash"].why.code) == ("unknown", "past_or_filtered")


def test_a_group_that_committed_other_queues_is_not_said_to_have_committed_nothing(running):
    for queue in range(2):
        running.put("Orders", b"x", queue=queue)
    running.join("one", "some")
    assert states(running.window.messages.detail("Orders/1/0"))["some"].why.code == "never_committed"
    running.commit("some", "Orders", 0, 1)
    assert states(running.window.messages.detail("Orders/1/0"))["some"].why.code == "queue_never_committed"
    assert "of queue 1" in str(states(running.window.messages.detail("Orders/1/0"))["some"].why)


def test_a_broadcasting_group_is_known_by_its_deliveries_alone(running):
    running.put("Orders", b"0", properties=TEXT)
    some = [running.join(f"radio-{number}", "radio", model="BROADCASTING") for number in range(2)]
    before = states(running.window.messages.detail("Orders/0/0"))["radio"]
    assert (before.state, before.why.code) == ("unknown", "broadcast_keeps_offsets")
    for peer in some:
        pull(peer, "radio", "Orders", 0)
    taken(running)
    detail = running.window.messages.detail("Orders/0/0")
    assert states(detail)["radio"].state == "delivered"
    clients = [line.detail["client"] for line in detail.story if line.what == "delivered"]
    assert clients == ["radio-0", "radio-1"]


def test_what_one_client_gets_again_and_again_is_one_line(running):
    running.put("Orders", b"0", properties=TEXT)
    peer = running.join("c@1", "CG")
    for _ in range(5):
        pull(peer, "CG", "Orders", 0)
    taken(running)
    (line,) = [line for line in running.window.messages.detail("Orders/0/0").story if line.what == "delivered"]
    assert line.detail["count"] == 5
    assert states(running.window.messages.detail("Orders/0/0"))["CG"].deliveries == 5


def test_deliveries_outlive_a_restart(running):
    running.put("Orders", b"0", properties=TEXT)
    pull(running.join("c@1", "CG"), "CG", "Orders", 0)
    running.restart()
    assert what(running.window.messages.detail("Orders/0/0")) == ["born", "stored", "delivered"]


def test_a_topic_made_again_inherits_nothing(running):
    running.put("Orders", b"0", properties=TEXT)
    pull(running.join("c@1", "CG"), "CG", "Orders", 0)
    taken(running)
    running.window.topic_commands.delete("Orders", force=True)
    running.put("Orders", b"1", properties=TEXT)
    detail = running.window.messages.detail("Orders/0/1")
    assert "delivered" not in what(detail)
    assert detail.story_notes == ()


def test_what_a_producer_sent_twice_is_told_of_both(running):
    """A producer sends again when the answer is late: the same id, born at the same time."""
    running.put("Orders", b"0", properties=TEXT)
    running.put("Orders", b"0", queue=1, properties=TEXT)
    detail = running.window.messages.detail("Orders/1/0")
    assert [line.detail["place"] for line in detail.story if line.what == "stored"] == ["Orders/0/0", "Orders/1/0"]


def test_others_with_the_same_unique_id_are_no_copies(running):
    running.put("Orders", b"0", properties=TEXT)
    running.put("Orders", b"1", properties=TEXT, g=1_600_000_000_000)
    assert what(running.window.messages.detail("Orders/0/0")) == ["born", "stored"]


def test_a_message_without_an_id_says_so(running):
    running.put("Orders", b"0", properties=encode_properties({"ORIGIN_MESSAGE_ID": "nonsense"}))
    detail = running.window.messages.detail("Orders/0/0")
    # The broker gives every message an id if it has none; in another program's store one may be missing.
    assert what(detail) == ["born", "stored"]


def test_only_the_record_when_only_that_is_asked_for(running):
    running.put("Orders", b"0", properties=TEXT)
    detail = running.window.messages.detail("Orders/0/0", story=False)
    assert (detail.story, detail.groups) == ((), ())
    whole = running.window.messages.detail("Orders/0/0")
    assert detail == replace(whole, story=(), story_notes=(), deliveries_since_ms=None, groups=())


def test_files_that_cannot_be_read_are_said(running, monkeypatch):
    running.put("Orders", b"0", properties=TEXT)
    pull(running.join("c@1", "CG"), "CG", "Orders", 0)
    taken(running)

    def fails(file):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(history, "read_file", fails)
    detail = running.window.messages.detail("Orders/0/0")
    assert [note.code for note in detail.story_notes] == ["deliveries_unreadable"]
    assert what(detail) == ["born", "stored"]
