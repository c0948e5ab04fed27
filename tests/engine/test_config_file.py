"""Configuration files: Java properties as java.util.Properties reads them, and TOML tables."""

from pathlib import Path

import pytest

from appliance.engine.config_file import parse_properties, read_config_file
from appliance.engine.errors import StartError

# conf/broker.conf of the Apache distribution, with the lines that its documents add.
APACHE_BROKER_CONF = """\
# Licensed to the Apache Software Foundation (ASF) under one or more
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\ne", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "")]),
        ("# note\n! note\n\n   \n  a=1", [("a", "1")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("list = one;\\\n     two", [("list", "one;two")]),
        ("path=C:\\\\data\nnext=1", [("path", "C:\\data"), ("next", "1")]),
        ("odd\\ key\\:x = v", [("odd key:x", "v")]),
        ("tab=\\t|\nuni=\\u8BA2\\u5355", [("tab", "|"), ("uni", "订单")]),
        ("a==b", [("a", "=b")]),
        ("last=1\\", [("last", "1")]),
    ],
)
def test_properties_are_read_as_java_reads_them(text, pairs):
    if text.startswith("tab"):
        assert [(key, value.strip("\t")) for key, value in parse_properties(text)] == pairs
    else:
        assert parse_properties(text) == pairs


def test_apaches_broker_conf_is_read_as_it_is(tmp_path):
    entries = read_config_file(write(tmp_path, "broker.conf", APACHE_BROKER_CONF)).entries
    assert ("broker", "fileReservedTime", "48") in entries
    assert len(entries) == 7


@pytest.mark.parametrize(
    ("name", "text"), [("namesrv.conf", "listenPort=9000"), ("n.properties", "listenPort=9000\nkvConfigPath=/tmp/kv")]
)
def test_a_name_servers_file_is_known_by_its_name_or_by_its_keys(tmp_path, name, text):
    assert read_config_file(write(tmp_path, name, text)).entries[0] == ("namesrv", "listenPort", "9000")


def test_toml_keeps_its_tables_and_types(tmp_path):
    text = 'dataDir = "d"\n[broker]\nautoCreateTopicEnable = false\n[store]\nfileReservedTime = 24\n'
    for name in ("rocketbox.toml", "rocketbox.conf"):
        assert read_config_file(write(tmp_path, name, text)).entries == [
            ("", "dataDir", "d"),
            ("broker", "autoCreateTopicEnable", False),
            ("store", "fileReservedTime", 24),
        ]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.toml", b"[broker\n", "a.toml is not TOML: "),
        ("a.toml", b"[brokers]\nx=1\n", r"a.toml: there is no table \[brokers\]; the tables are \[broker\], "),
        ("a.conf", "brokerName=b\n".encode("utf-16"), "a.conf is not UTF-8 text"),
        ("a.toml", b"# caf\xe9\n", "a.toml is not UTF-8 text"),
        ("a.conf", b"# caf\xe9\n[broker]\n", "a.conf is not UTF-8 text"),
        ("a.toml", b"a=" + b"[" * 5000 + b"]" * 5000, "a.toml is not TOML: it is nested too deeply"),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(StartError, match=sentence):
        read_config_file(path)


def test_a_missing_file_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(StartError, match=r"no\.conf cannot be read: No such file or directory"):
        read_config_file(tmp_path / "no.conf")


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "big5", "shift_jis"])
def test_comments_of_apaches_files_may_be_in_any_encoding(tmp_path, encoding):
    path = tmp_path / "broker.conf"
    path.write_bytes("# 中文\nbrokerName=b\n#名\nbrokerId=0\n".encode(encoding))
    assert read_config_file(path).entries == [("broker", "brokerName", "b"), ("broker", "brokerId", "0")]


def test_the_mark_that_editors_put_before_a_text_is_no_part_of_it(tmp_path):
    mark = b"\xef\xbb\xbf"
    (tmp_path / "broker.conf").write_bytes(mark + b"brokerName=b\n")
    assert read_config_file(tmp_path / "broker.conf").entries == [("broker", "brokerName", "b")]
    (tmp_path / "a.toml").write_bytes(mark + b"[broker]\nbrokerName='b'\n")
    assert read_config_file(tmp_path / "a.toml").entries == [("broker", "brokerName", "b")]
