"""A master and its slaves, each a whole engine of its own, at the name server of the master."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

FILE = 1 << 20
SMALL = {"mapped_file_size_commit_log": FILE, "max_message_size": 65_536}


def start_master(data_dir: Path, port: int, **store: Any) -> RunningEngine:
    return RunningEngine(data_dir, store=SMALL | {"ha_listen_port": port} | store)


def start_slave(data_dir: Path, namesrv: str, number: int = 1, name: str = "broker-a", **store: Any) -> RunningEngine:
    broker = {"broker_name": name, "broker_id": number, "namesrv_addrs": (namesrv,), "slave_read_enable": True}
    return RunningEngine(data_dir, broker=broker, store=SMALL | {"broker_role": "SLAVE"} | store)


def log_of(running: RunningEngine) -> bytes:
    """All bytes of its log, from its first file to its end."""
    log = running.engine.broker.store.log
    return b"".join(
        segment.path.read_bytes()[: max(0, log.written - segment.start)]
        for segment in log.segments
        if segment.start < log.written
    )


def wait_same(master: RunningEngine, slave: RunningEngine, seconds: float = 60) -> None:
    """Wait until the slave has the master's whole log, and shows it."""
    here, there = slave.engine.broker.store, master.engine.broker.store
    wait_for(
        lambda: here.log.written == there.log.written
        # Written bytes are sent before they are shown: without this the slave may not show yet what the master does.
        and there.published == there.log.written
        and here.last_record_offset == there.last_record_offset,
        "the slave to have the whole log", seconds,
    )  # fmt: skip
    assert log_of(slave) == log_of(master)
