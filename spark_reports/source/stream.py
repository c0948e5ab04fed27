"""Reads a store's files as a stream, while a broker may be writing them.

An offset is a physical offset of the log at which a record begins or will: {"position": 1234}. A batch is the log
between two of them, so that a query that starts again from its checkpoint reads the same bytes: each message once.
`starts` is added when the first batch had to look up the ends of queues. `witness` is a message there or just before,
with its store time: if it is another one later, the log lost its end and was written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from . import findings
from .bare_errors import bare
from .findings import Ledger
from .named_offsets import LATEST
from .options import OptionError, Options, check_stream
from .plan import Plan, WantedPartition, check_end, check_offsets, wanted_of
from .store_view import StoreView
from .wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of the log that are searched first for the messages that one batch may have; doubled each time after.
WINDOW_BYTES = 64 << 20

Offset = dict[str, Any]


@bare("initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset", "partitions", "read")
class FilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One in the driver, for as long as the query runs; and one in each task."""

    def __init__(self, options: Options) -> None:
        """Raises OptionError."""
        check_stream(options)
        self._options = options
        #: True once the queues of endingOffsets were looked for, which a query that goes on may have been given anew.
        self._is_checked = False
        #: With the trigger AvailableNow, the log's end when the query started.
        self._target: int | None = None
        #: Places that are known to be begins of messages, or the log's end.
        self._sound: set[int] = set()

    def initialOffset(self) -> Offset:
        options, view = self._options, self._view()
        try:
            if options.fail_on_missing_topic:
                view.check_topics(options.topics)
            check_offsets(view, options)
            end = self._end(view)
            position = view.begin
            if options.starting_offsets.position is not None:
                position = options.starting_offsets.position
            elif options.starting_offsets.everywhere == LATEST:
                position = end
            elif options.from_ms is not None:
                found = self._plan(view).within_times(position, end, wanted_of(replace(options, to_ms=None), view))
                position = found[0][0] if found else end
            offset: Offset = {"position": position}
            if options.starting_offsets.witness is not None:
                offset["witness"] = list(options.starting_offsets.witness)
            starts: dict[str, dict[str, int]] = {}
            for (topic, queue_id), start in wanted_of(options, view).starts.items():
                starts.setdefault(topic, {})[str(queue_id)] = start
            return {**offset, "starts": starts} if starts else offset
        finally:
            view.close()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch. Raises DataLoss if the log ends before `start` and that part is lost, and
        OptionError for an end of a queue that is not there."""
        view = self._view()
        try:
            if not self._is_checked:
                check_end(view, self._options)
                self._is_checked = True
            position, end = start["position"], view.end
            self._check_places(view, position)
            if end < position:
                if not view.is_open or position > view.files_end or not view.is_written(end):
                    ledger = self._ledger()
                    why = (
                        f"The log of {self._options.store} ends at {end}, and the stream had read it to {position}: "
                        "the log lost its end, as in a power cut, or the checkpoint is of another store"
                    )
                    ledger.add(findings.GAP, end, position, why)
                    self._write(f"plan-back-{end:020d}-{position:020d}", ledger)
                    return _offset(view, start, end)
                end = position  # a broker that has just started: its queues are not written yet
            else:
                ledger = self._ledger()
                self._plan(view, ledger).check_witness(position, start.get("witness"))
                self._write(f"plan-anew-{position:020d}", ledger)
            lasts = [last for last in (self._options.last_place, self._target) if last is not None]
            end = min([end, *lasts])
            end = max(position, min(end, self._end_of_wanted(view, start, end)))
            if isinstance(limit, ReadMaxRows):
                end = self._end_of_rows(view, start, end, limit.max_rows)
            elif isinstance(limit, ReadMaxBytes):
                end = self._end_of_bytes(view, start, end, limit.max_bytes)
            self._sound.add(end)
            return start if end == position else _offset(view, start, end)
        finally:
            view.close()

    def _end_of_wanted(self, view: StoreView, start: Offset, end: int) -> int:
        """Return an offset, `end` at most, behind which there will be no wanted message: so that a stream that has
        reached its end stands still."""
        plan, wanted = self._plan(view), self._wanted(start)
        if wanted.ends:
            end = min(end, plan.end_of_queues(end, wanted))
        if wanted.to_ms is not None:
            end = plan.end_of_times(min(start["position"], end), end, wanted)
        return end

    def _end_of_rows(self, view: StoreView, start: Offset, end: int, most: int) -> int:
        """Return an offset, `end` at most, with at most `most` wanted messages before it, and at least one if there is
        any."""
        plan, wanted = self._plan(view), self._wanted(start)
        low, window, count = start["position"], WINDOW_BYTES, 0
        while low < end:
            high = min(low + window, end)
            places = plan.message_places(low, high, wanted)
            if count + len(places) > most:
                return int(places[most - count])
            count += len(places)
            low, window = high, window * 2
        return end

    def _end_of_bytes(self, view: StoreView, start: Offset, end: int, most: int) -> int:
        """Return an offset, `end` at most, with at most `most` bytes of the log before it, or one wanted message."""
        plan, wanted = self._plan(view), self._wanted(start)
        low, window = start["position"], WINDOW_BYTES
        limit = low + most
        first: int | None = None
        last: int | None = None  # begin of the last message by the limit, behind the first one
        while low < end and end > limit and (last is None or low < limit):
            high = min(low + window, end)
            places = plan.message_places(low, high, wanted)
            if first is None and len(places):
                first, places = int(places[0]), places[1:]
            within = int(np.searchsorted(places, limit, side="right"))
            if within:
                last = int(places[within - 1])
            if within < len(places):
                return int(places[within]) if last is None else last
            low, window = high, window * 2
        return end if last is None else last

    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger
        if size is not None:
            return ReadMaxBytes(size)
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> Offset:
        """Return the log's end, so that a query's progress shows how far it is behind, in bytes."""
        view = self._view()
        try:
            return view.offset_of(self._end(view))
        finally:
            view.close()

    def prepareForTriggerAvailableNow(self) -> None:
        view = self._view()
        try:
            self._target = self._end(view)
        finally:
            view.close()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of a batch. Raises DataLoss."""
        begin, behind = start["position"], end["position"]
        if begin >= behind:
            return []
        wanted = self._wanted(start)
        view = self._view()
        try:
            self._check_places(view, begin, behind)
            ledger = self._ledger()
            plan = self._plan(view, ledger)
            plan.check_witness(begin, start.get("witness"))
            plan.check_witness(behind, end.get("witness"))
            found = plan.between(begin, behind, wanted)
        finally:
            view.close()
        self._write(f"plan-{begin:020d}-{behind:020d}", ledger)
        return [WantedPartition(one, wanted) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from .file_task import FileTask

        if isinstance(partition, WantedPartition):
            task = FileTask(partition.part, partition.wanted, self._options.fail_on_data_loss)
            yield from task.batches(self._options.findings)

    def _check_places(self, view: StoreView, *places: int) -> None:
        """Raise OptionError if one is within a message."""
        for place in places:
            if place not in self._sound and view.is_within_message(place):
                raise OptionError(
                    f"The stream's checkpoint is at {place}, which is now within a message of {self._options.store}: "
                    "the log lost its end, as in a power cut, and was written anew, or the checkpoint is of another "
                    "store. With another checkpointLocation the stream begins anew."
                )
        self._sound = set(places)

    def _view(self) -> StoreView:
        return StoreView(self._options.store or "")

    def _end(self, view: StoreView) -> int:
        """Return the end of the published log (see StoreView), or the last place of the options if that is lower."""
        last = self._options.last_place
        return view.end if last is None else min(view.end, last)

    def _plan(self, view: StoreView, ledger: Ledger | None = None) -> Plan:
        return Plan(view, self._options, ledger or self._ledger())

    def _write(self, name: str, ledger: Ledger) -> None:
        if self._options.findings is not None and ledger.found:
            findings.write(self._options.findings, name, ledger.found, 0, 0)

    def _ledger(self) -> Ledger:
        return Ledger(self._options.fail_on_data_loss)

    def _wanted(self, start: Offset) -> Wanted:
        starts = {
            (topic, int(queue_id)): offset
            for topic, queues in start.get("starts", {}).items()
            for queue_id, offset in queues.items()
        }
        return replace(wanted_of(self._options), starts=starts)


def _offset(view: StoreView, start: Offset, position: int) -> Offset:
    """Return the offset of a place. start: an offset before it."""
    return {name: value for name, value in start.items() if name != "witness"} | view.offset_of(position)
