"""Checks the store: who has it open, how it was stopped, what was damaged or set aside, whether the configuration
fits."""

from __future__ import annotations

import time
from pathlib import Path

from ..engine import fastjson
from ..engine.config import EngineConfig
from ..engine.errors import StartError
from ..engine.store.findings import Finding
from ..engine.store_tools.offline_store import OfflineStore
from ..engine.store_tools.problems import DAMAGE, Problems
from ..engine.store_tools.small_files_check import SmallFilesCheck, checkpoint_times, saved_findings, table_in
from ..engine.window.health import limits
from .diagnosis import Diagnosis, size_text

#: Recent findings are listed one by one, up to so many.
_TOLD = 10
_WORDS = {
    "torn": "A torn tail of the log was cut off",
    "damage": "A damaged range of the log is skipped",
    "queues": "All queues were rebuilt",
    "queue": "A queue was rebuilt",
    "file": "A file was set aside",
    "blocks": "Bytes of a closed log file changed",
}


def open_store(found: Diagnosis, config: EngineConfig) -> OfflineStore | None:
    """The store, or None when there is none yet or it cannot be read."""
    if not (config.store_dir / "commitlog").is_dir():
        found.ok("store", f"There is no store in {config.store_dir} yet.")
        return None
    try:
        return OfflineStore(config.store_dir, config.data_dir / "rocketbox")
    except (StartError, OSError) as error:
        found.fail("store", f"The store cannot be read: {error}", "check the disk and who owns these files")
        return None


def look_at_store(found: Diagnosis, store: OfflineStore, config: EngineConfig) -> None:
    holder = store.lock_holder()
    if holder is not None:
        found.ok("lock", f"Process {holder} has the store open.")
    elif store.was_killed:
        text = "The broker did not stop cleanly: there is an abort file, and no process has the store open."
        found.warn("lock", text, "start the broker, it recovers by itself")
    else:
        found.ok("lock", "The broker stopped cleanly, and no process has the store open.")
    _sizes(found, store, config)
    _names(found, store)
    _small_files(found, store, unfinished=holder is not None or store.was_killed)
    _topics(found, store)
    _times(found, store)
    _findings(found, saved_findings(store))
    _set_aside(found, store)


def _sizes(found: Diagnosis, store: OfflineStore, config: EngineConfig) -> None:
    wanted = (
        ("mappedFileSizeCommitLog", store.log.segment_bytes, config.store.mapped_file_size_commit_log),
        ("mappedFileSizeConsumeQueue", store.queue_file_bytes, config.store.mapped_file_size_consume_queue),
    )
    for name, size, configured in wanted:
        has_files = (
            bool(store.log.segments) if "Log" in name else any(store.queue_numbers(*queue) for queue in store.queues())
        )
        if has_files and size != configured:
            text = f"The store was made with {name}={size}, but the configuration says {configured}."
            found.fail("sizes", text, f"set {name} to {size}")
            return
    found.ok("sizes", f"Log files: {len(store.log.segments)} of {size_text(store.log.segment_bytes)}.")


def _names(found: Diagnosis, store: OfflineStore) -> None:
    odd = [*store.log.odd, *store.odd_queue_files]
    for name, text in odd[:_TOLD]:
        if text.startswith(("does not follow", "has ", "does not start")):
            found.fail("files", f"{name} {text}.", "restore the missing or whole file from a copy")
        else:
            found.warn("files", f"{name} {text}.", "it is not touched; move it away if nobody needs it")
    if len(odd) > _TOLD:
        found.warn("files", f"{len(odd) - _TOLD} more files are unexpected.", "rocketbox store inspect lists them")


def _small_files(found: Diagnosis, store: OfflineStore, unfinished: bool) -> None:
    problems = Problems()
    check = SmallFilesCheck(store, problems, unfinished)
    check.run()
    for problem in problems.kept[:_TOLD]:
        text = f"{problem.file}: {problem.text}."
        if problem.level != DAMAGE:
            found.warn(problem.kind, text, "nothing to do: the next start repairs it")
        elif problem.kind == "config" and _has_good_copy(store.paths.root / problem.file):
            found.warn(problem.kind, text, "nothing to do: the copy beside it is good, and the next start uses it")
        elif problem.kind == "format":
            found.fail(problem.kind, f"{problem.text}.", "start the newer version again, or restore a good copy")
        elif problem.kind == "config":
            found.fail(problem.kind, text, "restore a good copy, or move it away to start with an empty table")
        else:
            found.warn(problem.kind, text, "run rocketbox store verify to check everything")
    if not problems.kept:
        found.ok("files", "Checkpoint, recovery position, configuration and journal are readable.")


def _has_good_copy(path: Path) -> bool:
    """Whether the other one of X and X.bak can be read."""
    name = path.name
    other = path.with_name(name.removesuffix(".bak") if name.endswith(".bak") else f"{name}.bak")
    try:
        raw = other.read_bytes()
        table_in(raw)
    except (OSError, ValueError):
        return False
    return bool(raw.strip())


def _topics(found: Diagnosis, store: OfflineStore) -> None:
    """Warns of topics of Apache 5.x that are not served here."""
    try:
        table = fastjson.loads((store.paths.config / "topics.json").read_bytes())["topicConfigTable"]
        batch = [name for name, topic in table.items() if topic.get("attributes", {}).get("queue.type") == "BatchCQ"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if batch:
        text = f"Topics with queue.type=BatchCQ are not served here: {', '.join(sorted(batch)[:_TOLD])}."
        found.warn("topics", text, "read them with Apache RocketMQ 5.x; their messages are kept in the log as they are")


def _times(found: Diagnosis, store: OfflineStore) -> None:
    times = checkpoint_times(store)
    newest = max(times[:2]) if times else 0
    behind = newest - int(time.time() * 1000)
    if behind > limits.CLOCK_BEHIND_MS:
        text = f"The clock is {behind // 1000} s behind the store time of the newest message."
        found.warn("clock", text, "set the clock: until it has caught up, all new messages get that store time")


def _findings(found: Diagnosis, findings: list[Finding]) -> None:
    recent = [one for one in findings if one.time_ms > (time.time() - limits.FINDINGS_S) * 1000]
    for finding in recent[-_TOLD:]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(finding.time_ms / 1000))
        place = finding.file if finding.begin < 0 else f"{finding.file} [{finding.begin}, {finding.end})"
        text = f"{when}: {_WORDS.get(finding.kind, finding.kind)}: {place}. {finding.reason}"
        if finding.kind in ("damage", "blocks"):
            advice = "messages there may be lost or altered: check the disk; rocketbox store verify says which"
            found.fail("findings", text, advice)
        else:
            found.warn("findings", text, f"the bytes are kept in {finding.copy}" if finding.copy else "")
    older = len(findings) - len(recent[-_TOLD:])
    if older:
        found.warn("findings", f"{older} more were found earlier.", "rocketbox store inspect lists them")
    elif not findings:
        found.ok("findings", "Nothing was ever cut off, quarantined or set aside.")


def _set_aside(found: Diagnosis, store: OfflineStore) -> None:
    paths: list[Path] = []
    for directory in (store.paths.quarantine, store.paths.config):
        if directory.is_dir():
            for path in sorted(directory.iterdir()):
                is_copy = directory == store.paths.quarantine and not path.name.startswith("findings")
                if path.is_file() and (is_copy or path.name.endswith(".damaged")):
                    paths.append(path)
    if paths:
        total = sum(path.stat().st_size for path in paths)
        text = f"{len(paths)} files with {size_text(total)} were set aside, the last one is {paths[-1]}."
        found.warn("quarantine", text, "look at them, then move or delete them; RocketBox does not need them")
