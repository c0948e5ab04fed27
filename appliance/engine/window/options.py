"""The configuration in force, and the few options that may be changed while the broker runs.

One object serves the console's page and request 25. An option is hot if the part that uses it takes over a new value. A
change is kept in `rocketbox/options.json`, which overrides the configuration at the next start; a change back to the
configured value removes it there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import Field, replace
from typing import TYPE_CHECKING, Any

from ..config import (
    ENFORCE,
    MAX_MESSAGE_SIZE_LIMIT_BYTES,
    RECORD_OVERHEAD_BYTES,
    REPORT,
    SECTIONS,
    EngineConfig,
    options_of,
    parse_option,
)
from ..digests import sha256
from ..disk import Disk
from ..errors import Conflict, CorruptFile, InvalidInput, NotFound, StartError, Unavailable
from ..json_file import load_json_with_backup, save_json_atomically
from ..own_files import make_directory
from ..protocol.names import TEMPLATE_TOPIC
from .sentences import Sentence, say

if TYPE_CHECKING:
    from ..broker.topics import TopicConfigManager
    from . import snapshots as s
    from .admin_pool import AdminPool
    from .process.system_snapshots import Configuration, Option

logger = logging.getLogger(__name__)

FILE = "options.json"
#: Section and upstream's name of each option that is read at run time; the comment beside it names the readers.
HOT = frozenset(
    (
        ("broker", "autoCreateTopicEnable"),  # TopicConfigManager.create_from_default
        ("broker", "autoCreateSubscriptionGroup"),  # SubscriptionGroupManager.find
        ("broker", "longPollingEnable"),  # PullProcessor._pull
        ("broker", "shortPollingTimeMills"),  # PullProcessor._pull
        ("broker", "notifyConsumerIdsChangedEnable"),  # ClientManager._notify
        ("broker", "litePullMessageEnable"),  # PullProcessor.hot_lite_pull, handle_pull
        ("broker", "enablePropertyFilter"),  # PullAdmission, ClientProcessor.handle_check_config
        ("broker", "filterSupportRetry"),  # PullAdmission.admit
        ("broker", "filterDataCleanTimeSpan"),  # ConsumerFilters.clean
        ("broker", "brokerPermission"),  # PullProcessor._pull, SendProcessor's routes, TableText
        ("broker", "defaultQueryMaxNum"),  # QueryMessageProcessor.handle_query
        ("broker", "flushConsumerOffsetInterval"),  # TableSaver.run
        ("broker", "useServerSideResetOffset"),  # AdminOffsetsProcessor.handle_reset
        ("broker", "registerBrokerTimeoutMills"),  # NameServerLink
        ("broker", "storeReplyMessageEnable"),  # ReplyProcessor.handle_reply
        ("broker", "rejectTransactionMessage"),  # SendPath.no_halves
        ("broker", "transactionTimeOut"),  # CheckTransactions
        ("broker", "transactionCheckInterval"),  # CheckTransactions
        ("broker", "transactionCheckMax"),  # CheckTransactions
        ("broker", "recallMessageEnable"),  # RecallPath
        ("broker", "allowRecallWhenBrokerNotWriteable"),  # RecallPath
        ("broker", "traceOn"),  # SendProcessor.take_options
        # Access.take_options
        ("broker", "accessControl"),  # only where "report" is configured, see ACCESS
        ("broker", "userSendBytesPerSecond"),
        ("broker", "userPullBytesPerSecond"),
        ("broker", "userRequestsPerSecond"),
        ("broker", "userConnections"),
        ("store", "maxMessageSize"),  # SendProcessor.take_options
        ("store", "maxMsgsNumBatch"),  # QueryMessageProcessor.handle_query
        ("store", "syncFlushTimeout"),  # Durability
        # WaitingPlaces.rules; RecallPath reads the first, DeliverTimers and RollTimers the last.
        ("store", "timerMaxDelaySec"),
        ("store", "timerWheelEnable"),
        ("store", "timerPrecisionMs"),
        # MessageReader, by way of StoreSettings.
        ("store", "accessMessageInMemoryMaxRatio"),
        ("store", "maxFilterMessageSize"),
        ("store", "maxTransferBytesOnMessageInDisk"),
        ("store", "maxTransferBytesOnMessageInMemory"),
        ("store", "maxTransferCountOnMessageInDisk"),
        ("store", "maxTransferCountOnMessageInMemory"),
        # CleanService reads these in each round.
        ("store", "cleanFileForciblyEnable"),
        ("store", "cleanResourceInterval"),
        ("store", "deleteCommitLogFilesInterval"),
        ("store", "deleteConsumeQueueFilesInterval"),
        ("store", "deleteFileBatchMax"),
        ("store", "deleteWhen"),
        ("store", "diskMaxUsedSpaceRatio"),
        ("store", "diskSpaceCleanForciblyRatio"),
        ("store", "diskSpaceWarningLevelRatio"),
        ("store", "fileReservedTime"),
        ("store", "redeleteHangedFileInterval"),
        ("store", "maxDeliveryEventBytes"),  # DeliveryRecorder.on, DeliveryService.work
    )
)
#: Without access control no part would enforce it, and what is configured as enforced is not loosened while it runs.
ACCESS = ("broker", "accessControl")
#: Limits of changes while the broker runs, since anyone on the port may make them: narrower than those of the
#: configuration. Option -> (smallest, largest).
RUNNING_LIMITS: dict[tuple[str, str], tuple[int, int]] = {
    # One answer is one frame, whose records are gathered on the I/O thread.
    ("store", "maxTransferBytesOnMessageInMemory"): (1, 8 << 20),
    ("store", "maxTransferBytesOnMessageInDisk"): (1, 8 << 20),
    ("store", "maxTransferCountOnMessageInMemory"): (1, 4096),
    ("store", "maxTransferCountOnMessageInDisk"): (1, 4096),
    # In bytes of 20-byte entries that one filtered pull looks at.
    ("store", "maxFilterMessageSize"): (20, 64_000),
    ("store", "maxMsgsNumBatch"): (1, 10_000),
    ("broker", "defaultQueryMaxNum"): (1, 10_000),
    # The whole file is written each time; a crash loses the offsets committed since.
    ("broker", "flushConsumerOffsetInterval"): (100, 600_000),
    ("broker", "registerBrokerTimeoutMills"): (100, 600_000),
    ("store", "syncFlushTimeout"): (100, 600_000),
    ("store", "maxDeliveryEventBytes"): (0, 16 << 30),
}


class Options:
    """Holds the configuration in force: a frozen object that is swapped whole. Any thread reads; changes are serialised
    by the caller (the pool "admin")."""

    def __init__(self, config: EngineConfig) -> None:
        # Constant after construction.
        self._path = config.data_dir / "rocketbox" / FILE
        self._configured = {key: _text(_value(config, *key)) for key in HOT}
        # The size of the log's files is fixed: a record and the blank one behind it must fit.
        room = config.store.mapped_file_size_commit_log - RECORD_OVERHEAD_BYTES
        self._limits = RUNNING_LIMITS | {("store", "maxMessageSize"): (1, min(room, MAX_MESSAGE_SIZE_LIMIT_BYTES))}
        self._hot = HOT if self._configured[ACCESS] == REPORT else HOT - {ACCESS}
        self._listeners: list[Callable[[EngineConfig], None]] = []
        #: Returns the key of a sentence that refuses this configuration; "" for none. Set before the first change.
        self.refusal_of: Callable[[EngineConfig], str] = lambda config: ""
        # Guarded by _lock for writing; both replaced whole. changed: (section, name) -> value as text.
        self._lock = threading.Lock()
        self._config = config
        self._changed: dict[tuple[str, str], str] = {}

    @property
    def config(self) -> EngineConfig:
        """The configuration in force. The object is frozen: a part that keeps it does not see later changes."""
        return self._config

    def on_change(self, listener: Callable[[EngineConfig], None]) -> None:
        """Have `listener` called with the new configuration after each change, on the thread that makes the change.
        Call this before the first change."""
        self._listeners = [*self._listeners, listener]

    def forget(self, listener: Callable[[EngineConfig], None]) -> None:
        """Remove a listener."""
        self._listeners = [one for one in self._listeners if one != listener]

    def load(self) -> None:
        """Apply the changes of earlier runs to the configuration, before any part is built. Raises StartError."""
        try:
            document = load_json_with_backup(self._path)
        except CorruptFile as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(f"{self._path} cannot be read: {error.strerror}.") from None
        wanted: dict[tuple[str, str], Any] = {}
        for name, text in (document or {}).items():
            section, _, option = name.partition(".")
            if (section, option) not in self._hot:
                logger.warning("options: %s of %s cannot be changed while it runs; left alone", name, self._path)
                continue
            try:
                value = self._parse((section, option), text)
            except ValueError as error:
                logger.warning("options: %s of %s %s", name, self._path, error)
                continue
            wanted[section, option] = value
            logger.info("options: %s=%s, as set while the broker ran", option, _text(value))
        self._config = _with(self._config, wanted)
        self._changed = {key: _text(value) for key, value in wanted.items()}

    def _parse(self, key: tuple[str, str], value: object) -> Any:
        """Parse an option's value; ValueError as in `parse_option`. The configured value is accepted even beyond the
        limits."""
        section, name = key
        found = parse_option(options_of(section)[name], value)
        if key == ACCESS and found not in (REPORT, ENFORCE):
            raise ValueError(f"must be {REPORT} or {ENFORCE}, not {found!r}")
        low, high = self._limits.get(key, (None, None))
        if low is not None and high is not None and not low <= found <= high and _text(found) != self._configured[key]:
            raise ValueError(f"must lie between {low} and {high} while the broker runs, not {found}")
        return found

    # --- reading

    def listing(self) -> Configuration:
        from .process.system_snapshots import Configuration

        config = self._config
        found = []
        for section in SECTIONS:
            for name, option in sorted(options_of(section).items()):
                value = _text(getattr(getattr(config, section), option.name))
                found.append(self._row(section, name, option, value))
        return Configuration(tuple(found), _revision(found))

    def _row(self, section: str, name: str, option: Field[Any], value: str) -> Option:
        from .process.system_snapshots import Option

        meta = option.metadata
        kind = _kind(option)
        number = kind == "int"
        choices = ("true", "false") if kind == "bool" else tuple(meta["choices"])
        if (section, name) == ACCESS and ACCESS in self._hot:
            choices = (REPORT, ENFORCE)
        low, high = self._limits.get((section, name), (meta["minimum"], meta["maximum"]))
        return Option(
            section=section,
            name=name,
            kind=kind,
            value=value,
            default=_text(option.default),
            choices=choices,
            minimum=low if number else None,
            maximum=high if number else None,
            hot=(section, name) in self._hot,
            in_effect=bool(meta["effect"]),
            changed_here=(section, name) in self._changed,
            configured=self._configured.get((section, name), value),
        )

    # --- changing

    def change(self, values: Mapping[str, object], revision: str | None, dry_run: bool, by: str) -> s.Change:
        """See OptionCommands.change."""
        from . import snapshots as s

        before = self.listing()
        if revision is not None and revision != before.revision:
            raise Conflict(say("changed_since"))
        rows = {row.name: row for row in before.options}
        wanted: dict[tuple[str, str], Any] = {}
        kept = dict(self._changed)
        for name, value in values.items():
            row = rows.get(name)
            if row is None:
                raise NotFound("option", name[:100])
            key = (row.section, name)
            if key not in self._hot:
                raise InvalidInput(name, say("access_not_hot" if key == ACCESS else "option_not_hot", name=name))
            try:
                wanted[key] = self._parse(key, row.configured if value is None else value)
            except ValueError as error:
                raise InvalidInput(name, _refusal(row, error)) from None
            kept[key] = _text(wanted[key])
            if value is None or kept[key] == row.configured:
                del kept[key]
        old = {name: rows[name].value for _, name in wanted}
        new = {name: _text(value) for (_, name), value in wanted.items()}
        refused = self.refusal_of(_with(self._config, wanted))
        if refused:
            raise InvalidInput(ACCESS[1], say(refused))
        if not dry_run:
            self._apply(wanted, kept, by)
        return s.Change(
            applied=not dry_run,
            name="configuration",
            differences=tuple(s.Difference(n, old[n], new[n]) for n in sorted(new) if old[n] != new[n]),
            warnings=(),
            blockers=(),
            revision=self.listing().revision,
            registered={},
        )

    def _apply(self, wanted: dict[tuple[str, str], Any], kept: dict[tuple[str, str], str], by: str) -> None:
        try:
            make_directory(self._path.parent)
            document = {f"{section}.{name}": text for (section, name), text in sorted(kept.items())}
            save_json_atomically(self._path, json.dumps(document, indent=1), Disk(self._path.parent))
        except OSError as error:
            raise Unavailable(say("not_saved", reason=error.strerror)) from None
        with self._lock:
            self._config = _with(self._config, wanted)
            self._changed = kept
        for listener in self._listeners:
            listener(self._config)
        for (_, name), value in wanted.items():
            logger.info("options: %s=%s by=%s", name, _text(value), by or "console")


class OptionCommands:
    """Changes of options by users; waits in the caller's thread."""

    def __init__(self, options: Options, topics: TopicConfigManager, pool: AdminPool) -> None:
        # Constant after construction.
        self._options = options
        self._topics = topics
        self._pool = pool

    def change(
        self, values: Mapping[str, object], *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Change hot options (upstream name -> text or value; None: back to the configured value).

        In force and durable when it returns; kept over restarts in RocketBox's own directory, where it overrides the
        configuration file. All or none. NotFound (option), InvalidInput (field: the option; also if it is not hot),
        Conflict (revision).
        """
        from . import snapshots as s

        def job() -> s.Change:
            missing = self._topics.get(TEMPLATE_TOPIC) is None
            change = self._options.change(values, revision, dry_run, by)
            made = missing and s.Difference("autoCreateTopicEnable", "false", "true") in change.differences
            return replace(change, warnings=(say("template_missing"),)) if made else change

        return self._pool.run(job)


def _value(config: EngineConfig, section: str, name: str) -> Any:
    return getattr(getattr(config, section), options_of(section)[name].name)


def _with(config: EngineConfig, wanted: Mapping[tuple[str, str], Any]) -> EngineConfig:
    """Return the configuration with these values."""
    for (section, name), value in wanted.items():
        changed = replace(getattr(config, section), **{options_of(section)[name].name: value})
        config = replace(config, **{section: changed})
    return config


def _refusal(row: Option, error: ValueError) -> Sentence:
    """Return which values the option accepts. error: of `parse_option`, in English only."""
    if row.minimum is not None and row.maximum is not None:
        return say("option_number", name=row.name, low=row.minimum, high=row.maximum)
    if row.choices:
        return say("option_choice", name=row.name, choices=", ".join(row.choices))
    return say("option_refused", name=row.name, reason=str(error))


def _kind(option: Field[Any]) -> str:
    if isinstance(option.default, bool):
        return "bool"
    if isinstance(option.default, int):
        return "int"
    return "list" if isinstance(option.default, tuple) else "text"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ";".join(map(str, value))
    return str(value)


def _revision(rows: list[Option]) -> str:
    text = "\n".join(f"{row.section}.{row.name}={row.value}" for row in rows)
    return sha256(text.encode()).hex()[:16]
