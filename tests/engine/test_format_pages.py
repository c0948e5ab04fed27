"""The worked examples of docs/formats are true: the code reads and writes exactly them."""

import re
from pathlib import Path

import msgspec

from appliance.engine import fastjson
from appliance.engine.broker.deliveries.event_format import (
    EVENT,
    Definition,
    FileHeader,
    batches_of,
    decode_header,
    encode_batch,
    encode_definitions,
    encode_header,
)
from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.timers.runs import TimerEntry, is_whole, lane_of, pack_entry, unpack_entry
from appliance.engine.broker.topic_config import TopicConfig, decode_topic_config
from appliance.engine.broker.transactions import admin_journal, check_counts, resolved
from appliance.engine.config_journal import decode_line, encode_entry
from appliance.engine.protocol import command
from appliance.engine.protocol.command import CODEC_ROCKETMQ, RemotingCommand, decode_frame, encode_command
from appliance.engine.remoting import server

PAGES = Path(__file__).parents[2] / "docs" / "formats"


def blocks_of(name):
    """The indented code of a page."""
    return re.findall(r"^```\n(.*?)^```$", (PAGES / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def bytes_of_dump(block):
    """The bytes of a dump: hexadecimal groups at the start of each line; other lines as they stand."""
    found = b""
    for line in block.splitlines():
        digits = re.match(r"(?:[0-9a-f]{2,} )*[0-9a-f]{2,}(?= {2,}|$)", line)
        found += bytes.fromhex(digits[0].replace(" ", "")) if digits else line.encode()
    return found


def test_the_entries_of_timers_are_the_entries():
    data = bytes_of_dump(blocks_of("timers.md")[0])
    message = TimerEntry(1_700_000_060_000, False, 17, 4096, 300, lane_of("Orders"))
    mark = TimerEntry(1_700_000_060_000, True, 18, 4396, 310, lane_of("Orders"))
    assert data == pack_entry(mark) + pack_entry(message)
    assert sorted([data[32:], data[:32]]) == [data[:32], data[32:]]
    assert [unpack_entry(data[:32]), unpack_entry(data[32:])] == [mark, message]
    assert is_whole(data[:32])
    assert not is_whole(data[:31] + b"x")


def test_the_frames_are_the_frames():
    request = RemotingCommand(105, opaque=1, version=409, ext_fields={"topic": "TopicTest"}, body=b"hi")
    as_json, as_rocketmq = map(bytes_of_dump, blocks_of("frame.md"))
    assert as_json == encode_command(request)
    assert as_rocketmq == encode_command(request, CODEC_ROCKETMQ)
    for frame in (as_json, as_rocketmq):
        read = decode_frame(frame)
        assert (read.code, read.opaque, read.ext_fields, read.body) == (105, 1, {"topic": "TopicTest"}, b"hi")


def test_the_limits_are_the_limits():
    text = (PAGES / "frame.md").read_text(encoding="utf-8")
    assert f"| {command.MAX_FRAME_BYTES >> 20} MiB (Apache's" in text
    assert f"| header | {command.MAX_HEADER_BYTES >> 10} KiB |" in text
    assert f"no progress | {server.PARTIAL_IDLE_SECONDS:.0f} s |" in text
    assert f"together | {server.PARTIAL_TOTAL_BYTES >> 20} MiB;" in text
    assert f"neither read nor written | {server.IDLE_SECONDS:.0f} s" in text


def test_the_journal_and_the_file_are_what_the_code_writes():
    *_, journal, topics = blocks_of("config.md")
    lines = journal.encode().splitlines(keepends=True)
    entries = [decode_line(line.rstrip(b"\n")) for line in lines]
    assert [entry["table"] for entry in entries] == ["topics", "groups"]
    config = decode_topic_config("T", entries[0]["value"])
    assert config == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    assert [encode_entry(entry) for entry in entries] == lines
    assert fastjson.encode_pretty(fastjson.loads(topics)) + "\n" == topics
    assert fastjson.loads(topics)["topicConfigTable"]["T"] == msgspec.to_builtins(config)


def test_the_deliveries_are_what_the_code_writes():
    (block,) = blocks_of("deliveries.md")
    data = bytes_of_dump(block)
    header = decode_header(data)
    assert header == FileHeader(4096, 1_700_000_000_000)
    (batch,) = batches_of(data)
    assert batch.definitions == {0: Definition("CG", "T", 0, "c@1", None)}
    assert EVENT.unpack(batch.events)[2] == 5 << 16 | 3
    definitions = encode_definitions(batch.definitions.items())
    again = encode_batch(batch.published, batch.wall_ms, 0, definitions, batch.events)
    assert encode_header(header) + again == data


def test_transactions_are_what_the_code_writes():
    entry, checks, journal = blocks_of("transactions.md")
    data = bytes_of_dump(entry)
    assert data[: resolved.ENTRY_BYTES] == resolved.HEADER
    assert resolved.decode(data, resolved.ENTRY_BYTES) == resolved.Resolved(
        7,
        4096,
        1_700_000_000_000,
        2500,
        resolved.How.COMMITTED,
        resolved.By.CHECK,
        3,
        bytes.fromhex("0a000001000004d2"),
    )
    assert len(data) == 2 * resolved.ENTRY_BYTES
    counts = check_counts.decode(bytes_of_dump(checks))
    assert counts is not None
    [(number, states)] = counts.pages
    assert (counts.last_offset, counts.last_physical, number) == (9, 8192, 0)
    assert {at: state for at, state in enumerate(states) if state} == {7: 4, 9: 1}
    lines = journal.encode().splitlines(keepends=True)
    read = [admin_journal.decode_line(line.rstrip(b"\n")) for line in lines]
    assert [admin_journal.encode_line(line) for line in read] == lines
    assert (read[0].act.by, read[0].act.action, read[1].ended.outcome) == ("alice", "roll_back", admin_journal.DONE)


def test_every_field_of_a_topic_and_of_a_group_is_on_the_page():
    text = (PAGES / "config.md").read_text(encoding="utf-8")
    for struct in (TopicConfig, SubscriptionGroupConfig):
        for field in msgspec.structs.fields(struct):
            assert f"`{field.encode_name}`" in text
