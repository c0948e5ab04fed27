"""`rocketbox store inspect`: describes a store without reading all of it."""

from __future__ import annotations

import time
from typing import Any

from .. import fastjson
from ..plain_text import plain
from ..protocol.record import store_time_ms
from ..store.log.block_checksums import BlockChecksums
from ..store.log.log_scan import LogScan
from ..store.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from .index_check import IndexReader, index_paths
from .offline_store import OfflineStore
from .small_files_check import (
    checkpoint_times,
    config_files,
    is_json,
    known_deletions,
    position_matches,
    recovery_position,
    saved_findings,
    table_in,
)

Json = dict[str, Any]
#: Most bytes of the log that are read to find its end.
TAIL_BYTES = 256 << 20


def inspect(store: OfflineStore) -> Json:
    """Return the description as plain values: times in ms, sizes in bytes, offsets; None for what is not known."""
    holder = store.lock_holder()
    queues = [_queue(store, topic, queue_id) for topic, queue_id in sorted(store.queues())]
    position, durable = recovery_position(store)
    # None: there is no position yet, or it was withdrawn before the queues are rebuilt.
    matches = None if position is None else position_matches(store, position)
    return {
        "store_dir": str(store.paths.root),
        "own_dir": str(store.paths.own) if store.paths.own.is_dir() else None,
        "written_by": _writers(store, matches),
        "left": f"open in process {holder}" if holder else "killed" if store.was_killed else "stopped cleanly",
        "lock_holder": holder,
        "log": _log(store, queues, position.offset if position and matches else 0),
        "topics": _topics(queues),
        "queues": queues,
        "index": [_index(path) for path in index_paths(store)],
        "checkpoint": _checkpoint(store),
        "config": [_config(path) for path in config_files(store)],
        "recovery_position": None
        if durable < 0
        else {"durable": durable, "matches_log": matches, **(position._asdict() if position else {})},
        "deleted_topics": _deleted(store),
        "sealed_files": len(BlockChecksums(store.paths, store.disk).starts()),
        "quarantine": _quarantine(store),
        "findings": [finding._asdict() for finding in saved_findings(store)],
        "odd_files": [f"{name}: {text}" for name, text in [*store.log.odd, *store.odd_queue_files]],
    }


def _writers(store: OfflineStore, position_matches_log: bool | None) -> list[str]:
    """Return the programs that wrote this store, as far as its files show."""
    root = store.paths.root
    hints = []
    if store.paths.recovery_position.exists():
        who = "RocketBox, and later another program" if position_matches_log is False else "RocketBox"
        hints.append(f"{who}: {store.paths.own.name}/recovery-position")
    five = [name for name in ("abort.bak", "timerwheel", "timerlog", "compaction") if (root / name).exists()]
    if five:
        hints.append(f"Apache RocketMQ 5.x: {', '.join(five)}")
    if (root / "abort").exists() and not (root / "abort").stat().st_size:
        hints.append("Apache RocketMQ 4.x: abort is empty")
    if (root / "consumequeue_ext").is_dir():
        hints.append("Apache RocketMQ with enableConsumeQueueExt: consumequeue_ext")
    if (root / "batchconsumequeue").is_dir():
        hints.append("Apache RocketMQ 5.x with batch queues: batchconsumequeue")
    topics = store.paths.config / "topics.json"
    try:
        version = fastjson.loads(topics.read_bytes()).get("dataVersion", {})
        hints.append(f"topics.json as {'5.x' if 'stateVersion' in version else '4.x'} writes it")
    except (OSError, ValueError, AttributeError):
        pass
    return hints


class _Unheard:
    """Ignores damage, which `store verify` reports."""

    def damage(self, begin: int, end: int, reason: str) -> None:
        pass


def _log(store: OfflineStore, queues: list[Json], known: int) -> Json:
    """Return the log's files and range. Its end is searched behind the last record that a queue entry or the recovery
    position points to."""
    log = store.log
    start = max([known, log.min_offset, *(queue["last_physical"] for queue in queues)])
    end, last_ms, whole = start, None, True
    try:
        for end, record in LogScan(store.raw, _Unheard(), None).records(start):
            if record is not None:
                last_ms = record.store_time_ms
            if end - start > TAIL_BYTES:
                whole = False
                break
    except OSError:
        whole = False
    first = store.raw.read(log.min_offset, 76)
    return {
        "files": len(log.segments),
        "file_bytes": log.segment_bytes,
        "first_file": log.segments[0].path.name if log.segments else None,
        "last_file": log.segments[-1].path.name if log.segments else None,
        "min_offset": log.min_offset,
        "max_offset": end if whole else None,
        "first_stored_at_ms": store_time_ms(first) if len(first) == 76 and first[4:8] != bytes(4) else None,
        "last_stored_at_ms": last_ms,
    }


def _queue(store: OfflineStore, topic: str, queue_id: int) -> Json:
    """Return a queue's offsets, from its files: entries ascend, and zeros follow the last one."""
    files, per_file = store.files, store.files.entries_per_file
    numbers = store.queue_numbers(topic, queue_id)
    low = numbers[0] * per_file if numbers else 0

    def entry(offset: int) -> tuple[int, int]:
        data = files.read(topic, queue_id, offset, 1)
        physical, size, _ = ENTRY.unpack(data) if len(data) == ENTRY_BYTES else (0, 0, 0)
        return physical, size

    def search(first: int, end: int, is_before: Any) -> int:
        while first < end:
            middle = (first + end) // 2
            if is_before(*entry(middle)):
                first = middle + 1
            else:
                end = middle
        return first

    end = low
    for number in reversed(numbers):
        end = search(number * per_file, (number + 1) * per_file, lambda physical, size: size > 0)
        if end > number * per_file:
            break
    begin = store.log.min_offset
    first = search(low, end, lambda physical, size: physical < begin or (physical == 0 and size == HOLE_SIZE))
    last = entry(end - 1) if end > first else (0, 0)
    return {
        "topic": topic,
        "queue_id": queue_id,
        "min_offset": first,
        "max_offset": end,
        "files": len(numbers),
        "last_physical": last[0] if 0 < last[1] < HOLE_SIZE else 0,
    }


def _topics(queues: list[Json]) -> list[Json]:
    found: dict[str, Json] = {}
    for queue in queues:
        row = found.setdefault(queue["topic"], {"topic": queue["topic"], "queues": 0, "messages": 0})
        row["queues"] += 1
        row["messages"] += queue["max_offset"] - queue["min_offset"]
    return list(found.values())


def _index(path: Any) -> Json:
    reader = IndexReader(path)
    reader.close()
    header = reader.header
    return {
        "file": path.name,
        "bytes": reader.size,
        "entries": max(0, header.following - 1),
        "slots": reader.slots or None,
        "capacity": reader.capacity if reader.slots else None,
        "begin_ms": header.begin_ms,
        "end_ms": header.end_ms,
        "begin_offset": header.begin_offset,
        "end_offset": header.end_offset,
        "problem": reader.problem,
    }


def _checkpoint(store: OfflineStore) -> Json | None:
    times = checkpoint_times(store)
    return dict(zip(("log_ms", "queues_ms", "index_ms"), times, strict=True)) if times else None


def _config(path: Any) -> Json:
    row: Json = {"file": path.name, "bytes": path.stat().st_size, "entries": None, "problem": None}
    if not is_json(path) or not row["bytes"]:
        return row
    try:
        document = table_in(path.read_bytes())
    except ValueError as error:
        row["problem"] = str(error)
        return row
    tables = [value for name, value in document.items() if isinstance(value, dict) and name != "dataVersion"]
    row["entries"] = max((len(table) for table in tables), default=0)
    return row


def _deleted(store: OfflineStore) -> Json | None:
    try:
        return dict(known_deletions(store))
    except ValueError:
        return None


def _quarantine(store: OfflineStore) -> list[Json]:
    try:
        paths = sorted(path for path in store.paths.quarantine.iterdir() if path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [{"file": path.name, "bytes": path.stat().st_size} for path in paths if not path.name.startswith("findings")]


# --- as text


def text_of(found: Json) -> str:
    """Return the description as text for people."""
    log = found["log"]
    lines = [
        f"store        {found['store_dir']}",
        f"own files    {found['own_dir'] or 'none'}",
        f"state        {found['left']}",
        *(f"written by   {hint}" for hint in found["written_by"]),
        f"log          [{log['min_offset']}, {log['max_offset'] if log['max_offset'] is not None else '?'}) in "
        f"{log['files']} files of {log['file_bytes']} bytes",
        f"stored       {_when(log['first_stored_at_ms'])} to {_when(log['last_stored_at_ms'])}",
    ]
    checkpoint = found["checkpoint"]
    if checkpoint:
        times = ", ".join(f"{name.removesuffix('_ms')} {_when(value)}" for name, value in checkpoint.items())
        lines.append(f"checkpoint   {times}")
    position = found["recovery_position"]
    if position:
        state = {True: "matches the log", False: "does not match the log", None: "the queues are not saved yet"}[
            position["matches_log"]
        ]
        lines.append(f"recovery     from {position['durable']}, {state}")
    lines.append(f"sealed       {found['sealed_files']} log files have block checksums")
    for name, below in (found["deleted_topics"] or {}).items():
        lines.append(f"deleted      topic {name}, its records below {below}")
    for row in found["index"]:
        state = (
            row["problem"] or f"{row['entries']} of {(row['capacity'] or 1) - 1} entries, from {_when(row['begin_ms'])}"
        )
        lines.append(f"index        {row['file']}: {state}")
    for row in found["config"]:
        size = "" if row["entries"] is None else f", {row['entries']} entries"
        lines.append(
            f"config       {row['file']}: {row['bytes']} bytes{size}{'; ' + row['problem'] if row['problem'] else ''}"
        )
    for row in found["quarantine"]:
        lines.append(f"quarantine   {row['file']}: {row['bytes']} bytes")
    for finding in found["findings"]:
        lines.append(
            f"finding      {_when(finding['time_ms'])} {finding['kind']} {finding['file']}: {finding['reason']}"
        )
    lines += [f"unexpected   {text}" for text in found["odd_files"]]
    lines.append("topic        queue        min          max   messages")
    for queue in found["queues"]:
        count = queue["max_offset"] - queue["min_offset"]
        place = f"{queue['topic']}/{queue['queue_id']}"
        lines.append(f"  {place:<28} {queue['min_offset']:>9} {queue['max_offset']:>12} {count:>10}")
    return "\n".join(plain(line) for line in lines)


def _when(ms: int | None) -> str:
    if not ms or ms < 0 or ms > 1 << 50:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


def damage_of(found: Json) -> bool:
    """True if a file could not be read."""
    return any(row["problem"] for row in [*found["index"], *found["config"]])
