"""Options set by a tool while the broker runs (25): each is tested by its effect, not by its stored value."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.window.options import RUNNING_LIMITS
from tests.support.engine import pull_fields, records, send_fields, start_engine
from tests.support.store import sync_in_python
from tests.support.waiting import wait_for

SET, READ = 25, 26


def body(**values):
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


def change(running, **values):
    answer = running.peer().ask(SET, {}, body(**values))
    assert answer.code == 0, answer


def shown(running, name):
    lines = running.peer().ask(READ).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)[name]


def pulled(running, **fields):
    answer = running.peer().ask(11, pull_fields("Orders", 0, 0, **fields))
    return answer, records(answer.body)


def test_the_largest_message(running):
    peer = running.peer()
    assert peer.ask(310, send_fields("Orders"), b"x" * 1000).code == 0
    change(running, maxMessageSize=100)
    refused = peer.ask(310, send_fields("Orders"), b"x" * 101)
    assert (refused.code, "msg body length limit 100B" in refused.remark) == (13, True)
    assert peer.ask(310, send_fields("Orders"), b"x" * 100).code == 0
    running.restart()
    assert shown(running, "maxMessageSize") == "100"
    assert running.peer().ask(310, send_fields("Orders"), b"x" * 101).code == 13
    change(running, maxMessageSize=2000)
    assert running.peer().ask(310, send_fields("Orders"), b"x" * 2000).code == 0


def test_how_far_ahead_a_time_may_lie_and_whether_there_are_any(running):
    peer, tomorrow = running.peer(), "TIMER_DELAY_SEC\x0186400\x02"
    assert peer.ask(310, send_fields("Orders", properties=tomorrow), b"x").code == 0
    change(running, timerMaxDelaySec=3600)
    refused = peer.ask(310, send_fields("Orders", properties=tomorrow), b"x")
    assert (refused.code, "max delay 3600000ms" in refused.remark) == (13, True)
    change(running, timerMaxDelaySec=100_000_000, timerWheelEnable="false")
    refused = peer.ask(310, send_fields("Orders", properties=tomorrow), b"x")
    assert (refused.code, "timerWheelEnable is false" in refused.remark) == (1, True)
    change(running, timerWheelEnable="true")
    assert peer.ask(310, send_fields("Orders", properties="TIMER_DELAY_SEC\x0199000000\x02"), b"x").code == 0


def test_no_message_may_be_larger_than_a_log_file_takes(make_running):
    running = make_running(store={"mapped_file_size_commit_log": 256 * 1024, "max_message_size": 64 * 1024})
    answer = running.peer().ask(SET, {}, body(maxMessageSize=256 * 1024))
    assert (answer.code, answer.remark) == (29, "maxMessageSize must be a whole number between 1 and 196600.")
    change(running, maxMessageSize=196_600)
    assert running.peer().ask(310, send_fields("Orders"), b"x" * 196_600).code == 0


def test_whether_messages_are_taken_back(running):
    peer = running.peer()
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0
    recall = {"topic": "Orders", "recallHandle": "x", "producerGroup": "P"}
    assert peer.ask(370, recall).code == 604
    change(running, brokerPermission=4, allowRecallWhenBrokerNotWriteable="false")
    assert peer.ask(370, recall).code == 14
    change(running, brokerPermission=6)
    assert peer.ask(370, recall).code == 604
    change(running, recallMessageEnable="false")
    assert peer.ask(370, recall).code == 16


def test_the_longest_time(running):
    peer = running.peer()
    a_week = send_fields("Orders", properties="TIMER_DELAY_SEC\x01604800\x02")
    assert peer.ask(310, a_week, b"x").code == 13
    change(running, timerMaxDelaySec=700_000)
    answer = peer.ask(310, a_week, b"x")
    assert answer.code == 0
    recall = {"topic": "Orders", "recallHandle": answer.ext_fields["recallHandle"], "producerGroup": "P"}
    assert peer.ask(370, recall).code == 0
    change(running, timerMaxDelaySec=600_000)
    assert (peer.ask(370, recall).code, peer.ask(310, a_week, b"x").code) == (604, 13)


def test_whether_clients_are_to_trace(running):
    peer = running.peer()

    def said():
        answer = peer.ask(310, send_fields("Orders"), b"x")
        return answer.ext_fields["TRACE_ON"]

    refused = send_fields("bad/topic")
    assert (said(), peer.ask(310, refused, b"x").ext_fields["TRACE_ON"]) == ("true", "true")
    change(running, traceOn="false")
    assert (said(), peer.ask(310, refused, b"x").ext_fields["TRACE_ON"]) == ("false", "false")
    stored = [decode_properties(record.properties)["TRACE_ON"] for record in pulled(running)[1]]
    assert stored == ["true", "false"]
    running.restart()
    peer = running.peer()
    assert said() == "false"


def test_whether_the_broker_may_be_written(running):
    running.window.topic_commands.create("Orders", order=True)
    peer = running.peer()
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0
    change(running, brokerPermission=4)
    assert peer.ask(310, send_fields("Orders"), b"x").code == 16
    change(running, brokerPermission=6)
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0


def test_how_much_one_pull_takes_of_what_is_in_memory(running):
    running.put("Orders", *[b"x" * 100] * 10)
    assert len(pulled(running)[1]) == 10
    change(running, maxTransferCountOnMessageInMemory=3)
    assert len(pulled(running)[1]) == 3
    change(running, maxTransferCountOnMessageInMemory=32, maxTransferBytesOnMessageInMemory=500)
    assert 1 <= len(pulled(running)[1]) <= 3
    change(running, maxTransferBytesOnMessageInMemory=262_144)
    assert len(pulled(running)[1]) == 10


def test_how_much_one_pull_takes_of_what_is_on_disk(running):
    running.put("Orders", *[b"x" * 100] * 10)
    change(running, accessMessageInMemoryMaxRatio=0)  # everything counts as on disk
    assert len(pulled(running)[1]) == 8
    change(running, maxTransferCountOnMessageInDisk=2)
    assert len(pulled(running)[1]) == 2
    change(running, maxTransferCountOnMessageInDisk=8, maxTransferBytesOnMessageInDisk=1)
    assert len(pulled(running)[1]) == 1


def test_how_far_a_filtered_pull_looks(running):
    running.put("Orders", *[b"x"] * 9, properties="TAGS\x01A\x02")
    running.put("Orders", b"wanted", properties="TAGS\x01B\x02")
    one = {"subscription": "B", "maxMsgNums": 1}
    assert [record.body for record in pulled(running, **one)[1]] == [b"wanted"]
    change(running, maxFilterMessageSize=80)  # four entries
    answer, found = pulled(running, **one)
    assert (answer.code, answer.ext_fields["nextBeginOffset"], found) == (20, "4", [])


def test_how_many_messages_a_query_finds(running):
    unique = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
    for _ in range(5):
        running.put("Orders", b"x", properties=f"{unique}KEYS\x01k\x02")

    def found(key="k", **more):
        fields = {"topic": "Orders", "key": key, "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 42} | more
        return len(records(running.peer().ask(12, fields).body))

    assert found() == 5
    change(running, maxMsgsNumBatch=2)
    assert found() == 2
    change(running, maxMsgsNumBatch=64, defaultQueryMaxNum=3)
    assert found("7F0000016AB14E0E2F2A69208FBA0000", _UNIQUE_KEY_QUERY="true") == 3


def test_how_often_offsets_are_saved(make_running):
    running = make_running(broker={"flush_consumer_offset_interval_ms": 600_000})
    running.put("Orders", b"x", b"y")
    running.peer().ask(200, {}, b'{"groupName":"G"}')
    change(running, flushConsumerOffsetInterval=100)
    path = running.data_dir / "store" / "config" / "consumerOffset.json"
    for offset in (1, 2):
        running.commit("G", "Orders", 0, offset)
        wait_for(lambda wanted=offset: path.exists() and f"0:{wanted}" in path.read_text(), "the offset is in the file")


def test_how_long_a_slow_disk_is_waited_for(make_running, monkeypatch):
    running = make_running(store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 600_000})
    running.put("Orders", b"x")
    done = threading.Event()
    disk, log = running.engine.broker.store.disk, running.engine.broker.store.log
    real = disk.fdatasync

    def fdatasync(fd):
        if fd in [segment.fd for segment in log.segments]:
            done.wait(60)
        real(fd)

    change(running, syncFlushTimeout=100)
    monkeypatch.setattr(disk, "fdatasync", fdatasync, raising=False)
    sync_in_python(running.engine.broker.store)
    try:
        assert running.peer().ask(310, send_fields("Orders"), b"slow").code == 10
    finally:
        done.set()


def test_how_long_a_silent_name_server_is_waited_for(make_running):
    mute = socket.create_server(("127.0.0.1", 0))
    mute.settimeout(60)
    try:
        running = make_running(
            broker={
                "namesrv_addrs": (f"127.0.0.1:{mute.getsockname()[1]}",),
                "register_broker_timeout_ms": 60_000,
            }
        )
        change(running, registerBrokerTimeoutMills=100)
        before, _ = mute.accept()
        before.close()  # the registration that was sent before the change
        after, _ = mute.accept()
        after.settimeout(40)
        with after:
            assert after.recv(1 << 20)
            while after.recv(1 << 20):
                pass  # it gives up long before a minute is over
    finally:
        mute.close()


def test_several_options_are_changed_together_or_not_at_all(running):
    before = running.peer().ask(READ).body
    for bad in (
        {"traceOn": "perhaps"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"noSuchOption": "1"},
        {"sendMessageThreadPoolNums": "1"},
        {"maxMessageSize": "0"},
        {"maxTransferCountOnMessageInMemory": "4097"},
        {"configBlackList": "x"},
    ):
        answer = running.peer().ask(SET, {}, body(maxMsgsNumBatch=7, longPollingEnable="false", **bad))
        assert answer.code in (1, 16, 29), (bad, answer)
        assert next(iter(bad)) in answer.remark or answer.code == 16
        assert running.peer().ask(READ).body == before
    assert not (running.data_dir / "rocketbox" / "options.json").exists()
    change(running, maxMsgsNumBatch=7, longPollingEnable="false", traceOn="false")
    assert [shown(running, name) for name in ("maxMsgsNumBatch", "longPollingEnable", "traceOn")] == [
        "7",
        "false",
        "false",
    ]


@pytest.mark.parametrize(("section", "name"), sorted(RUNNING_LIMITS))
def test_each_limit_is_kept_and_said(running, section, name):
    low, high = RUNNING_LIMITS[section, name]
    for value in (low, high):
        change(running, **{name: value})
        assert shown(running, name) == str(value)
    for value in (low - 1, high + 1, 2**63, -1, "", "x", "1" * 60_000):
        answer = running.peer().ask(SET, {}, body(**{name: value}))
        assert (answer.code, answer.remark) == (29, f"{name} must be a whole number between {low} and {high}."), value
    assert shown(running, name) == str(high)


def test_what_is_configured_counts_though_it_lies_outside_of_the_limits(make_running):
    running = make_running(store={"max_transfer_count_on_message_in_memory": 10_000})
    change(running, maxTransferCountOnMessageInMemory=5)
    change(running, maxTransferCountOnMessageInMemory=10_000)
    assert shown(running, "maxTransferCountOnMessageInMemory") == "10000"


def test_a_limit_that_a_smaller_log_file_brought_is_kept_at_the_start(make_running):
    running = make_running()
    change(running, maxMessageSize=100)
    running.stop()
    path = running.data_dir / "rocketbox" / "options.json"
    path.write_text(json.dumps({"store.maxMessageSize": str(8 << 20), "store.maxMsgsNumBatch": "20000"}))
    running.engine = start_engine(running.data_dir)
    assert (shown(running, "maxMessageSize"), shown(running, "maxMsgsNumBatch")) == ("4194304", "64")
