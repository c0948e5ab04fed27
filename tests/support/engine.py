"""A whole engine inside the test's process; and the peers that speak to it, so that a test takes both from here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from tests.support.peer import Peer, pull_fields, records, send_fields

__all__ = ["ROOMY", "Peer", "pull_fields", "records", "send_fields", "start_engine"]

#: Whatever the machine's own disk looks like.
ROOMY = {
    "disk_max_used_space_ratio": 95,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_space_warning_level_ratio": 100,
}


def start_engine(data_dir: Path, broker: dict[str, Any] | None = None, store: dict[str, Any] | None = None) -> Engine:
    """Broker and name server on free ports; small log files, async flush unless told otherwise."""
    small = {"mapped_file_size_commit_log": 8 << 20, "max_hash_slot_num": 5000, "max_index_num": 20_000}
    store_options = ROOMY | {"flush_disk_type": "ASYNC_FLUSH"} | small | (store or {})
    engine = Engine(
        EngineConfig(
            data_dir=data_dir,
            broker_port=0,
            namesrv_port=0,
            broker=BrokerConfig(**({"broker_name": "broker-a"} | (broker or {}))),
            store=StoreConfig(**store_options),
        )
    )
    engine.start()
    return engine
