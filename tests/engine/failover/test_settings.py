"""Settings of a set of brokers: contradictions are refused, and likely disappointments are reported at the start."""

import re
from pathlib import Path

import pytest

from appliance.command_line import load
from appliance.engine.broker.master_side import link_settings
from appliance.engine.config import (
    EngineConfig,
    StoreConfig,
    broker_properties,
    options_of,
    parse_leader_store,
    parse_option,
)
from appliance.engine.errors import StartError
from appliance.engine.failover.settings import member_settings, read_password, store_settings
from appliance.engine.failover.stores.access import Access
from tests.support.server import ROOT

THREE = "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"
#: A member without notices.
GOOD = {
    "brokerName": "broker-a",
    "haStore": THREE,
    "haSlaveAddresses": "10.0.0.0/24",
    "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
    "bindAddress": "0.0.0.0",
}


def member(tmp_path: Path, *argv: str, **changed: str | None) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return configuration and notices of a member; None leaves a setting out."""
    file = tmp_path / "broker.conf"
    wanted = GOOD | changed
    file.write_text("".join(f"{name}={value}\n" for name, value in wanted.items() if value is not None))
    config, options = load(["--data-dir", str(tmp_path / "data"), "-c", str(file), *argv], {})
    return config, options.notices


def test_a_member_leads_as_a_sync_master_unless_told_otherwise(tmp_path):
    config, notices = member(tmp_path)
    assert (config.store.broker_role, config.ha_set) == ("SYNC_MASTER", "broker-a")
    assert member_settings(config).elect_after_s == 2.0
    assert notices == ()
    config, notices = member(tmp_path, brokerRole="ASYNC_MASTER", haSet="s")
    assert (config.store.broker_role, config.ha_set) == ("ASYNC_MASTER", "s")
    assert member_settings(config).elect_after_s == 5.0
    assert [one for one in notices if one.startswith("brokerRole=ASYNC_MASTER")]


@pytest.mark.parametrize("guide", ["operations.md", "high-availability.md"])
def test_a_set_made_as_the_guides_say_does_not_fill_etcd_with_its_history(tmp_path, guide):
    """The history grows by 146 MiB a day, and no election is possible once etcd's quota is used up."""
    examples = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / guide).read_text(), re.MULTILINE | re.DOTALL)
    [example] = [one for one in examples if "haStore =" in one]
    file = tmp_path / "machine-1.toml"
    file.write_text(example)
    config, _ = load(["--data-dir", str(tmp_path / "data"), "-c", str(file)], {})
    assert store_settings(config).compact


def test_without_a_store_a_broker_is_as_before():
    assert StoreConfig().broker_role == "ASYNC_MASTER"
    assert not set(broker_properties(EngineConfig(data_dir=Path("d")))) & {"haStore", "minInSyncReplicas", "haSet"}


def test_a_member_tells_its_settings(tmp_path):
    told = broker_properties(member(tmp_path)[0])
    assert (told["haStore"], told["haBeatInterval"], told["minInSyncReplicas"]) == (THREE, "500", "1")
    for name, option in options_of("store").items():
        if option.metadata["of_sets"]:
            assert parse_option(option, told[name]) == getattr(member(tmp_path)[0].store, option.name)


def test_every_setting_reaches_what_it_is_for(tmp_path):
    config, _ = member(
        tmp_path,
        haStore="etcds://h:1,h:2,h:3",
        haStorePrefix="/mq/prod",
        haStoreTimeout="200",
        haStoreCa="/ca.pem",
        haStoreCertificate="/member.pem",
        haStoreKey="/member.key",
        haCompactStore="true",
        haElectAfter="900",
        haBeatInterval="250",
        haMaxTimeSlaveNotCatchup="1500",
        haMaxAckDelay="700",
        minInSyncReplicas="2",
        haMaxLagOnFailover="7",
        haDiskStall="4000",
        haOnPromote="/bin/echo 'a b' c",
        haRelayTime="0",
    )
    assert parse_leader_store(config.store.ha_store) == ("etcd", True, ("h:1", "h:2", "h:3"))
    access = Access(timeout_s=0.2, ca="/ca.pem", certificate="/member.pem", key="/member.key", prefix="/mq/prod")
    assert store_settings(config) == ("/mq/prod/broker-a", access, True)
    assert member_settings(config) == (
        *("broker-a", True, 0.9, 0.25, 1.5, 2, 7, 4.0, ("/bin/echo", "a b", "c"), 0.0, False),
    )  # fmt: skip
    assert link_settings(config.store).late_s == 0.7


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"brokerRole": "SLAVE"}, "brokerRole=SLAVE does not go with haStore"),
        ({"brokerId": "1"}, "brokerId=1 does not go with haStore"),
        ({"brokerName": None}, "haStore needs brokerName"),
        ({"haMasterAddress": "h:1"}, "haMasterAddress=h:1 does not go with haStore"),
        ({"inSyncReplicas": "2"}, "minInSyncReplicas says how many"),
        ({"brokerRole": "ASYNC_MASTER", "minInSyncReplicas": "2"}, "minInSyncReplicas above 1 needs SYNC_MASTER"),
        ({"haStoreUser": "root"}, "haStoreUser and haStorePasswordFile go together"),
        ({"haStorePasswordFile": "p"}, "haStoreUser and haStorePasswordFile go together"),
        ({"haStoreCa": "ca.pem"}, "haStoreCa needs etcds://"),
        ({"haStoreCertificate": "c", "haStoreKey": "k"}, "haStoreCertificate needs etcds://"),
        ({"haStoreKey": "k.pem"}, "haStoreCertificate and haStoreKey go together"),
        ({"haStore": "etcds://h:1", "haStoreCertificate": "c"}, "haStoreCertificate and haStoreKey go together"),
        ({"haElectAfter": "1999"}, "haElectAfter=1999 is too short"),
        ({"haStoreTimeout": "501"}, "haElectAfter=2000 is too short"),
        ({"haSet": "a/b"}, "haSet must be letters"),
        ({"haStorePrefix": "rocketbox"}, "haStorePrefix must be like /rocketbox"),
        ({"haStore": "10.0.0.1:2379"}, "haStore must be etcd://"),
        ({"haStore": "etcd://root:secret@h:1"}, "haStore must be etcd://"),
        ({"haStore": "etcd://h:1,h:1"}, "each endpoint once"),
        ({"haStore": "consul://h:1"}, "haStore must be etcd://"),
        ({"haStore": "etcd://"}, "haStore must be etcd://"),
        ({"haOnPromote": "moved.sh"}, "haOnPromote must begin with a program's whole path"),
        ({"haOnPromote": "/bin/sh 'x"}, "a quotation is not closed"),
        ({"haOnPromote": "/absent/program"}, "/absent/program is no program that can be started"),
        ({"haStore": None, "minInSyncReplicas": "2"}, "minInSyncReplicas above 1 needs haStore"),
    ],
)
def test_what_contradicts_is_refused_with_one_sentence(tmp_path, changed, said):
    with pytest.raises(StartError) as caught:
        member(tmp_path, **changed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_is_made_only_where_there_can_be_one(tmp_path):
    assert member(tmp_path, "--ha-bootstrap")[0].ha_bootstrap is True
    assert member(tmp_path)[0].ha_bootstrap is False
    with pytest.raises(StartError, match="needs haStore"):
        load(["--ha-bootstrap"], {})
    with pytest.raises(StartError, match="takes no value"):
        member(tmp_path, "--ha-bootstrap=yes")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"haStore": "etcd://10.0.0.1:2379"}, "haStore names one endpoint"),
        ({"haStore": "zookeeper://10.0.0.1:2181,10.0.0.2:2181"}, "haStore names 2 endpoints"),
        ({"haStore": "etcd://127.0.0.1:1,127.0.0.1:2,localhost:3"}, "haStore names this machine only"),
        ({"haSlaveAddresses": None}, "haSlaveAddresses is empty"),
        ({"namesrvAddr": None}, "namesrvAddr is empty"),
        ({"flushDiskType": "ASYNC_FLUSH"}, "flushDiskType=ASYNC_FLUSH"),
        ({"bindAddress": "127.0.0.1"}, "bind=127.0.0.1"),
    ],
)
def test_what_is_likely_to_disappoint_is_said(tmp_path, changed, said):
    [sentence] = member(tmp_path, **changed)[1]
    assert sentence.startswith(said)


def test_a_password_comes_from_a_file_that_nobody_else_reads(tmp_path):
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    config, notices = member(tmp_path, haStoreUser="rocketbox", haStorePasswordFile=str(file))
    assert read_password(config.store) == "s3cret"
    assert notices == ("haStoreUser: the password travels unencrypted; etcds:// encrypts it.",)
    assert "s3cret" not in repr(config) + repr(broker_properties(config))
    over_tls = {"haStore": THREE.replace("etcd:", "etcds:")}
    assert member(tmp_path, haStoreUser="rocketbox", haStorePasswordFile=str(file), **over_tls)[1] == ()
    file.chmod(0o640)
    with pytest.raises(StartError, match="chmod 600"):
        read_password(config.store)
    file.chmod(0o600)
    for text in ("", "\n", "a\nb\n", "x" * 5000):
        file.write_text(text)
        with pytest.raises(StartError, match="one line"):
            read_password(config.store)
    file.unlink()
    with pytest.raises(StartError, match="cannot be read"):
        member(tmp_path, haStoreUser="rocketbox", haStorePasswordFile=str(file))
    assert read_password(StoreConfig()) == ""


def test_the_address_of_a_store():
    assert parse_leader_store("") is None
    assert parse_leader_store("etcds://h:1") == ("etcd", True, ("h:1",))
    assert parse_leader_store("zookeeper://h:1,[::1]:2") == ("zookeeper", False, ("h:1", "[::1]:2"))


def test_what_all_members_have_alike_is_compared(tmp_path):
    from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
    from appliance.engine.failover.settings import differences, shared_settings

    def told(broker=None, **store):
        return shared_settings(
            EngineConfig(
                tmp_path, broker=BrokerConfig("b", **broker or {}), store=StoreConfig(ha_store="etcd://h:1", **store)
            )
        )

    here = told()
    assert differences(here, told(message_delay_level=f" {'  '.join(here['messageDelayLevel'].split())}")) == ()
    assert differences(here, {}) == (), "a member of before announces nothing"
    assert differences(
        here, told({"cluster_name": "C"}, broker_role="ASYNC_MASTER", flush_disk_type="ASYNC_FLUSH")
    ) == (
        "brokerClusterName=C (here DefaultCluster)",
        "brokerRole=ASYNC_MASTER (here SYNC_MASTER)",
        "flushDiskType=ASYNC_FLUSH (here SYNC_FLUSH)",
        "haElectAfter=5000 (here 2000)",
    )
    assert differences(here, told(ha_elect_after_ms=2000)) == (), "which is what it is without the setting"
    assert differences(
        here, told({"access_control": "enforce"}, ha_elect_after_ms=60_000, file_reserved_time_hours=3)
    ) == (
        "haElectAfter=60000 (here 2000)",
        "fileReservedTime=3 (here 72)",
        "accessControl=enforce (here off)",
    )  # fmt: skip
    [levels] = differences(here, told(message_delay_level="1s 5s"))
    assert levels.startswith("messageDelayLevel=1s 5s (here 1s 5s 10s ")
