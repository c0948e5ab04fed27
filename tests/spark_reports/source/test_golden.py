"""Stores that Apache wrote, read with Spark: every message of the manifest, every column."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest

from spark_reports.source.findings import bytes_read
from spark_reports.source.topics import is_system
from tests.spark_reports.source.stores import rows_of
from tests.support.golden import extract_store, store_manifest, store_names


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def _short(host: str) -> str:
    """Return an address as Python writes it: [::1]:10911."""
    address, _, port = host.rpartition(":")
    return f"[{ip_address(address[1:-1])}]:{port}" if address[0] == "[" else host


def expected_rows(manifest: dict[str, Any], system: bool) -> list[dict[str, Any]]:
    """Return the manifest's entry of each message, under the columns' names."""
    return [
        {
            "topic": one["topic"],
            "queue_id": one["queueId"],
            "queue_offset": one["queueOffset"],
            "msg_id": one["properties"].get("UNIQ_KEY", one["msgId"]),
            "keys": one["properties"].get("KEYS"),
            "tags": one["properties"].get("TAGS"),
            "born_ts": _at(one["bornTimestamp"]),
            "store_ts": _at(one["storeTimestamp"]),
            "reconsume_times": one["reconsumeTimes"],
            "body_size": one["bodyLength"],
            "size": one["size"],
            "flag": one["flag"],
            "sys_flag": one["sysFlag"],
            "physical_offset": one["offset"],
            "properties": one["properties"],
            "broker": None,
            "born_host": _short(one["bornHost"]),
            "store_host": _short(one["storeHost"]),
            "producer_group": one["properties"].get("PGROUP"),
        }
        for one in manifest["messages"]
        if system or not is_system(one["topic"])
    ]


@pytest.mark.parametrize(("version", "name"), store_names())
def test_a_store_of_apaches_is_read_whole(read, tmp_path, version, name):
    extract_store(version, name, tmp_path)
    manifest = store_manifest(version, name)
    assert manifest["messages"]

    rows = rows_of(read(store=tmp_path / "store", includeSystem=True))

    assert rows == expected_rows(manifest, system=True)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_what_the_broker_keeps_for_itself_is_left_out(read, tmp_path, version):
    extract_store(version, "mixed", tmp_path)
    manifest = store_manifest(version, "mixed")

    rows = rows_of(read(store=tmp_path / "store"))

    assert rows == expected_rows(manifest, system=False)
    assert 0 < len(rows) < len(manifest["messages"])
    assert {row["topic"][:5] for row in rows} == {"Store"}
    assert len(rows_of(read(store=tmp_path / "store", topic="%DLQ%CG_Store"))) == 4


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_bodies_are_decompressed(read, tmp_path, version):
    extract_store(version, "mixed", tmp_path)
    manifest = {one["offset"]: one for one in store_manifest(version, "mixed")["messages"]}

    rows = rows_of(read(store=tmp_path, columns="body"))

    assert {row["body_encoding"] for row in rows} == {None}
    for row in rows:
        if not row["sys_flag"] & 1:
            assert hashlib.sha256(row["body"]).hexdigest() == manifest[row["physical_offset"]]["bodySha256"]
    zipped = [row["body"] for row in rows if row["topic"] == "StoreZip"]
    assert len(zipped) == 6
    assert all(len(set(body)) < 64 and len(body) > 4096 for body in zipped), [body[:50] for body in zipped]


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_are_pushed_where_spark_pushes_them_and_not_needed(read, own_settings, tmp_path, pushed):
    extract_store("5.3.3", "mixed", tmp_path)
    own_settings.conf.set("spark.sql.python.filterPushdown.enabled", pushed)

    frame = read(store=tmp_path / "store", findings=tmp_path / "findings").where("topic = 'StoreTx' and queue_id > 0")
    rows = rows_of(frame)

    manifest = store_manifest("5.3.3", "mixed")
    assert rows == [row for row in expected_rows(manifest, system=True) if row["topic"] == "StoreTx"]
    read_bytes = bytes_read(tmp_path / "findings")
    end = manifest["commitLog"]["maxOffset"]
    assert read_bytes > end / 2 if pushed == "false" else read_bytes > 0


def test_a_typo_in_an_option_is_said_with_the_nearest_one(read, tmp_path):
    with pytest.raises(Exception, match="no option toppic: did you mean topic") as caught:
        read(store=tmp_path, toppic="orders").count()
    assert "OptionError" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_an_error_of_plan_or_task_is_a_sentence_without_a_traceback(read, tmp_path):
    (tmp_path / "file").touch()
    extract_store("5.3.3", "mixed", tmp_path)
    with pytest.raises(Exception, match=r"The option findings: .*/file cannot be written: File exists") as planned:
        read(store=tmp_path / "store", findings=tmp_path / "file").count()
    log = tmp_path / "store" / "commitlog"
    first = min(log.iterdir())
    first.write_bytes(first.read_bytes()[:1000] + bytes(5000) + first.read_bytes()[6000:])
    with pytest.raises(Exception, match=f"{first} is damaged at .*failOnDataLoss=false") as failed:
        read(store=tmp_path / "store", includeSystem=True).collect()
    for caught in (planned, failed):
        assert "Traceback" not in str(caught.value)
        assert "file_task.py" not in str(caught.value)
