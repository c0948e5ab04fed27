"""Frozen sections of the configuration: defaults, parsing of one value, texts for request 26."""

import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from appliance.engine.config import (
    SECTIONS,
    BrokerConfig,
    EngineConfig,
    NamesrvConfig,
    StoreConfig,
    broker_properties,
    namesrv_properties,
    options_of,
    parse_option,
)
from appliance.engine.errors import StartError

ROOT = Path(__file__).parents[2]


def test_directories_become_absolute_and_the_store_lies_in_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = EngineConfig(data_dir=Path("here"))
    assert config.data_dir == tmp_path / "here"
    assert config.store_dir == tmp_path / "here" / "store"
    assert config.namesrv.kv_config_path == tmp_path / "here" / "rocketbox" / "namesrv" / "kvConfig.json"


def test_a_store_of_apaches_may_lie_elsewhere(tmp_path):
    config = EngineConfig(data_dir=tmp_path / "a", store_dir=tmp_path / "b")
    assert config.store_dir == tmp_path / "b"


def test_sections_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        BrokerConfig().broker_id = 1  # type: ignore[misc]


def test_broker_name_defaults_to_the_host_name_made_legal(monkeypatch):
    class Host:
        nodename = "büro 7/east_1.example"

    monkeypatch.setattr("appliance.engine.config.os.uname", lambda: Host)
    assert BrokerConfig().broker_name == "b-ro-7-east_1.example"
    assert BrokerConfig(broker_name="x").broker_name == "x"


def test_queue_file_size_is_rounded_up_to_whole_units():
    assert StoreConfig(mapped_file_size_consume_queue=41).mapped_file_size_consume_queue == 60
    assert StoreConfig(mapped_file_size_consume_queue=40).mapped_file_size_consume_queue == 40


def test_a_log_file_must_hold_the_largest_message(tmp_path):
    store = StoreConfig(max_message_size=4_194_304, mapped_file_size_commit_log=4_194_304)
    with pytest.raises(StartError, match="maxMessageSize=4194304 needs mappedFileSizeCommitLog to be at least 4259848"):
        EngineConfig(data_dir=tmp_path, store=store).check()
    EngineConfig(data_dir=tmp_path, store=StoreConfig(mapped_file_size_commit_log=4_259_848)).check()


def test_every_default_parses_back_from_its_own_text(tmp_path):
    shown = BrokerConfig(access_control="report", tls_mode="permissive")  # or their options are left out
    config = EngineConfig(data_dir=tmp_path, broker=shown)
    for section in SECTIONS:
        texts = namesrv_properties(config) if section == "namesrv" else broker_properties(config)
        texts |= {
            "haListenPort": "0",
            "haMasterAddress": "",
            "brokerIP2": "",
            "inSyncReplicas": "0",
            "proxyProtocolFrom": "",
        }  # shown as Apache shows them: by their result
        for upstream, option in options_of(section).items():
            if option.metadata["of_sets"]:  # shown by a member of a set only
                continue
            assert parse_option(option, texts[upstream]) == getattr(getattr(config, section), option.name)


@pytest.mark.parametrize(
    ("section", "name", "value", "parsed"),
    [
        ("broker", "autoCreateTopicEnable", "FALSE", False),
        ("broker", "autoCreateTopicEnable", True, True),
        ("broker", "defaultTopicQueueNums", " 16 ", 16),
        ("broker", "namesrvAddr", "a:1;b:2, [::1]:9876", ("a:1", "b:2", "[::1]:9876")),
        ("broker", "namesrvAddr", ["a:1"], ("a:1",)),
        ("broker", "namesrvAddr", "", ()),
        ("store", "flushDiskType", "ASYNC_FLUSH", "ASYNC_FLUSH"),
        ("store", "deleteWhen", 4, "4"),
        ("namesrv", "kvConfigPath", "kv.json", Path("kv.json")),
    ],
)
def test_values_are_read_as_apache_and_toml_write_them(section, name, value, parsed):
    assert parse_option(options_of(section)[name], value) == parsed


@pytest.mark.parametrize(
    ("section", "name", "value", "sentence"),
    [
        ("broker", "autoCreateTopicEnable", "yes", "must be true or false, not 'yes'"),
        ("broker", "autoCreateTopicEnable", 1, "must be true or false, not 1"),
        ("broker", "defaultTopicQueueNums", "eight", "must be a whole number, not 'eight'"),
        ("broker", "defaultTopicQueueNums", True, "must be a whole number, not True"),
        ("broker", "defaultTopicQueueNums", 0, "must be between 1 and 65535, not 0"),
        ("broker", "brokerPermission", "8", "must be between 0 and 7, not 8"),
        ("broker", "namesrvAddr", "host", "must be host:port addresses separated by ';', not 'host'"),
        ("broker", "namesrvAddr", "h:99999", "must be host:port addresses separated by ';', not 'h:99999'"),
        ("broker", "regionId", False, "must be text, not False"),
        ("store", "flushDiskType", "SYNC", "must be SYNC_FLUSH or ASYNC_FLUSH, not 'SYNC'"),
    ],
)
def test_a_malformed_value_is_refused_in_words(section, name, value, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace("(", r"\(") + "$"):
        parse_option(options_of(section)[name], value)


def test_broker_properties_carry_upstream_names_and_texts(tmp_path):
    config = EngineConfig(
        data_dir=tmp_path,
        broker_port=20911,
        advertise="10.0.0.5",
        broker=BrokerConfig(broker_name="broker-a", namesrv_addrs=("a:1", "b:2"), auto_create_topic_enable=False),
    )
    properties = broker_properties(config)
    expected = {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "namesrvAddr": "a:1;b:2",
        "listenPort": "20911",
        "brokerIP1": "10.0.0.5",
        "autoCreateTopicEnable": "false",
        "flushDiskType": "SYNC_FLUSH",
        "storePathRootDir": str(tmp_path / "store"),
        "filterServerNums": "0",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert all(isinstance(value, str) for value in properties.values())
    # The keys that Apache's `mqadmin exportConfigs` reads.
    assert {"fileReservedTime", "maxMessageSize", "messageDelayLevel", "slaveReadEnable", "traceOn"} <= set(properties)


def test_no_upstream_name_stands_for_two_fields():
    for section, kind in SECTIONS.items():
        assert len(options_of(section)) == len(fields(kind))
    assert not set(options_of("broker")) & set(options_of("store"))


def test_namesrv_properties_name_the_file_of_the_key_values(tmp_path):
    properties = namesrv_properties(EngineConfig(data_dir=tmp_path, namesrv=NamesrvConfig(cluster_test=True)))
    assert properties["kvConfigPath"] == str(tmp_path / "rocketbox/namesrv/kvConfig.json")
    assert properties["clusterTest"] == "true"


def test_an_option_without_effect_is_one_that_no_code_reads():
    """The notice at start must be true in both directions."""
    sources = [path for path in (ROOT / "appliance").rglob("*.py") if path.name != "config.py"]
    read = set(re.findall(r"\.([a-z_]+)\b", "\n".join(path.read_text() for path in sources)))
    for section in SECTIONS:
        for option in options_of(section).values():
            assert (option.name in read) == option.metadata["effect"], option.name
