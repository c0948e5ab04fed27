"""`rocketbox store`: the command as a user types it."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading

import pytest

from appliance.commands import store as store_command
from appliance.engine.errors import StartError
from appliance.engine.protocol.record import decode_record
from tests.support.golden import extract_store, store_manifest
from tests.support.offline import change, contents
from tests.support.store import StoreUnderTest


@pytest.fixture
def mixed(tmp_path):
    extract_store("5.3.3", "mixed", tmp_path)
    return tmp_path


def lines(capsysbinary):
    return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]


def test_inspect_says_what_a_store_is(mixed, capsys):
    manifest = store_manifest("5.3.3", "mixed")
    before = contents(mixed)
    assert store_command.run(["inspect", str(mixed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left"] == "stopped cleanly"
    assert found["written_by"][0].startswith("Apache RocketMQ 5.x")
    log = found["log"]
    assert (log["min_offset"], log["max_offset"], log["files"], log["file_bytes"]) == (0, 612348, 5, 131072)
    assert log["first_stored_at_ms"] == manifest["messages"][0]["storeTimestamp"]
    assert log["last_stored_at_ms"] == manifest["messages"][-1]["storeTimestamp"]
    queues = {(row["topic"], str(row["queue_id"])): row for row in found["queues"]}
    for topic, ids in manifest["queues"].items():
        for queue_id, bounds in ids.items():
            row = queues.pop((topic, queue_id))
            assert (row["min_offset"], row["max_offset"]) == (bounds["min"], bounds["max"])
    assert queues == {}
    assert [(row["slots"], row["entries"], row["problem"]) for row in found["index"]] == [
        (500, 999, None),
        (500, 999, None),
        (500, 41, None),
    ]
    topics = next(row for row in found["config"] if row["file"] == "topics.json")
    assert topics["entries"] == 23
    assert store_command.run(["inspect", str(mixed)]) == 0
    text = capsys.readouterr().out
    assert "log          [0, 612348) in 5 files of 131072 bytes" in text
    assert "StoreBatch/0                         0          380        380" in text
    assert contents(mixed) == before


def test_inspect_of_a_killed_store(tmp_path, capsys):
    extract_store("4.9.8", "killed", tmp_path)
    assert store_command.run(["inspect", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left"] == "killed"
    assert "Apache RocketMQ 4.x: abort is empty" in found["written_by"]
    assert found["log"]["max_offset"] == store_manifest("4.9.8", "killed")["commitLog"]["maxOffset"]


def test_inspect_of_a_new_store_suspects_nobody(tmp_path, capsys):
    store = StoreUnderTest(tmp_path).open()
    store.die()
    assert store_command.run(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "another program" not in text
    assert "the queues are not saved yet" in text


def test_inspect_and_verify_beside_the_process_that_has_the_store_open(tmp_path, capsys):
    """The commands run in another process, since a lock does not stop the process that holds it."""
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"one")
    store.wait_recovery_position()
    command = [sys.executable, "-m", "appliance.main", "store"]
    inspected = subprocess.run([*command, "inspect", tmp_path, "--json"], capture_output=True, text=True, timeout=60)
    verified = subprocess.run([*command, "verify", tmp_path], capture_output=True, text=True, timeout=60)
    store.write("T", 0, b"two")
    store.stop()
    assert json.loads(inspected.stdout)["lock_holder"] == os.getpid()
    assert f"process {os.getpid()} has this store open" in inspected.stderr
    assert verified.returncode == 0, verified.stdout
    assert "1 records" in verified.stdout
    assert "did not stop cleanly" not in verified.stdout


def test_verify_says_what_is_damaged_and_ends_with_1(mixed, capsys):
    assert store_command.run(["verify", str(mixed)]) == 0
    assert "1005 records in [0, 612348), 27 queues, 2039 index entries" in capsys.readouterr().out
    change(mixed / "store" / "commitlog" / f"{0:020d}", 300, b"\xff\xff\xff")
    assert store_command.run(["verify", str(mixed)]) == 1
    text = capsys.readouterr().out
    assert "damage record" in text
    assert "commitlog/00000000000000000000 @" in text
    assert store_command.run(["verify", str(mixed), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["damaged"] == sum(row["count"] for row in found["counts"] if row["level"] == "damage")
    assert found["problems"][0].keys() == {"level", "kind", "file", "at", "text"}


def test_export_is_every_message_of_the_log(mixed, capsysbinary):
    manifest = store_manifest("5.3.3", "mixed")
    assert store_command.run(["export", str(mixed)]) == 0
    found = lines(capsysbinary)
    assert len(found) == len(manifest["messages"])
    for line, message in zip(found, manifest["messages"], strict=True):
        body = line["body"].encode() if "body" in line else base64.b64decode(line["bodyBase64"])
        assert hashlib.sha256(body).hexdigest() == message["bodySha256"]
        assert (line["topic"], line["queueId"], line["queueOffset"], line["physicalOffset"]) == (
            message["topic"],
            message["queueId"],
            message["queueOffset"],
            message["offset"],
        )
        assert line["offsetMsgId"] == message["msgId"]
        assert line.get("uniqKey") == message.get("uniqKey")
        assert line["properties"] == message["properties"]
        assert (line["storeTimestamp"], line["sysFlag"]) == (message["storeTimestamp"], message["sysFlag"])


def test_export_chooses_by_topic_queue_and_time(mixed, capsysbinary):
    messages = store_manifest("5.3.3", "mixed")["messages"]

    def exported(*arguments):
        assert store_command.run(["export", str(mixed), *arguments]) == 0
        return [line["physicalOffset"] for line in lines(capsysbinary)]

    wanted = [m["offset"] for m in messages if m["topic"] in ("StoreZip", "StoreTx")]
    assert exported("--topic", "StoreZip", "--topic=StoreTx") == wanted
    wanted = [m["offset"] for m in messages if m["topic"] == "StoreBatch" and m["queueId"] == 1]
    assert exported("--topic", "StoreBatch", "--queue", "1") == wanted
    middle = messages[500]["storeTimestamp"]
    assert exported("--from", str(middle)) == [m["offset"] for m in messages if m["storeTimestamp"] >= middle]
    assert exported("--to", str(middle)) == [m["offset"] for m in messages if m["storeTimestamp"] < middle]
    assert exported("--from", "2200-01-01T00:00:00Z") == exported("--from", "tomorrow") == []
    assert exported("--to=1970-01-02T00:00:00+00:00") == []


def test_export_decompresses_on_demand(mixed, capsysbinary):
    store_command.run(["export", str(mixed), "--topic", "StoreZip"])
    packed = lines(capsysbinary)
    store_command.run(["export", str(mixed), "--topic", "StoreZip", "--decompress"])
    plain = lines(capsysbinary)
    assert {line["compression"] for line in packed} == {"lz4", "zstd", "zlib"} & {
        line["compression"] for line in packed
    }
    assert len(packed) == len(plain) == 6
    for line in plain:
        assert "compression" not in line
        assert len(set(line["body"])) == 1
    store_command.run(["export", str(mixed), "--topic", "StoreZip", "--decompress", "--body", "base64"])
    assert base64.b64decode(lines(capsysbinary)[0]["bodyBase64"]).decode() == plain[0]["body"]


def test_a_raw_export_is_the_records_themselves(mixed, tmp_path):
    output = tmp_path / "records"
    assert store_command.run(["export", str(mixed), "--raw", "--output", str(output)]) == 0
    data, at, offsets = output.read_bytes(), 0, []
    while at < len(data):
        record = decode_record(data, at)
        offsets.append(record.physical_offset)
        at += record.size
    assert offsets == [message["offset"] for message in store_manifest("5.3.3", "mixed")["messages"]]


def test_export_steps_over_damage_and_says_so(mixed, capfdbinary):
    change(mixed / "store" / "commitlog" / f"{0:020d}", 300, b"\xff\xff\xff")
    assert store_command.run(["export", str(mixed)]) == 1
    out, err = capfdbinary.readouterr()
    assert len(out.splitlines()) == 1004
    assert b"damage record" in err
    assert b"1004 messages exported" in err


def test_nothing_is_opened_for_writing(mixed, monkeypatch, capsys):
    """Not even if the user has the right to write."""
    (mixed / "rocketbox").mkdir()
    (mixed / "rocketbox" / "recovery-position").write_bytes(bytes(5000))
    opened = []
    here = threading.get_ident()
    real = os.open

    def watching(path, flags, *args, **kwargs):
        if threading.get_ident() == here:  # a server of another test may run in this process
            opened.append((path, flags))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", watching)
    for command in ("inspect", "verify", "export"):
        store_command.run([command, str(mixed)])
    assert len(opened) > 30
    assert [path for path, flags in opened if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inspect"], "needs one directory"),
        (["inspect", "a", "b"], "needs one directory"),
        (["inspect", "/nowhere/at/all"], "There is no directory"),
        (["verify", "x", "--repair"], "no option --repair"),
        (["export", "x", "--queue"], "--queue needs a value"),
    ],
)
def test_a_wrong_command_is_one_sentence(words, said):
    with pytest.raises(StartError, match=said):
        store_command.run(words)


def test_values_that_are_none_are_refused(mixed):
    for words, said in (
        (["--queue", "-1"], "--queue must be a number"),
        (["--from", "soon"], "--from needs a time like"),
        (["--body", "hex"], "--body must be auto"),
        (["--output", str(mixed / "store" / "x")], "is in the store"),
        (["--output", str(mixed / "no" / "x")], "cannot be written"),
    ):
        with pytest.raises(StartError, match=said):
            store_command.run(["export", str(mixed), *words])


def test_the_usage_is_shown(capsys):
    assert store_command.run(["--help"]) == 0
    assert "rocketbox store export DIR" in capsys.readouterr().out
    assert store_command.run([]) == 2
    assert store_command.run(["repair", "x"]) == 2
