"""The options of the data source, parsed and checked in one place.

    spark.read.format("rocketbox").option("store", "/data").option("topic", "orders,refunds").load()

Spark accepts names of options in upper and lower case; so does this parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TypeVar

from . import named_offsets
from .named_offsets import EARLIEST, LATEST, NamedOffsets

#: Every option, as documented.
NAMES = (
    "store", "brokers", "accessKey", "secretKey", "useTls", "tlsCaFile", "maxBytesPerSecond", "topic",
    "topicPattern", "failOnMissingTopic", "from", "to", "timesAscend", "startingOffsets", "endingOffsets", "columns",
    "includeSystem", "failOnDataLoss", "maxRowsPerPartition", "maxRowsPerTrigger", "maxBytesPerTrigger", "until",
    "findings",
)  # fmt: skip
_BY_LOWER = {name.lower(): name for name in NAMES}
#: Options that Spark itself adds: `load(DIR)` is the option `path`.
_ALIASES = {"path": "store"}
#: Options of a written stream that Spark itself reads, and gives to the data source, too.
_SPARKS = frozenset(("checkpointlocation",))
_MAX_MS = 253_402_300_799_999  # the end of the year 9999
#: Numbers below this, except 0, are refused as times: they would be in April 1970 or before, but are seconds or a date.
_LEAST_MS = 10_000_000_000
#: Options that only one of the two sources has.
_OF_STORE = ("timesAscend", "until")
_OF_BROKERS = ("accessKey", "secretKey", "useTls", "tlsCaFile", "maxBytesPerSecond")
#: Options that only streams have, and those that a sink or `columns=latest` has.
_OF_STREAMS = ("maxRowsPerTrigger", "maxBytesPerTrigger")
_OF_SINKS = ("brokers", "accessKey", "secretKey", "useTls", "tlsCaFile", "topic")
_OF_LATEST = ("store", *_OF_SINKS, "topicPattern", "failOnMissingTopic", "includeSystem", "columns")
_MAX_ROWS = 1 << 40

T = TypeVar("T")


class OptionError(ValueError):
    """An option is unknown, missing or wrong. `str(error)` is one complete sentence."""


@dataclass(frozen=True)
class Options:
    """Options that were checked by themselves; pickles. Times in ms since 1970; to_ms itself is not included.

    store: a data directory or Apache's storePathRootDir, or None. brokers: host:port of name servers, empty without.
    topics: empty means all that include_system allows and topic_pattern matches. fail_on_missing_topic: a missing one
    of `topics` is an error. latest: one row that has the end of all queues, instead of messages. times_ascend: the
    clock of the store's broker was never set back. until: physical offset at which reading ends; None for the end of
    the log. use_tls, tls_ca_file, max_bytes_per_second: of connections to brokers; the last one for each task.
    findings: directory for the counts of unreadable parts, or None.
    """

    store: str | None = None
    brokers: tuple[str, ...] = ()
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    use_tls: bool = False
    tls_ca_file: str | None = None
    max_bytes_per_second: int | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    fail_on_missing_topic: bool = True
    from_ms: int | None = None
    to_ms: int | None = None
    times_ascend: bool = False
    starting_offsets: NamedOffsets = NamedOffsets()
    ending_offsets: NamedOffsets = NamedOffsets()
    body: bool = False
    latest: bool = False
    include_system: bool = False
    fail_on_data_loss: bool = True
    max_rows_per_partition: int | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    until: int | None = None
    findings: str | None = None

    @property
    def last_place(self) -> int | None:
        """Physical offset at which reading ends, None for the log's end."""
        return self.until if self.until is not None else self.ending_offsets.position


def parse(given: Mapping[str, str]) -> Options:
    """Parse and check the options. Raises OptionError."""
    if "provider" in given:  # Spark would read the table without its options
        raise OptionError(
            "Spark's catalogue does not keep the options of a table of rocketbox. A view has them: "
            "CREATE TEMPORARY VIEW messages USING rocketbox OPTIONS (store '/var/lib/rocketbox')."
        )
    values = _by_name(given)
    store = _directory(values)
    brokers = _words(values.get("brokers", ""))
    if (store is None) == (not brokers):
        raise OptionError(
            "One of the options store (a directory) and brokers (host:port of name servers) must be given, "
            + ("not both." if store else "for example .option('store', '/var/lib/rocketbox').")
        )
    for name in _OF_STORE if brokers else _OF_BROKERS:
        if values.get(name, "false").strip().lower() != "false":
            which = "a store, and brokers have other ones" if brokers else "brokers, and a store is read from its files"
            raise OptionError(f"The option {name} is for {which}.")
    if ("accessKey" in values) != ("secretKey" in values):
        raise OptionError("The options accessKey and secretKey belong together.")
    topics = tuple(dict.fromkeys(_words(values.get("topic", ""))))
    if "topic" in values and not topics:
        raise OptionError("The option topic is empty: leave it out to read all topics.")
    pattern = _pattern(values)
    if topics and pattern is not None:
        raise OptionError("Of the options topic and topicPattern one can be given, not both.")
    from_ms, to_ms = _time("from", values), _time("to", values)
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise OptionError(f"The option from ({values['from']}) is later than the option to ({values['to']}).")
    starting, ending = _offsets("startingOffsets", values), _offsets("endingOffsets", values)
    for name, offsets in (("startingOffsets", starting), ("endingOffsets", ending)):
        for topic in sorted(offsets.topics):
            if topics and topic not in topics:
                raise OptionError(f"The option {name} names the topic {topic}, which the option topic does not.")
        if store and offsets.has_brokers:
            raise OptionError(f'The option {name} of a store names no brokers: {{"orders": {{"0": 12}}}}.')
        if brokers and offsets.position is not None:
            raise OptionError(f"The option {name} is the offset of a stream of files, and brokers have other ones.")
    _check_order(starting, ending)
    if ending.position is not None and "until" in values:
        raise OptionError("Of the options until and endingOffsets one can be given, as both are an end of the log.")
    if "maxBytesPerTrigger" in values and "maxRowsPerTrigger" in values:
        raise OptionError("Of the options maxRowsPerTrigger and maxBytesPerTrigger one can be given, not both.")
    columns = _choice("columns", values, {name: name for name in ("meta", "body", "latest")}, "meta")
    others = [name for name in values if name not in _OF_LATEST]
    if columns == "latest" and others:
        raise OptionError(f"The option {others[0]} does not go with columns=latest, which gives the end of now.")
    return Options(
        store=store,
        brokers=brokers,
        access_key=values.get("accessKey"),
        secret_key=values.get("secretKey"),
        use_tls=_flag("useTls", values, False),
        tls_ca_file=values.get("tlsCaFile") or None,
        max_bytes_per_second=_rows("maxBytesPerSecond", values, "bytes"),
        topics=topics,
        topic_pattern=pattern,
        fail_on_missing_topic=_flag("failOnMissingTopic", values, True),
        from_ms=from_ms,
        to_ms=to_ms,
        times_ascend=_flag("timesAscend", values, False),
        starting_offsets=starting,
        ending_offsets=ending,
        body=columns == "body",
        latest=columns == "latest",
        include_system=_flag("includeSystem", values, False),
        fail_on_data_loss=_flag("failOnDataLoss", values, True),
        max_rows_per_partition=_rows("maxRowsPerPartition", values),
        max_rows_per_trigger=_rows("maxRowsPerTrigger", values),
        max_bytes_per_trigger=_rows("maxBytesPerTrigger", values, "bytes"),
        until=_until(values),
        findings=values.get("findings") or None,
    )


def check_batch(given: Mapping[str, str]) -> None:
    """Raise OptionError for an option that a batch would ignore."""
    for name in _by_name(given):
        if name in _OF_STREAMS:
            raise OptionError(
                f"The option {name} is for streams (readStream), and this is a batch: maxRowsPerPartition bounds what "
                "one task reads."
            )


def check_sink(given: Mapping[str, str]) -> None:
    """Raise OptionError for an option that writing would ignore."""
    for name in _by_name(given):
        if name not in _OF_SINKS and name != "store":  # which has a sentence of its own
            raise OptionError(f"The option {name} is for reading: writing has {', '.join(_OF_SINKS)}.")


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values by the options' names as documented. Raises OptionError for unknown ones."""
    values: dict[str, str] = {}
    for written, value in given.items():
        if written.lower() in _SPARKS:
            continue
        name = _BY_LOWER.get(_ALIASES.get(written.lower(), written).lower())
        if name is None:
            raise OptionError(_unknown(written))
        if name in values and values[name] != str(value):
            raise OptionError(f"The option {name} is given twice: {values[name]!r} and {value!r}.")
        values[name] = str(value)
    return values


def _unknown(written: str) -> str:
    near = get_close_matches(written.lower(), _BY_LOWER, n=1, cutoff=0.5)
    hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"there are {', '.join(NAMES)}."
    return f"The data source rocketbox has no option {written}: {hint}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.replace(";", ",").split(",") if (word := part.strip()))


def _pattern(values: Mapping[str, str]) -> str | None:
    """Return the regular expression that whole names must match, None without one."""
    text = values.get("topicPattern")
    if text is None:
        return None
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise OptionError(f"The option topicPattern is no regular expression: {text!r}, {error}.") from None
    if not text:
        raise OptionError("The option topicPattern is empty: leave it out to read all topics.")
    return text


def _directory(values: Mapping[str, str]) -> str | None:
    """Return the store's path, None without one; users of Spark also write file:///data."""
    text = values.get("store", "")
    scheme, colon, path = text.partition(":")
    if not colon or "/" in scheme or not path.startswith("/"):
        return text or None
    if scheme.lower() == "file":
        return "/" + path.lstrip("/")
    if path.startswith("//"):
        raise OptionError(f"The option store is a directory of this machine's, not {text!r}.")
    return text


def _choice(name: str, values: Mapping[str, str], choices: Mapping[str, T], default: T) -> T:
    if name not in values:
        return default
    found = choices.get(values[name].strip().lower())
    if found is None:
        names = list(choices)
        near = get_close_matches(values[name].lower(), names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise OptionError(f"The option {name} is {', '.join(names[:-1])} or {names[-1]}, not {values[name]!r}.{hint}")
    return found


def _flag(name: str, values: Mapping[str, str], default: bool) -> bool:
    return _choice(name, values, {"true": True, "false": False}, default)


def _rows(name: str, values: Mapping[str, str], what: str = "rows") -> int | None:
    if name not in values:
        return None
    text = values[name].strip()
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) <= _MAX_ROWS):
        raise OptionError(f"The option {name} is a number of {what} from 1 on, not {values[name]!r}.")
    return int(text)


def _time(name: str, values: Mapping[str, str]) -> int | None:
    """Parse a time: ISO 8601, in UTC if it names no zone, or ms since 1970."""
    if name not in values:
        return None
    text = values[name].strip()
    found = -1
    if text.isascii() and text.isdigit():
        found = int(text) if len(text) <= 15 else -1
        if 0 < found < _LEAST_MS:
            seconds = f" If these are seconds, write {found}000." if len(text) == 10 else ""
            raise OptionError(
                f"The option {name} is a time like 2026-01-31T12:00:00Z, or ms since 1970, and {found} ms are "
                f"{datetime.fromtimestamp(found / 1000, UTC):%Y-%m-%d}.{seconds}"
            )
    else:
        try:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            # Whole ms, rounded up: a message of the ms before was stored before that moment.
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            found = -((-(since.days * 86_400 + since.seconds) * 1_000_000 - since.microseconds) // 1000)
        except (ValueError, OverflowError):
            pass
    if not 0 <= found <= _MAX_MS:
        raise OptionError(
            f"The option {name} is a time like 2026-01-31T12:00:00Z, or ms since 1970, not {values[name]!r}."
        )
    return found


def _offsets(name: str, values: Mapping[str, str]) -> NamedOffsets:
    text = values.get(name, "").strip()
    default = "earliest" if name == "startingOffsets" else "latest"
    found = NamedOffsets() if text in ("", default) else named_offsets.parse(text)
    if found is None:
        raise OptionError(
            f'The option {name} is earliest, latest or JSON like {{"orders": {{"0": 12, "1": {LATEST}}}}} '
            f"({EARLIEST} earliest, {LATEST} latest), or the offset of a stream, not {values[name]!r}."
        )
    return found


def _check_order(starting: NamedOffsets, ending: NamedOffsets) -> None:
    """Raise OptionError for an end before its begin: from there, the next batch would read messages again."""
    bounds = [("the log", starting.position, ending.position)]
    for broker, topic, queue_id in sorted({*starting.queues, *ending.queues}):
        where = f"{topic}, queue {queue_id}{f' of {broker}' if broker else ''}"
        bounds.append((where, starting.of(topic, queue_id, broker), ending.of(topic, queue_id, broker)))
    for where, begin, end in bounds:
        if begin is not None and end is not None and 0 <= end < begin:
            raise OptionError(f"The option endingOffsets ends {where} at {end}, and startingOffsets begins at {begin}.")


def check_stream(options: Options) -> None:
    """Raise OptionError for options that streams do not have, or an end that would be another one after a restart."""
    if options.latest:
        raise OptionError("columns=latest is for batches (read): a stream has its offsets in its progress.")
    if options.ending_offsets.has_end_of_now:
        raise OptionError(
            "The option endingOffsets of a stream has numbers from 0 on. To read to what is the latest when the stream "
            "starts, use trigger(availableNow=True)."
        )


def _until(values: Mapping[str, str]) -> int | None:
    """Parse the physical end: a number, or JSON with `log_end`, as snapshots have it."""
    text = values.get("until", "").strip()
    if not text:
        return None
    try:
        found = json.loads(text)
        end = found["log_end"] if isinstance(found, dict) else found
    except (ValueError, KeyError, RecursionError):
        end = None
    if type(end) is not int or not 0 <= end < 1 << 63:
        raise OptionError(f'The option until is a physical offset, or JSON like {{"log_end": 123}}, not {text!r}.')
    return end
