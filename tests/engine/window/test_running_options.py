"""Options set by a tool while the broker runs (25): each by what it does, not by what is stored of it."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.window.options import RUNNING_LIMITS
from tests.engine.window.conftest import wait_for
from tests.support.engine import pull_fields, records, send_fields, start_engine

SET, READ = 25, 26


def body(**values):
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


def change(house, **values):
    answer = house.peer().ask(SET, {}, body(**values))
    assert answer.code == 0, answer


def shown(house, name):
    lines = house.peer().ask(READ).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)[name]


def pulled(house, **fields):
    answer = house.peer().ask(11, pull_fields("Orders", 0, 0, **fields))
    return answer, records(answer.body)


def test_the_largest_message(house):
    peer = house.peer()
    assert peer.ask(310, send_fields("Orders"), b"x" * 1000).code == 0
    change(house, maxMessageSize=100)
    refused = peer.ask(310, send_fields("Orders"), b"x" * 101)
    assert (refused.code, "msg body length limit 100B" in refused.remark) == (13, True)
    assert peer.ask(310, send_fields("Orders"), b"x" * 100).code == 0
    house.restart()
    assert shown(house, "maxMessageSize") == "100"
    assert house.peer().ask(310, send_fields("Orders"), b"x" * 101).code == 13
    change(house, maxMessageSize=2000)
    assert house.peer().ask(310, send_fields("Orders"), b"x" * 2000).code == 0


def test_no_message_may_be_larger_than_a_log_file_takes(make_house):
    house = make_house(store={"mapped_file_size_commit_log": 256 * 1024, "max_message_size": 64 * 1024})
    answer = house.peer().ask(SET, {}, body(maxMessageSize=256 * 1024))
    assert (answer.code, answer.remark) == (29, "maxMessageSize must be a whole number between 1 and 196600.")
    change(house, maxMessageSize=196_600)
    assert house.peer().ask(310, send_fields("Orders"), b"x" * 196_600).code == 0


def test_whether_clients_are_to_trace(house):
    peer = house.peer()

    def said():
        answer = peer.ask(310, send_fields("Orders"), b"x")
        return answer.ext_fields["TRACE_ON"]

    refused = send_fields("bad/topic")
    assert (said(), peer.ask(310, refused, b"x").ext_fields["TRACE_ON"]) == ("true", "true")
    change(house, traceOn="false")
    assert (said(), peer.ask(310, refused, b"x").ext_fields["TRACE_ON"]) == ("false", "false")
    stored = [decode_properties(record.properties)["TRACE_ON"] for record in pulled(house)[1]]
    assert stored == ["true", "false"]
    house.restart()
    peer = house.peer()
    assert said() == "false"


def test_whether_the_broker_may_be_written(house):
    house.window.create_topic("Orders", order=True)
    peer = house.peer()
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0
    change(house, brokerPermission=4)
    assert peer.ask(310, send_fields("Orders"), b"x").code == 16
    change(house, brokerPermission=6)
    assert peer.ask(310, send_fields("Orders"), b"x").code == 0


def test_how_much_one_pull_takes_of_what_is_in_memory(house):
    house.put("Orders", *[b"x" * 100] * 10)
    assert len(pulled(house)[1]) == 10
    change(house, maxTransferCountOnMessageInMemory=3)
    assert len(pulled(house)[1]) == 3
    change(house, maxTransferCountOnMessageInMemory=32, maxTransferBytesOnMessageInMemory=500)
    assert 1 <= len(pulled(house)[1]) <= 3
    change(house, maxTransferBytesOnMessageInMemory=262_144)
    assert len(pulled(house)[1]) == 10


def test_how_much_one_pull_takes_of_what_is_on_disk(house):
    house.put("Orders", *[b"x" * 100] * 10)
    change(house, accessMessageInMemoryMaxRatio=0)  # everything counts as on disk
    assert len(pulled(house)[1]) == 8
    change(house, maxTransferCountOnMessageInDisk=2)
    assert len(pulled(house)[1]) == 2
    change(house, maxTransferCountOnMessageInDisk=8, maxTransferBytesOnMessageInDisk=1)
    assert len(pulled(house)[1]) == 1


def test_how_far_a_filtered_pull_looks(house):
    house.put("Orders", *[b"x"] * 9, properties="TAGS\x01A\x02")
    house.put("Orders", b"wanted", properties="TAGS\x01B\x02")
    one = {"subscription": "B", "maxMsgNums": 1}
    assert [record.body for record in pulled(house, **one)[1]] == [b"wanted"]
    change(house, maxFilterMessageSize=80)  # four entries
    answer, found = pulled(house, **one)
    assert (answer.code, answer.ext_fields["nextBeginOffset"], found) == (20, "4", [])


def test_how_many_messages_a_query_finds(house):
    unique = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
    for _ in range(5):
        house.put("Orders", b"x", properties=f"{unique}KEYS\x01k\x02")

    def found(key="k", **more):
        fields = {"topic": "Orders", "key": key, "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 42} | more
        return len(records(house.peer().ask(12, fields).body))

    assert found() == 5
    change(house, maxMsgsNumBatch=2)
    assert found() == 2
    change(house, maxMsgsNumBatch=64, defaultQueryMaxNum=3)
    assert found("7F0000016AB14E0E2F2A69208FBA0000", _UNIQUE_KEY_QUERY="true") == 3


def test_how_often_offsets_are_saved(make_house):
    house = make_house(broker={"flush_consumer_offset_interval_ms": 600_000})
    house.put("Orders", b"x")
    house.peer().ask(200, {}, b'{"groupName":"G"}')
    change(house, flushConsumerOffsetInterval=100)
    path = house.data_dir / "store" / "config" / "consumerOffset.json"
    for offset in (1, 2):
        house.commit("G", "Orders", 0, offset)
        wait_for(
            lambda wanted=offset: path.exists() and f"0:{wanted}" in path.read_text(), "the offset is in the file", 5
        )


def test_how_long_a_slow_disk_is_waited_for(make_house, monkeypatch):
    house = make_house(store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 600_000})
    house.put("Orders", b"x")
    done = threading.Event()
    disk, log = house.engine.broker.store.disk, house.engine.broker.store.log
    real = disk.fdatasync

    def fdatasync(fd):
        if fd in [segment.fd for segment in log.segments]:
            done.wait(20)
        real(fd)

    change(house, syncFlushTimeout=100)
    monkeypatch.setattr(disk, "fdatasync", fdatasync, raising=False)
    try:
        assert house.peer().ask(310, send_fields("Orders"), b"slow").code == 10
    finally:
        done.set()


def test_how_long_a_silent_name_server_is_waited_for(make_house):
    mute = socket.create_server(("127.0.0.1", 0))
    try:
        house = make_house(
            broker={
                "namesrv_addrs": (f"127.0.0.1:{mute.getsockname()[1]}",),
                "register_broker_timeout_ms": 5000,
            }
        )
        change(house, registerBrokerTimeoutMills=100)
        fields = {"topic": "New", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        time.sleep(5.5)  # the first registration was sent before the change
        begun = time.monotonic()
        assert house.peer().ask(17, fields).code == 0
        assert time.monotonic() - begun < 3
    finally:
        mute.close()


def test_several_options_are_changed_together_or_not_at_all(house):
    before = house.peer().ask(READ).body
    for bad in (
        {"traceOn": "perhaps"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"noSuchOption": "1"},
        {"sendMessageThreadPoolNums": "1"},
        {"maxMessageSize": "0"},
        {"maxTransferCountOnMessageInMemory": "4097"},
        {"configBlackList": "x"},
    ):
        answer = house.peer().ask(SET, {}, body(maxMsgsNumBatch=7, longPollingEnable="false", **bad))
        assert answer.code in (1, 16, 29), (bad, answer)
        assert next(iter(bad)) in answer.remark or answer.code == 16
        assert house.peer().ask(READ).body == before
    assert not (house.data_dir / "rocketbox" / "options.json").exists()
    change(house, maxMsgsNumBatch=7, longPollingEnable="false", traceOn="false")
    assert [shown(house, name) for name in ("maxMsgsNumBatch", "longPollingEnable", "traceOn")] == [
        "7",
        "false",
        "false",
    ]


@pytest.mark.parametrize(("section", "name"), sorted(RUNNING_LIMITS))
def test_each_limit_is_kept_and_said(house, section, name):
    low, high = RUNNING_LIMITS[section, name]
    for value in (low, high):
        change(house, **{name: value})
        assert shown(house, name) == str(value)
    for value in (low - 1, high + 1, 2**63, -1, "", "x", "1" * 60_000):
        answer = house.peer().ask(SET, {}, body(**{name: value}))
        assert (answer.code, answer.remark) == (29, f"{name} must be a whole number between {low} and {high}."), value
    assert shown(house, name) == str(high)


def test_what_is_configured_counts_though_it_lies_outside_of_the_limits(make_house):
    house = make_house(store={"max_transfer_count_on_message_in_memory": 10_000})
    change(house, maxTransferCountOnMessageInMemory=5)
    change(house, maxTransferCountOnMessageInMemory=10_000)
    assert shown(house, "maxTransferCountOnMessageInMemory") == "10000"


def test_a_limit_that_a_smaller_log_file_brought_is_kept_at_the_start(make_house):
    house = make_house()
    change(house, maxMessageSize=100)
    house.stop()
    path = house.data_dir / "rocketbox" / "options.json"
    path.write_text(json.dumps({"store.maxMessageSize": str(8 << 20), "store.maxMsgsNumBatch": "20000"}))
    house.engine = start_engine(house.data_dir)
    assert (shown(house, "maxMessageSize"), shown(house, "maxMsgsNumBatch")) == ("4194304", "64")
