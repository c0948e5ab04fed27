"""The engine's configuration: frozen values, one section for each part, read once at start.

A field that is one of RocketMQ's options has that option's name as metadata. So one declaration serves TOML files,
Apache's broker.conf, request 26 (get the configuration) and error messages. The fields' own names end in their unit.
If a default differs from Apache's, a comment has the reason. `appliance.command_line` sets the values.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import StartError
from .host_port import parse_host_port, parse_told_host
from .named_tuple import NamedTuple
from .protocol.names import BROKER_NAME_MAX_LENGTH, is_plain_name, topic_name_error

ENGINE_ROLES = frozenset({"broker", "namesrv"})

# A frame may be 16 MiB (decision D13); 64 KiB of it belong to the header, another 64 KiB to topic and properties.
MAX_MESSAGE_SIZE_LIMIT_BYTES = (16 << 20) - (128 << 10)
# A stored record is the body, at most 64 KiB around it, and an 8-byte blank record must still fit behind it.
RECORD_OVERHEAD_BYTES = 65_536 + 8

# Largest quotas of a user. Bytes a second: beyond any network. Requests a second: of larger ones the time of a single
# request would be lost in rounding. Connections: beyond the open files of any process.
MOST_QUOTA_BYTES, MOST_QUOTA_REQUESTS, MOST_QUOTA_CONNECTIONS = 100_000_000_000, 10_000_000, 1_000_000

# Modes of access control beside off: its gate only counts, or it refuses.
REPORT, ENFORCE = "report", "enforce"


def _option(
    upstream: str,
    default: Any,
    *,
    minimum: int = 0,
    maximum: int = 2**63 - 1,
    choices: tuple[str, ...] = (),
    effect: bool = True,
    check: Callable[[str], object] | None = None,
    of_sets: bool = False,
) -> Any:
    """Declare a field for RocketMQ's option `upstream`.

    effect=False: accepted and reported, but not used yet. check: for a text, raises ValueError as parse_option; a text
    or Secret that it returns replaces the value.
    of_sets: has an effect only with haStore.
    """
    return field(
        default=default,
        metadata={
            "upstream": upstream,
            "minimum": minimum,
            "maximum": maximum,
            "choices": choices,
            "effect": effect,
            "check": check,
            "of_sets": of_sets,
        },
    )


def parse_hours(text: str) -> frozenset[int]:
    """Return the hours of the day in `deleteWhen`, as in "04;16"; ValueError as in parse_option."""
    words = [word.strip() for word in text.split(";")]
    if not all(re.fullmatch(r"[0-9]{1,2}", word, re.ASCII) and int(word) < 24 for word in words):
        raise ValueError(f"must be hours from 0 to 23 separated by ';', not {text!r}")
    return frozenset(map(int, words))


def parse_balancers(text: str) -> None:
    """Check `proxyProtocolFrom`; ValueError as in parse_option."""
    if text.strip() == "all" or any(not network.prefixlen for network in parse_networks(text)):
        raise ValueError("must name the addresses of balancers: with all addresses any peer could claim any address")


def parse_networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks of an option, as in "10.0.0.7;10.1.0.0/16"; ValueError as in parse_option."""
    if text.strip() == "all":
        text = "0.0.0.0/0;::/0"
    words = [word.strip() for word in re.split("[;,]", text)]
    try:
        return tuple(ipaddress.ip_network(re.sub(r"^\[(.*)\]$", r"\1", word)) for word in words if word)
    except ValueError as error:
        raise ValueError(f"must be 'all', or addresses and networks separated by ';': {error}") from None


class StoreAddress(NamedTuple):
    """The address of the store for leadership. kind: "etcd" or "zookeeper". endpoints: "host:port" each."""

    kind: str
    tls: bool
    endpoints: tuple[str, ...]


#: A store has three members, five at most; a list of hundreds is a mistake.
MAX_STORE_ENDPOINTS = 16
#: Scheme of `haStore` -> (kind, over TLS).
_STORE_SCHEMES = {"etcd": ("etcd", False), "etcds": ("etcd", True), "zookeeper": ("zookeeper", False)}


def parse_leader_store(text: str) -> StoreAddress | None:
    """Parse `haStore`, as in "etcd://10.0.0.1:2379,10.0.0.2:2379"; None for "". ValueError as in parse_option."""
    if not text.strip():
        return None
    scheme, separator, rest = text.strip().partition("://")
    endpoints: tuple[str, ...] = ()
    if separator and scheme in _STORE_SCHEMES and not set(rest) & set("@/?#"):
        try:
            endpoints = parse_addresses(rest)
        except ValueError:
            endpoints = ()
    if not endpoints or len(set(endpoints)) != len(endpoints):
        raise ValueError(
            "must be etcd://HOST:PORT,HOST:PORT,... (etcds:// for TLS, or zookeeper://), each endpoint once and "
            f"without a password, not {text!r}"
        )
    if len(endpoints) > MAX_STORE_ENDPOINTS:
        raise ValueError(f"names {len(endpoints)} endpoints; {MAX_STORE_ENDPOINTS} is the most")
    return StoreAddress(*_STORE_SCHEMES[scheme], endpoints)


def check_leader_store(text: str) -> str:
    """Return `haStore` in its usual form; ValueError as in parse_option."""
    address = parse_leader_store(text)
    return "" if address is None else f"{text.strip().partition('://')[0]}://{','.join(address.endpoints)}"


def parse_command(text: str) -> list[str]:
    """Return the program and the arguments of `haOnPromote`, which no shell reads. ValueError as in parse_option."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError(f"must be a program and its arguments, and a quotation is not closed: {text!r}") from None
    if words and not os.path.isabs(words[0]):
        raise ValueError(f"must begin with a program's whole path, not {words[0]!r}")
    return words


def parse_prefix(text: str) -> None:
    """Check that a text is like "/rocketbox"; ValueError as in parse_option."""
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+){1,8}", text, re.ASCII):
        raise ValueError(f"must be like /rocketbox, not {text!r}")


def parse_set_name(text: str) -> None:
    """Check that a text may be a part of a key; ValueError as in parse_option."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,127}", text, re.ASCII):
        raise ValueError(f"must be letters, digits and '._-', 127 at most, not {text!r}")


def check_address(text: str) -> str:
    """Return host:port, or ""; ValueError as in parse_option."""
    addresses = parse_addresses(text)
    if len(addresses) > 1:
        raise ValueError(f"must be one host:port, not {text!r}")
    return addresses[0] if addresses else ""


def check_registry(text: str) -> str:
    """Return the address of a schema registry, or ""; ValueError as in parse_option."""
    text = text.strip()
    if text:
        try:
            found = urlsplit(text)
            valid = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
        except ValueError:
            valid = False
        if not valid or found.query or found.fragment or "@" in found.netloc or not text.isascii() or " " in text:
            raise ValueError("must be http:// or https:// with a host, without user, password and question mark")
    return text


def check_own_host(text: str) -> str:
    """Return an address of this machine that can be advertised to others, or ""; ValueError as in parse_option."""
    return parse_told_host(text) if text.strip() else ""


def check_broker_name(text: str) -> None:
    """Check a broker's name, or "" for the host's; ValueError as in parse_option."""
    if text:
        check_cluster_name(text)


def check_cluster_name(text: str) -> None:
    """Check that name servers accept this name: otherwise a broker would start, and no client would find it. ValueError
    as in parse_option."""
    if not is_plain_name(text):
        raise ValueError(
            f"must be 1 to {BROKER_NAME_MAX_LENGTH} characters of ASCII without blanks, quotes and slashes, "
            f"not {text[:100]!r}"
        )


class Secret:
    """An option's text that no page, answer, log line or bundle may show: its repr is stars. `plain` is the text."""

    __slots__ = ("plain",)

    def __init__(self, plain: str = "") -> None:
        self.plain = plain

    def __bool__(self) -> bool:
        return bool(self.plain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.plain == self.plain

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return "***" if self.plain else ""


def check_first_user(text: str) -> Secret:
    """Check `initAuthenticationUser`, as in {"username":"admin","password":"..."}, or ""; ValueError as in
    parse_option."""
    if text.strip():
        parse_first_user(text)
    return Secret(text.strip())


def parse_first_user(text: str) -> tuple[str, str]:
    """Return (name, secret) of `initAuthenticationUser`. The ValueError omits the text, which contains a secret."""
    from .fastjson import loads_plain

    try:
        found = loads_plain(text)
        name, secret = found["username"], found["password"]
    except (ValueError, TypeError, KeyError):
        name = secret = None
    if not isinstance(name, str) or not isinstance(secret, str):
        raise ValueError('must be {"username":"...","password":"..."}')
    return name, secret


def check_region(text: str) -> None:
    """Check the region that is added to each message; ValueError as in parse_option."""
    if len(text) > BROKER_NAME_MAX_LENGTH:
        raise ValueError(f"must have at most {BROKER_NAME_MAX_LENGTH} characters, not {len(text)}")


def check_topic(text: str) -> None:
    """Check a topic's name; ValueError as in parse_option."""
    if topic_name_error(text) is not None:
        raise ValueError(f"must be the name of a topic: letters, digits and % | - _, not {text[:100]!r}")


def check_characters(text: str) -> None:
    """Check that a text has no control characters but tabs; ValueError as in parse_option."""
    if any((sign < " " and sign != "\t") or sign == "\x7f" for sign in text):
        raise ValueError(f"must be text without control characters, not {text[:100]!r}")


def default_broker_name() -> str:
    """Return the host name, as Apache does; a character that a broker name may not have becomes `-`."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename) or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The options of org.apache.rocketmq.common.BrokerConfig that RocketBox supports."""

    broker_name: str = _option("brokerName", "", check=check_broker_name)  # "" becomes the host name
    broker_id: int = _option("brokerId", 0)
    cluster_name: str = _option("brokerClusterName", "DefaultCluster", check=check_cluster_name)
    # The address that is advertised to slaves; "" is the one for clients.
    ha_advertise: str = _option("brokerIP2", "", check=check_own_host)
    # host:port of every name server to register with; empty: this process's own, if that role runs.
    namesrv_addrs: tuple[str, ...] = _option("namesrvAddr", ())
    broker_permission: int = _option("brokerPermission", 6, maximum=7)
    default_topic_queue_nums: int = _option("defaultTopicQueueNums", 8, minimum=1, maximum=65_535)
    auto_create_topic_enable: bool = _option("autoCreateTopicEnable", True)
    auto_create_subscription_group: bool = _option("autoCreateSubscriptionGroup", True)
    cluster_topic_enable: bool = _option("clusterTopicEnable", True)
    broker_topic_enable: bool = _option("brokerTopicEnable", True)
    trace_topic_enable: bool = _option("traceTopicEnable", False)
    msg_trace_topic_name: str = _option("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", check=check_topic)
    region_id: str = _option("regionId", "DefaultRegion", check=check_region)
    trace_on: bool = _option("traceOn", True)
    long_polling_enable: bool = _option("longPollingEnable", True)
    short_polling_time_ms: int = _option("shortPollingTimeMills", 1000)
    notify_consumer_ids_changed_enable: bool = _option("notifyConsumerIdsChangedEnable", True)
    register_name_server_period_ms: int = _option("registerNameServerPeriod", 30_000, minimum=1000)
    register_broker_timeout_ms: int = _option("registerBrokerTimeoutMills", 24_000, minimum=1)
    use_server_side_reset_offset: bool = _option("useServerSideResetOffset", True)
    flush_consumer_offset_interval_ms: int = _option("flushConsumerOffsetInterval", 5000, minimum=1)
    default_query_max_num: int = _option("defaultQueryMaxNum", 32, minimum=1)
    slave_read_enable: bool = _option("slaveReadEnable", False)
    # Upstream: false. True here, since without it SQL subscriptions fail, and nothing is gained by it (decision D4).
    enable_property_filter: bool = _option("enablePropertyFilter", True)
    filter_support_retry: bool = _option("filterSupportRetry", False)
    filter_data_clean_time_span: int = _option("filterDataCleanTimeSpan", 86_400_000)
    # Positions in consumerFilter.json follow from these two; bit maps are neither written nor read.
    max_error_rate_of_bloom_filter: int = _option("maxErrorRateOfBloomFilter", 20, minimum=1, maximum=99)
    expect_consumer_num_use_filter: int = _option("expectConsumerNumUseFilter", 32, minimum=1, maximum=100_000)
    enable_calc_filter_bit_map: bool = _option("enableCalcFilterBitMap", False, effect=False)
    channel_expired_timeout_ms: int = _option("channelExpiredTimeout", 120_000, minimum=1)
    reject_transaction_message: bool = _option("rejectTransactionMessage", False)
    transaction_time_out_ms: int = _option("transactionTimeOut", 6000)
    transaction_check_max: int = _option("transactionCheckMax", 15, minimum=1, maximum=254)
    transaction_check_interval_ms: int = _option("transactionCheckInterval", 30_000, minimum=1)
    lite_pull_message_enable: bool = _option("litePullMessageEnable", True)
    store_reply_message_enable: bool = _option("storeReplyMessageEnable", True)
    start_accept_send_request_time_stamp: int = _option("startAcceptSendRequestTimeStamp", 0)
    # Upstream: false. True here: it changes nothing for clients that do not use it (decision D4).
    recall_message_enable: bool = _option("recallMessageEnable", True)
    allow_recall_when_broker_not_writeable: bool = _option("allowRecallWhenBrokerNotWriteable", True)
    # Ours: requests must be signed and allowed, on every port of the process (docs/access-control.md).
    access_control: str = _option("accessControl", "off", choices=("off", REPORT, ENFORCE))
    # The first Super user, made if there is none.
    init_authentication_user: Secret = _option("initAuthenticationUser", Secret(), check=check_first_user)
    # Ours: a file with the keys that seal the users' secrets on the disk.
    access_key_file: str = _option("accessKeyFile", "")
    # Ours: 3004 and 3005 have the secrets of users, for Super users over TLS or on this machine (mqadmin copyUser).
    auth_give_secrets: bool = _option("authGiveSecrets", False)
    # Ours: the name server sends routes to unsigned requests, too, as Apache's does.
    namesrv_anonymous_routes: bool = _option("namesrvAnonymousRoutes", True)
    # Ours: networks from which other brokers may register without a signature, separated by ';', or "all".
    namesrv_broker_addresses: str = _option("namesrvBrokerAddresses", "127.0.0.0/8;::1", check=parse_networks)
    # Ours: quotas of users who have none of their own; 0: no limit (docs/access-control.md).
    user_send_bytes_per_second: int = _option("userSendBytesPerSecond", 0, maximum=MOST_QUOTA_BYTES)
    user_pull_bytes_per_second: int = _option("userPullBytesPerSecond", 0, maximum=MOST_QUOTA_BYTES)
    user_requests_per_second: int = _option("userRequestsPerSecond", 0, maximum=MOST_QUOTA_REQUESTS)
    user_connections: int = _option("userConnections", 0, maximum=MOST_QUOTA_CONNECTIONS)
    # Ours: the schema registry that bodies name their schemas in, and a file with user:password for it.
    schema_registry: str = _option("schemaRegistry", "", check=check_registry)
    schema_registry_secret_file: str = _option("schemaRegistrySecretFile", "")
    # Ours: TLS on every port of the process, beside plain connections or instead of them (docs/security.md).
    tls_mode: str = _option("tlsMode", "disabled", choices=("disabled", "permissive", "enforcing"))
    tls_cert_file: str = _option("tlsCertFile", "")
    tls_key_file: str = _option("tlsKeyFile", "")
    # Ours: addresses and networks of balancers, whose connections begin with a PROXY header (docs/operations.md).
    proxy_protocol_from: str = _option("proxyProtocolFrom", "", check=parse_balancers)
    # Certificates of clients, which stand for users: not asked for, checked if there is one, or needed for TLS; and the
    # PEM file of the authorities that may have signed them.
    tls_client_auth: str = _option("tlsClientAuth", "none", choices=("none", "optional", "required"))
    tls_client_ca_file: str = _option("tlsClientCaFile", "")
    # Ours: lists of certificates that these authorities have revoked.
    tls_client_crl_file: str = _option("tlsClientCrlFile", "")
    # Ours: Apache's tls.properties, which says what the options above leave open.
    tls_config_file: str = _option("tlsConfigFile", "")

    def __post_init__(self) -> None:
        if not self.broker_name:
            object.__setattr__(self, "broker_name", default_broker_name())


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The options of org.apache.rocketmq.store.config.MessageStoreConfig that RocketBox supports."""

    # Upstream: ASYNC_FLUSH. Synchronous here: an acknowledged message survives SIGKILL and a power cut (decision D4).
    flush_disk_type: str = _option("flushDiskType", "SYNC_FLUSH", choices=("SYNC_FLUSH", "ASYNC_FLUSH"))
    mapped_file_size_commit_log: int = _option("mappedFileSizeCommitLog", 1 << 30, minimum=4096)
    mapped_file_size_consume_queue: int = _option("mappedFileSizeConsumeQueue", 6_000_000, minimum=20)
    max_message_size: int = _option("maxMessageSize", 4_194_304, minimum=1, maximum=MAX_MESSAGE_SIZE_LIMIT_BYTES)
    sync_flush_timeout_ms: int = _option("syncFlushTimeout", 5000, minimum=1)
    max_transfer_bytes_on_message_in_memory: int = _option("maxTransferBytesOnMessageInMemory", 262_144, minimum=1)
    max_transfer_count_on_message_in_memory: int = _option("maxTransferCountOnMessageInMemory", 32, minimum=1)
    max_transfer_bytes_on_message_in_disk: int = _option("maxTransferBytesOnMessageInDisk", 65_536, minimum=1)
    max_transfer_count_on_message_in_disk: int = _option("maxTransferCountOnMessageInDisk", 8, minimum=1)
    max_filter_message_size: int = _option("maxFilterMessageSize", 16_000, minimum=1)
    access_message_in_memory_max_ratio: int = _option("accessMessageInMemoryMaxRatio", 40, maximum=100)
    disk_max_used_space_ratio: int = _option("diskMaxUsedSpaceRatio", 75, minimum=1, maximum=100)
    message_index_enable: bool = _option("messageIndexEnable", True)
    # An index file takes 40 + 4 * slots + 20 * entries bytes; Apache maps it whole, so below 2 GiB.
    max_hash_slot_num: int = _option("maxHashSlotNum", 5_000_000, minimum=1, maximum=100_000_000)
    max_index_num: int = _option("maxIndexNum", 20_000_000, minimum=2, maximum=80_000_000)
    max_msgs_num_batch: int = _option("maxMsgsNumBatch", 64, minimum=1)
    message_delay_level: str = _option(
        "messageDelayLevel", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    timer_wheel_enable: bool = _option("timerWheelEnable", True)
    timer_max_delay_sec: int = _option("timerMaxDelaySec", 259_200, maximum=10**9)
    # Size of the file that is written at a clean stop for an Apache broker, which opens only files of its own size.
    mapped_file_size_timer_log: int = _option("mappedFileSizeTimerLog", 100 << 20, minimum=4096, maximum=2**31 - 1)
    # Precision of the times that an Apache broker wrote into this store; RocketBox's own are always exact.
    timer_precision_ms: int = _option("timerPrecisionMs", 1000, minimum=1, maximum=60_000)
    # Hours of the day, local time, in which files older than fileReservedTime are deleted.
    delete_when: str = _option("deleteWhen", "04", check=parse_hours)
    file_reserved_time_hours: int = _option("fileReservedTime", 72, minimum=1)
    clean_resource_interval_ms: int = _option("cleanResourceInterval", 10_000, minimum=100)
    delete_file_batch_max: int = _option("deleteFileBatchMax", 10, minimum=1)
    delete_commit_log_files_interval_ms: int = _option("deleteCommitLogFilesInterval", 100)
    delete_consume_queue_files_interval_ms: int = _option("deleteConsumeQueueFilesInterval", 100)
    redelete_hanged_file_interval_ms: int = _option("redeleteHangedFileInterval", 120_000, minimum=1000)
    # Thresholds of the acts on a disk that fills up, in percent used; `store.retention.clean_rules` has their limits.
    disk_space_clean_forcibly_ratio: int = _option("diskSpaceCleanForciblyRatio", 85, maximum=100)
    disk_space_warning_level_ratio: int = _option("diskSpaceWarningLevelRatio", 90, maximum=100)
    clean_file_forcibly_enable: bool = _option("cleanFileForciblyEnable", True)
    # Replication (docs/replication.md). A slave copies the log of the broker of its name whose brokerId is 0.
    # "" becomes ASYNC_MASTER; SYNC_MASTER with haStore.
    broker_role: str = _option("brokerRole", "", choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))
    # Upstream: a master always listens, on listenPort + 1. Here only if this is a port, or as SYNC_MASTER (then 0 means
    # listenPort + 1): any host that reaches the port may read the whole log.
    ha_listen_port: int = _option("haListenPort", 0, maximum=65_535)
    # Ours: addresses and networks that may follow besides this machine, separated by ';', or "all".
    ha_slave_addresses: str = _option("haSlaveAddresses", "", check=parse_networks)
    # Ours: a file with the secret that the brokers of one name share; needed with accessControl, and kept by its owner.
    ha_secret_file: str = _option("haSecretFile", "")
    # "": the address that the name servers have.
    ha_master_address: str = _option("haMasterAddress", "", check=check_address)
    ha_send_heartbeat_interval_ms: int = _option("haSendHeartbeatInterval", 5000, minimum=10)
    ha_housekeeping_interval_ms: int = _option("haHousekeepingInterval", 20_000, minimum=20)
    ha_transfer_batch_size: int = _option("haTransferBatchSize", 32_768, minimum=1, maximum=1 << 30)
    ha_flow_control_enable: bool = _option("haFlowControlEnable", False)
    max_ha_transfer_bytes_per_s: int = _option("maxHaTransferByteInSecond", 100 << 20, minimum=1)
    # Copies that a sync master waits for, its own included. Upstream: 1, with which a 5.x sync master waits for none.
    # 0 here is 2 for a sync master, else 1.
    in_sync_replicas: int = _option("inSyncReplicas", 0, maximum=17)
    slave_timeout_ms: int = _option("slaveTimeout", 3000, minimum=1)
    # Upstream: beyond it 4.9 answers 11 and stores. Here sends are refused, since the messages could not be consumed.
    ha_slave_fallbehind_max_bytes: int = _option("haSlaveFallbehindMax", 256 << 20, minimum=1)
    # True: an empty slave, RocketBox's or Apache's, gets only the log's last file, as from Apache's masters.
    sync_from_last_file: bool = _option("syncFromLastFile", False)
    # Fail-over between the members of a set (docs/high-availability.md); ours but for two. On when haStore is set.
    ha_store: str = _option("haStore", "", check=check_leader_store, of_sets=True)
    ha_store_prefix: str = _option("haStorePrefix", "/rocketbox", check=parse_prefix, of_sets=True)
    ha_store_user: str = _option("haStoreUser", "", of_sets=True)
    # Files: the password in its first line, the certificates that etcds:// is checked with ("": the system's), and this
    # member's own certificate and key, for an etcd that wants a client's certificate.
    ha_store_password_file: str = _option("haStorePasswordFile", "", of_sets=True)
    ha_store_ca: str = _option("haStoreCa", "", of_sets=True)
    ha_store_certificate: str = _option("haStoreCertificate", "", of_sets=True)
    ha_store_key: str = _option("haStoreKey", "", of_sets=True)
    ha_store_timeout_ms: int = _option("haStoreTimeout", 500, minimum=50, maximum=60_000, of_sets=True)
    # Compact etcd's history every hour, up to an hour ago: every beat adds to it, and would fill 2 GiB in two weeks.
    ha_compact_store: bool = _option("haCompactStore", True, of_sets=True)
    # "" is brokerName.
    ha_set: str = _option("haSet", "", check=parse_set_name, of_sets=True)
    # Silence of a leader after which another one is elected; 0 is 2000 for a sync master, else 5000.
    ha_elect_after_ms: int = _option("haElectAfter", 0, maximum=600_000, of_sets=True)
    ha_beat_interval_ms: int = _option("haBeatInterval", 500, minimum=50, maximum=60_000, of_sets=True)
    # Upstream: 15,000. Below slaveTimeout, so that a member that stands still is removed before sends are answered 12.
    ha_max_time_slave_not_catchup_ms: int = _option("haMaxTimeSlaveNotCatchup", 2000, minimum=100, of_sets=True)
    # A member whose acknowledgements repeatedly take longer is removed from those in sync while minInSyncReplicas are
    # left: if its syncs take 1 s, producers wait 1 s for each message. Disks and networks need far less. 0: never.
    ha_max_ack_delay_ms: int = _option("haMaxAckDelay", 500, maximum=600_000, of_sets=True)
    # With 1 a single copy is enough to continue; with 2 a message on one copy only is never acknowledged.
    min_in_sync_replicas: int = _option("minInSyncReplicas", 1, minimum=1, maximum=16, of_sets=True)
    # With an asynchronous master: how much of the log that is known to be acknowledged its next leader may lack.
    ha_max_lag_on_failover_bytes: int = _option("haMaxLagOnFailover", 1 << 20, of_sets=True)
    # A leader whose disk hangs for this time stops its beats.
    ha_disk_stall_ms: int = _option("haDiskStall", 5000, minimum=100, maximum=600_000, of_sets=True)
    # A program and its arguments, started when this member begins to lead; no shell.
    ha_on_promote: str = _option("haOnPromote", "", check=parse_command, of_sets=True)
    # Time after a planned switch for which the old leader passes on sends that it receives; 0: not at all.
    ha_relay_time_ms: int = _option("haRelayTime", 60_000, maximum=600_000, of_sets=True)
    # Ours: size limit of the files of delivery events (decision D17); 0 records none, and less than 1 MiB means 1 MiB.
    max_delivery_event_bytes: int = _option("maxDeliveryEventBytes", 64 << 20)

    def __post_init__(self) -> None:
        # Upstream: rounded up to whole 20-byte units.
        rounded = -(-self.mapped_file_size_consume_queue // 20) * 20
        object.__setattr__(self, "mapped_file_size_consume_queue", rounded)
        if not self.broker_role:
            object.__setattr__(self, "broker_role", "SYNC_MASTER" if self.ha_store else "ASYNC_MASTER")


@dataclass(frozen=True, slots=True)
class NamesrvConfig:
    """The options of org.apache.rocketmq.common.namesrv.NamesrvConfig that RocketBox supports."""

    # A relative path is taken from the data directory.
    kv_config_path: Path = _option("kvConfigPath", Path("rocketbox/namesrv/kvConfig.json"))
    order_message_enable: bool = _option("orderMessageEnable", False)
    scan_not_active_broker_interval_ms: int = _option("scanNotActiveBrokerInterval", 5000, minimum=1)
    return_order_topic_config_to_broker: bool = _option("returnOrderTopicConfigToBroker", True)
    delete_topic_with_broker_registration: bool = _option("deleteTopicWithBrokerRegistration", False)
    enable_topic_list: bool = _option("enableTopicList", True)
    enable_all_topic_list: bool = _option("enableAllTopicList", True)
    support_acting_master: bool = _option("supportActingMaster", False)
    cluster_test: bool = _option("clusterTest", False, effect=False)
    product_env_name: str = _option("productEnvName", "center", effect=False)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The engine's whole configuration. Directories are made absolute; port 0 takes a free one."""

    data_dir: Path
    store_dir: Path = Path()  # Path() becomes data_dir/store
    bind: str = "127.0.0.1"
    broker_port: int = 10_911
    namesrv_port: int = 9_876
    roles: frozenset[str] = ENGINE_ROLES
    # The address that is advertised to clients; None: `bind`, or the address of the default route if that is 0.0.0.0.
    advertise: str | None = None
    # The broker's port that clients are told, where another program maps it; 0: the one it listens on.
    advertise_port: int = 0
    # Peers that may administer over the broker's and the name server's port: "loopback", "all" or "off" (decision D22).
    wire_admin: str = "loopback"
    # Make a new set of which this member is the first leader; only if there is no set yet.
    ha_bootstrap: bool = False
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    namesrv: NamesrvConfig = field(default_factory=NamesrvConfig)

    def __post_init__(self) -> None:
        data_dir = Path(os.path.abspath(self.data_dir))
        store_dir = data_dir / "store" if self.store_dir == Path() else Path(os.path.abspath(self.store_dir))
        object.__setattr__(self, "data_dir", data_dir)
        object.__setattr__(self, "store_dir", store_dir)
        kv_config_path = data_dir / self.namesrv.kv_config_path
        object.__setattr__(self, "namesrv", replace(self.namesrv, kv_config_path=kv_config_path))

    @property
    def ha_port(self) -> int:
        """The port on which this broker listens for slaves, if it does."""
        return self.store.ha_listen_port or self.broker_port + 1

    @property
    def ha_set(self) -> str:
        """The name of the set of brokers that this one is a member of, with haStore."""
        return self.store.ha_set or self.broker.broker_name

    def check(self) -> None:
        """Raise StartError if settings contradict each other."""
        if "broker" in self.roles:
            self._check_set()
        role = self.store.broker_role
        if self.broker.tls_client_auth != "none" and self.broker.tls_mode == "disabled":
            raise StartError(
                f"tlsClientAuth={self.broker.tls_client_auth} needs TLS: say tlsMode=permissive or enforcing."
            )
        if self.broker.tls_client_crl_file and self.broker.tls_client_auth == "none":
            raise StartError(
                "tlsClientCrlFile needs tlsClientAuth: without it no certificates of clients are looked at."
            )
        listens = role == "SYNC_MASTER" or self.store.ha_listen_port > 0
        if (role == "SLAVE") != (self.broker.broker_id > 0) and (role == "SLAVE" or listens):
            raise StartError(
                f"brokerRole={role} does not go with brokerId={self.broker.broker_id}: a master has 0, a slave more."
            )
        needed_bytes = self.store.max_message_size + RECORD_OVERHEAD_BYTES
        if needed_bytes > self.store.mapped_file_size_commit_log:
            raise StartError(
                f"maxMessageSize={self.store.max_message_size} needs mappedFileSizeCommitLog to be at least "
                f"{needed_bytes}, but it is {self.store.mapped_file_size_commit_log}."
            )

    def _check_set(self) -> None:
        """Raise StartError for settings that contradict fail-over, and for its settings without it."""
        store = self.store
        if not store.ha_store:
            if self.ha_bootstrap:
                raise StartError("--ha-bootstrap makes a set of brokers, and that needs haStore.")
            if store.min_in_sync_replicas > 1:
                raise StartError("minInSyncReplicas above 1 needs haStore: without it inSyncReplicas says how many.")
            return
        if store.broker_role == "SLAVE":
            raise StartError(
                "brokerRole=SLAVE does not go with haStore: which member leads is decided while they run. "
                "Leave it out, or say ASYNC_MASTER."
            )
        if self.broker.broker_id:
            raise StartError(
                f"brokerId={self.broker.broker_id} does not go with haStore: the leader has 0, and others get a "
                "number of their own. Leave it out."
            )
        for name, value in (
            ("haMasterAddress", store.ha_master_address),
            ("inSyncReplicas", store.in_sync_replicas),
        ):
            if value:
                instead = "minInSyncReplicas says how many" if name == "inSyncReplicas" else "the store says where"
                raise StartError(f"{name}={value} does not go with haStore: {instead}. Leave it out.")
        if store.min_in_sync_replicas > 1 and store.broker_role == "ASYNC_MASTER":
            raise StartError("minInSyncReplicas above 1 needs SYNC_MASTER: an asynchronous leader waits for nobody.")
        if bool(store.ha_store_user) != bool(store.ha_store_password_file):
            raise StartError("haStoreUser and haStorePasswordFile go together: one of them is missing.")
        try:
            parse_set_name(self.ha_set)
            address = parse_leader_store(store.ha_store)
        except ValueError as error:
            raise StartError(f"haSet or haStore {error}.") from None
        assert address is not None
        if bool(store.ha_store_certificate) != bool(store.ha_store_key):
            raise StartError("haStoreCertificate and haStoreKey go together: one of them is missing.")
        for name, path in (("haStoreCa", store.ha_store_ca), ("haStoreCertificate", store.ha_store_certificate)):
            if path and not address.tls:
                raise StartError(f"{name} needs etcds:// in haStore: nothing is encrypted without it.")


SECTIONS: dict[str, type] = {"broker": BrokerConfig, "store": StoreConfig, "namesrv": NamesrvConfig}


@functools.cache
def options_of(section: str) -> Mapping[str, Field[Any]]:
    """Return RocketMQ's name -> dataclass field, of section "broker", "store" or "namesrv". A start asks it often."""
    return {f.metadata["upstream"]: f for f in fields(SECTIONS[section])}


def parse_option(option: Field[Any], value: object) -> Any:
    """Return the value of one field, from text or from a TOML type.

    Raises ValueError; its text follows the option's name: "must be ...".
    """
    meta = option.metadata
    if isinstance(option.default, bool):
        return _parse_bool(value)
    if isinstance(option.default, int):
        return parse_int(value, meta["minimum"], meta["maximum"])
    if isinstance(option.default, tuple):
        return parse_addresses(value)
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be text, not {value!r}")
        value = str(value)  # deleteWhen = 4 in a TOML file
    check_characters(value)
    if isinstance(option.default, Path):
        return Path(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"must be text in UTF-8, not {value[:100]!r}") from None
    if meta["choices"] and value not in meta["choices"]:
        raise ValueError(f"must be {' or '.join(meta['choices'])}, not {value!r}")
    checked = None if meta["check"] is None else meta["check"](value)
    return checked if isinstance(checked, (str, Secret)) else value


def _parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError(f"must be true or false, not {value!r}")


def parse_int(value: object, minimum: int, maximum: int) -> int:
    """Return a whole number, from text or from a TOML integer; ValueError as in parse_option."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    if not minimum <= value <= maximum:
        raise ValueError(f"must be between {minimum} and {maximum}, not {value}")
    return value


def parse_addresses(value: object) -> tuple[str, ...]:
    """Return `host:port` texts from one text that separates them by `;` (upstream's) or `,`, or from a list."""
    if isinstance(value, str):
        parts = re.split("[;,]", value)
    elif isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        parts = list(value)
    else:
        raise ValueError(f"must be host:port addresses separated by ';', not {value!r}")
    addresses = []
    for part in parts:
        if part.strip():
            try:
                addresses.append(parse_host_port(part))
            except ValueError:
                raise ValueError(f"must be host:port addresses separated by ';', not {part.strip()[:100]!r}") from None
    return tuple(addresses)


#: Options that have an effect only with `accessControl`.
OF_ACCESS_CONTROL = (
    "accessControl",
    "initAuthenticationUser",
    "accessKeyFile",
    "authGiveSecrets",
    "namesrvAnonymousRoutes",
    "namesrvBrokerAddresses",
    "userSendBytesPerSecond",
    "userPullBytesPerSecond",
    "userRequestsPerSecond",
    "userConnections",
)
#: Options that have an effect only with `tlsMode`.
OF_TLS = (
    "tlsMode",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsClientAuth",
    "tlsClientCaFile",
    "tlsClientCrlFile",
    "tlsConfigFile",
)


def broker_properties(config: EngineConfig) -> dict[str, str]:
    """Return RocketMQ's names of the broker's options -> their values as text; the body of request 26.

    Unsupported options are left out rather than reported with an untrue value. `filterServerNums` is there because the
    tools of 4.9 fail without it; RocketBox has no filter servers.
    """
    properties = {
        **_texts(config.broker),
        **_texts(config.store),
        "listenPort": str(config.broker_port),
        "haListenPort": str(config.ha_port),
        "storePathRootDir": str(config.store_dir),
        "storePathCommitLog": str(config.store_dir / "commitlog"),
        "bindAddress": config.bind,
        "filterServerNums": "0",
        "aclEnable": "false",
        "useTLS": "false",
    }
    if not config.store.in_sync_replicas:
        properties["inSyncReplicas"] = "2" if config.store.broker_role == "SYNC_MASTER" else "1"
    if not config.store.ha_master_address:
        del properties["haMasterAddress"]  # null in Apache's
    if not config.broker.ha_advertise:
        del properties["brokerIP2"]
    if not config.store.ha_store:
        for name, option in options_of("store").items():
            if option.metadata["of_sets"]:
                del properties[name]
    if config.broker.access_control == "off":
        for name in OF_ACCESS_CONTROL:
            del properties[name]
    if config.broker.tls_mode == "disabled":
        for name in OF_TLS:
            del properties[name]
    if not config.broker.proxy_protocol_from:
        del properties["proxyProtocolFrom"]
    if config.advertise is not None:
        properties["brokerIP1"] = config.advertise
    return properties


def namesrv_properties(config: EngineConfig) -> dict[str, str]:
    """Return RocketMQ's names of the name server's options -> their values as text; for the body of request 319."""
    return {
        **_texts(config.namesrv),
        "listenPort": str(config.namesrv_port),
        "bindAddress": config.bind,
    }


def _texts(section: Any) -> dict[str, str]:
    return {f.metadata["upstream"]: _text(getattr(section, f.name)) for f in fields(section)}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ";".join(value)
    return str(value)
