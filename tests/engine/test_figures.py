"""Each figure that is shown moves with its cause: requests 28, 208 and 315, /metrics, and the first page with its twin
in the API.

A figure without a mover, or a reason why it stands still, fails here. So does a mover of a missing figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from appliance.engine.broker.processors.admin_broker import NOT_HERE
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.figures import KEPT
from appliance.engine.hotpath import CHOICE
from tests.support import happenings as happens
from tests.support.engine import ROOMY
from tests.support.figures import SkippingClock, WatchedEngine


@pytest.fixture
def watched(tmp_path, monkeypatch) -> Iterator[WatchedEngine]:
    clock = SkippingClock()
    store = StoreConfig(
        **ROOMY, flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=2 << 20, max_hash_slot_num=8,
        max_index_num=8, max_message_size=1 << 20, mapped_file_size_consume_queue=2000,
    )  # fmt: skip
    config = EngineConfig(
        data_dir=tmp_path, broker_port=0, namesrv_port=0, broker=BrokerConfig(broker_name="broker-a"), store=store
    )
    engine = Engine(config, clock=clock)
    engine.start()
    watched = WatchedEngine(engine, clock, monkeypatch)
    try:
        watched.send(topic="Warm")
        watched.delay()
        watched.send()
        watched.ask(200, {}, b'{"groupName":"CG"}')
        watched.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 0})
        engine.window._running().sampler.sample()
        yield watched
    finally:
        monkeypatch.undo()
        watched.peer.close()
        engine.stop()


class Mover(NamedTuple):
    """An event, and the figures that it moves."""

    happens: Callable[[WatchedEngine], Any]
    moves: str

    @property
    def names(self) -> set[str]:
        return set(self.moves.split())


RUNTIME = [
    Mover(
        happens.a_message,
        "msgPutTotalTodayNow putMessageTimesTotal putMessageSizeTotal putMessageAverageSize commitLogMaxOffset",
    ),
    Mover(happens.a_pull, "msgGetTotalTodayNow"),
    Mover(
        happens.ten_seconds_of_traffic,
        "putTps getFoundTps getMissTps getTotalTps getTransferedTps getTransferredTps",
    ),
    Mover(
        happens.two_mornings,
        "msgPutTotalTodayMorning msgPutTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalYesterdayMorning",
    ),
    Mover(happens.a_write_that_fails, "putMessageFailedTimes"),
    Mover(happens.a_disk_that_is_full, "putMessageFailedTimes"),
    Mover(happens.a_disk_that_fills, "commitLogDiskRatio consumeQueueDiskRatio commitLogDirCapacity"),
    Mover(happens.a_log_file_that_expired, "commitLogMinOffset earliestMessageTimeStamp"),
    Mover(happens.a_sync_that_takes_long, "remainHowManyDataToFlush"),
    Mover(happens.an_index_that_waits, "dispatchBehindBytes"),
    Mover(happens.pulls_that_wait_for_the_disk, "pullThreadPoolQueueSize pullThreadPoolQueueHeadWaitTimeMills"),
    Mover(happens.searches_that_wait, "queryThreadPoolQueueSize queryThreadPoolQueueHeadWaitTimeMills"),
    Mover(happens.smaller_pools, "pullThreadPoolQueueCapacity queryThreadPoolQueueCapacity"),
    Mover(
        happens.a_producer_that_back_pressure_stops, "sendThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills"
    ),
    Mover(happens.a_minute, "runtime"),
    Mover(happens.a_delayed_message, "scheduleMessageOffset_3"),
    Mover(happens.a_delay_that_ends, "scheduleMessageOffset_3"),
    Mover(happens.a_timed_message, "timerCongestNum"),
    Mover(happens.a_second_of_timers, "timerEnqueueTps timerDequeueTps"),
]  # fmt: skip

_NO_TIMER = "there is no timer wheel: how late messages come is timed_messages_late_seconds"
_NO_LITE = "lite pulls wait in one queue with all others"
_NO_ACK = "POP is not served: nobody acknowledges single messages"
_NO_TRANSACTIONS = "transactions are refused"
#: Figure of 28 -> why it never moves. Apache's tools and its exporter read each of them.
#: This broker has no follower: `tests/console/test_replication.py` moves them.
_NO_SLAVES = "no slave follows this broker"
_OF_SLAVES = (
    "replication_bytes_per_second", "replication_in_sync_slaves", "replication_lag_bytes", "replication_lag_seconds",
    "replication_lost_slaves", "replication_slaves",
)  # fmt: skip
#: `tests/console/test_wire_users.py` moves them.
_NO_USERS = "access control is off"
_OF_QUOTAS = (
    "quota_connections_refused_total", "quota_pulls_held_total", "quota_requests_delayed_total",
    "quota_requests_refused_total", "quota_sends_delayed_total", "quota_sends_refused_total", "wire_users_at_quota",
)  # fmt: skip
STAND_STILL = {
    "EndTransactionQueueSize": _NO_TRANSACTIONS,
    "EndTransactionThreadPoolQueueCapacity": _NO_TRANSACTIONS,
    "dispatchMaxBuffer": "entries are made with the append: there is no buffer between log and queues",
    "pageCacheLockTimeMills": "no lock is held while a record is written: one thread writes",
    "remainHowManyDataToCommit": "there is no transient pool: what is written is in the page cache",
    "remainTransientStoreBufferNumbs": "there is no transient pool; Apache says so with this number",
    "sendThreadPoolQueueCapacity": "sends have no queue: who has to wait is not read from",
    "timerReadBehind": _NO_TIMER,
    "timerOffsetBehind": _NO_TIMER,
    "litePullThreadPoolQueueSize": _NO_LITE,
    "litePullThreadPoolQueueCapacity": _NO_LITE,
    "litePullThreadPoolQueueHeadWaitTimeMills": _NO_LITE,
    "ackThreadPoolQueueSize": _NO_ACK,
    "ackThreadPoolQueueCapacity": _NO_ACK,
    "ackThreadPoolQueueHeadWaitTimeMills": _NO_ACK,
}
FIXED = {
    "brokerVersion": "the version that this broker speaks",
    "brokerVersionDesc": "the same as text",
    "brokerActive": "who answers is active",
    "startAcceptSendRequestTimeStamp": "an option, read at the start",
    "bootTimestamp": "the time of the start",
}

METRICS = [
    Mover(happens.a_message, "messages_put_total bytes_put_total commit_log_published_offset"),
    Mover(happens.a_new_topic, "topics consume_queues namesrv_topics"),
    Mover(happens.a_pull, "messages_pulled_total bytes_pulled_total pulls_found_total"),
    Mover(happens.an_empty_pull, "pulls_missed_total"),
    Mover(happens.a_pull_by_expression, "messages_judged_total"),
    Mover(happens.a_log_that_grows, "commit_log_files"),
    Mover(happens.a_log_file_that_expired, "commit_log_min_offset"),
    Mover(happens.files_that_make_room, "commit_log_files_deleted_total queue_files_deleted_total"),
    Mover(happens.a_sync_that_takes_long, "commit_log_unsynced_bytes"),
    Mover(happens.a_disk_that_is_full, "commit_log_writable"),
    Mover(happens.an_index_that_waits, "index_behind_bytes"),
    Mover(happens.many_keys, "index_files"),
    Mover(happens.a_disk_that_fills, "disk_used_ratio"),
    Mover(happens.a_connection, "connections"),
    Mover(happens.a_group, "subscription_groups"),
    Mover(happens.a_parked_pull, "parked_pulls"),
    Mover(happens.another_broker, "namesrv_brokers"),
    Mover(happens.a_delayed_message, "delayed_messages_waiting"),
    Mover(happens.a_delay_that_ends, "delayed_messages_delivered_total delayed_messages_late_seconds"),
    Mover(happens.a_delay_whose_topic_is_gone, "delayed_messages_given_up_total"),
    Mover(happens.a_timed_message, "timed_messages_waiting"),
    Mover(happens.a_time_that_comes, "timed_messages_delivered_total timed_messages_late_seconds"),
    Mover(happens.a_timed_message_that_is_cancelled, "timed_messages_cancelled_total"),
    Mover(happens.a_timed_message_whose_topic_is_gone, "timed_messages_given_up_total"),
    Mover(happens.a_roll, "timed_messages_rolled_total"),
    Mover(happens.a_delivery_that_is_noted, "delivery_events_written_total"),
    Mover(happens.a_delivery_that_the_disk_refuses, "delivery_events_lost_total"),
    Mover(happens.a_dead_letter, "messages_sent_back_total dead_letters_total"),
    Mover(happens.a_half_message, "rocketmq_half_messages half_messages_oldest_seconds"),
    Mover(happens.transactions_that_end, "rocketmq_commit_messages_total rocketmq_rollback_messages_total"),
    Mover(happens.a_producer_that_is_asked, "transaction_checks_total"),
    Mover(happens.a_producer_that_is_not_there, "half_messages_without_producer"),
    Mover(happens.a_transaction_that_nobody_decides, "half_messages_discarded_total"),
    Mover(happens.a_half_message_that_is_lost, "half_messages_lost_total"),
]
PROGRESS = [
    Mover(happens.a_message, "brokerOffset"),
    Mover(happens.a_pull, "pullOffset"),
    Mover(happens.a_commit, "consumerOffset lastTimestamp"),
    Mover(happens.a_second_of_traffic, "consumeTps"),
]
STATISTICS = [
    Mover(happens.a_second_of_traffic, "statsMinute.sum statsMinute.tps"),
    Mover(happens.a_minute_of_silence, "statsMinute.avgpt"),
]
SENT_BACK = [Mover(happens.a_dead_letter, "SNDBCK_PUT_NUMS")]
OVERVIEW = [
    Mover(happens.a_second_of_traffic, "in_rate out_rate in_bytes_rate out_bytes_rate sampled_at_ms"),
    Mover(happens.a_message, "put_total log_bytes behind"),
    Mover(happens.a_pull, "delivered_total"),
    Mover(happens.a_connection, "connections"),
    Mover(happens.clients, "producer_clients consumer_clients"),
    Mover(happens.a_new_topic, "topics"),
    Mover(happens.a_group, "groups"),
    Mover(happens.a_parked_pull, "parked_pulls"),
    Mover(happens.a_log_file_that_expired, "oldest_at_ms"),
    Mover(happens.a_sync_that_takes_long, "unsynced_bytes"),
    Mover(happens.a_disk_that_fills, "disk_used_percent disk_free_bytes"),
    Mover(happens.a_log_that_grows_fast, "disk_full_at_ms"),
    Mover(happens.a_check_that_fails, "checks needs"),
]

TOPIC_ROW = [
    Mover(happens.a_message, "messages bytes"),
    Mover(happens.a_second_of_traffic, "in_rate out_rate"),
    Mover(happens.files_that_make_room, "oldest_at_ms"),
    Mover(happens.another_group, "consumers"),
    Mover(happens.other_settings, "read_queues write_queues perm"),
]
QUEUE_ROW = [
    Mover(happens.a_message, "max_offset messages bytes newest_at_ms"),
    Mover(happens.files_that_make_room, "min_offset oldest_at_ms"),
    Mover(happens.other_settings, "writable"),
]
GROUP_ROW = [
    Mover(happens.a_message, "lag"),
    Mover(happens.clients, "model clients"),
    Mover(happens.another_topic_of_the_group, "topics"),
    Mover(happens.a_second_of_traffic, "out_rate"),
    Mover(happens.members_that_disagree, "conflict"),
    Mover(happens.a_retry, "retries retries_ready"),
    Mover(happens.a_dead_letter, "dead_letters"),
]
SYSTEM = [
    Mover(happens.a_message, "log_bytes"),
    Mover(happens.a_log_that_grows, "log_files"),
    Mover(happens.a_disk_that_fills, "disk_total_bytes disk_free_bytes"),
    Mover(happens.a_connection, "open_files"),
]

_WHY = "a sentence beside a figure: why that is not known"
_SETTING = "a setting"
_SHORT_SPANS = "tools read it, and look at the minute when it is 0: days and hours are not counted"
_NAME = "a name, no figure"
#: Source of figures -> (how to read them, their movers, figures that never move and why).
SOURCES: dict[str, tuple[Callable[[WatchedEngine], dict[str, Any]], list[Mover], dict[str, str]]] = {
    "28": (WatchedEngine.runtime, RUNTIME, STAND_STILL | FIXED),
    "208": (WatchedEngine.progress, PROGRESS, {}),
    "315": (
        WatchedEngine.statistics,
        STATISTICS,
        {f"{span}.{name}": _SHORT_SPANS for span in ("statsDay", "statsHour") for name in ("avgpt", "sum", "tps")},
    ),
    "315 of a group": (WatchedEngine.sent_back, SENT_BACK, {}),
    "metrics": (
        WatchedEngine.metrics,
        METRICS,
        {f'hot_path_info{{twin="{CHOICE.name}"}}': _NAME}
        | dict.fromkeys(_OF_SLAVES, _NO_SLAVES)
        | dict.fromkeys(_OF_QUOTAS, _NO_USERS),
    ),
    "overview": (
        WatchedEngine.overview,
        OVERVIEW,
        {
            "oldest_why": _WHY,
            "disk_full_why": _WHY,
            "uptime_ms": "it moves by itself",
            "broker_name": _NAME,
            "broker_address": _NAME,
            "namesrv_address": _NAME,
        },
    ),
    "topics": (
        WatchedEngine.topic_row,
        TOPIC_ROW,
        dict.fromkeys(("name", "category"), _NAME)
        | dict.fromkeys(("bytes_why", "oldest_why"), _WHY)
        | {"kind": _SETTING, "bytes_estimated": "how bytes was found: of long queues some are looked at"},
    ),
    "queues": (
        WatchedEngine.queue_row,
        QUEUE_ROW,
        dict.fromkeys(("bytes_why", "time_why"), _WHY)
        | {"queue_id": _NAME, "readable": _SETTING, "bytes_estimated": "as that of the topic"},
    ),
    "groups": (
        WatchedEngine.group_row,
        GROUP_ROW,
        dict.fromkeys(("lag_why", "lag_ms_why"), _WHY)
        | {
            "name": _NAME,
            "system": _NAME,
            "movable": _NAME,
            "lag_ms": "an age: it moves by itself",
        },
    ),
    "system": (
        WatchedEngine.system,
        SYSTEM,
        dict.fromkeys(
            "version persona python pid roles bind broker_name cluster_name broker_id broker_address namesrv_address "
            "advertised data_dir store_dir flush hot_path why_pure".split(),
            _NAME,
        )
        | {
            "namesrvs": "a name, and whether it is reached",
            "started_at_ms": "the time of the start",
            "uptime_ms": "it moves by itself",
            "rss_bytes": "the kernel's",
            "threads": "names",
            "open_files_limit": "the kernel's",
        },
    ),
}
CASES = [(source, mover) for source, (_, movers, _) in SOURCES.items() for mover in movers]


@pytest.mark.parametrize(
    ("source", "mover"), CASES, ids=[f"{source}-{mover.happens.__name__}" for source, mover in CASES]
)
def test_a_figure_moves_when_what_it_stands_for_does(watched, source, mover):
    read = SOURCES[source][0]
    before = read(watched)
    with mover.happens(watched):
        after = read(watched)
        assert {name: before[name] for name in mover.names if before[name] == after[name]} == {}


@pytest.mark.parametrize("source", SOURCES)
def test_every_figure_has_a_mover_or_a_reason(watched, source):
    read, movers, still = SOURCES[source]
    moved = set().union(*(mover.names for mover in movers))
    assert set(read(watched)) == moved | set(still)
    assert not moved & set(still)


def test_what_stands_still_is_what_the_broker_has_none_of():
    assert set(STAND_STILL) == set(NOT_HERE)


def test_each_figure_of_the_history_is_measured(watched):
    measured = {one.name for part in watched.engine.window.measurements.take(30) for one in part}
    assert measured == set(KEPT)
