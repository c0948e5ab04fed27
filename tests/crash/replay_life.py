"""A life with jobs that replay dead letters, whose thread is played by the driver: each is sent once, whatever crashes.

A message that the journal calls replayed is in the target, whatever the crash took. No two jobs share a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.engine.broker.replay.job import DONE, FAILED, PAUSED, RUNNING, TO_GROUP, JobSpec, Result, Span
from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAY_SEQ
from appliance.engine.broker.replay.service import Refused, ReplayService
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.properties import decode_properties, encode_properties
from tests.crash.broker_life import BrokerLife
from tests.crash.life import Recovered, Violation
from tests.crash.own_appends_life import OwnAppendsLife
from tests.support.clock import FakeClock

GROUP, LETTERS, TARGET = "R", "%DLQ%R", "%RETRY%R"
LETTER_COUNT = 12
#: A power cut may take the group or a topic, if their entries were not durable.
GONE_WITH_A_TABLE = ("replay_group_gone", "replay_letters_gone", "replay_target_gone")
JOBS = Path("/rocketbox/replay")


class ReplayLife(OwnAppendsLife, BrokerLife):
    """A life that stages replayed messages into the tick under way."""

    service: ReplayService

    def begin(self) -> None:
        super().begin()
        tables = self.tables
        self.begin_appends(tables.topics.get)
        self.clock = FakeClock()
        self.service = ReplayService(JOBS, self.store, self.appends, tables.topics, tables.groups, self.clock)
        self.closing.append(self.service.journal.close_all)

    def load(self) -> None:
        self.service.load()

    def _call(self, job: Callable[[], None]) -> None:
        job()

    def _stop(self) -> None:
        for run in self.service._runs.values():
            run.leave()
        super()._stop()

    # --- working

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        others = [(weight / 3, action) for weight, action in super().actions(deletions)]
        return [
            *others,
            (2, self._die),
            (2, self._begin),
            (10, self._step),
            (1, self._command),
            (4, self._end_and_sync),
        ]

    def _end_and_sync(self) -> None:
        self.store.end_tick()
        self._sync()

    def _die(self) -> None:
        """Some messages become dead letters."""
        queue = self.store.find_queue(LETTERS, 0)
        if queue is not None and queue.next_offset >= LETTER_COUNT:
            return
        try:
            for topic in (LETTERS, TARGET):
                self.tables.topics.create_retry_topic(topic, 1, 6)
            self.tables.groups.find(GROUP)
        except RefusedRequest:
            return
        letters = []
        for _ in range(self.chance.choice((1, 3, 6))):
            body = self._body()
            properties = {"UNIQ_KEY": f"{self._count:032X}", "RETRY_TOPIC": "A", "DELAY": "0"}
            letters.append(OwnMessage(LETTERS, 0, body, encode_properties(properties), "", 1, reconsume_times=17))
        self.appends.submit(letters)
        self.store.end_tick()

    def _begin(self) -> None:
        """A job for all dead letters there are."""
        self._end_and_sync()
        low, end = self.store.offset_range(LETTERS, 0)
        if end <= low or self.store.log.durable < self.store.log.written:
            return
        self._count += 1
        name = f"{self.disk.record and len(self.disk.record):06d}-{self._count}-{self.chance.randrange(1 << 30)}"
        rate = self.chance.choice((20, 40, 1000))
        spec = JobSpec(name, GROUP, TO_GROUP, TARGET, (Span(0, low, end),), rate, 1000, "ann", self.clock.wall_ms())
        self._order(lambda told: self.service._begin(spec, told))

    def _order(self, command: Callable[[Callable[[], None]], Any]) -> None:
        try:
            command(lambda: None)
        except Refused:
            pass

    def _step(self) -> None:
        for _ in range(self.chance.choice((1, 2, 4))):
            self.service.work()
            if self.chance.random() < 0.5:
                self.store.end_tick()
            self.clock.advance(self.chance.choice((1, 100, 1500)))

    def _command(self) -> None:
        """Pause, resume or, rarely, cancel a job."""
        for view in self.service.jobs():
            job, state = view.state.spec.id, view.state.state
            if state == PAUSED:
                self._order(lambda told, job=job: self.service._resume(job, "ann", told))
            elif state == RUNNING:
                end = PAUSED if self.chance.random() < 0.8 else "cancelled"
                self._order(lambda told, job=job, end=end: self.service._end(job, (RUNNING,), end, "ann", told))

    # --- judging

    def recovered(self) -> Recovered:
        self.finish_repairs()
        found = super().recovered()
        self._judge_copies()
        return found

    def _judge_copies(self) -> None:
        letters = {record.body for _, _, record in self.records_of(LETTERS).values()}
        stored: Counter[tuple[str, int]] = Counter()
        for _, _, record in self.records_of(TARGET).values():
            properties = decode_properties(record.properties)
            stored[properties[REPLAY_JOB], int(properties[REPLAY_SEQ])] += 1
            if record.body not in letters:
                raise Violation(f"{record.body[:20]!r} is the copy of nothing")
        for place, count in stored.items():
            if count > 1:
                raise Violation(f"{place} is stored {count} times")
        for view in self.service.jobs():
            spec = view.state.spec
            results = self.service.results(spec.id, 0, spec.total)
            if len(results) != view.state.next:
                raise Violation(f"{len(results)} results of {view.state.next}")
            for number, result in enumerate(results):
                if (result == Result.REPLAYED) != ((spec.id, number) in stored):
                    raise Violation(f"{spec.id} {number}: {Result(result).name}, stored {stored[spec.id, number]}")
            if view.state.finished and any(n >= view.state.next for job, n in stored if job == spec.id):
                raise Violation(f"{spec.id} is {view.state.state}, and more is stored than it says")
            gone = view.state.why is not None and view.state.why.code in GONE_WITH_A_TABLE
            if view.state.state == FAILED and not gone:
                raise Violation(f"{spec.id} has failed: {view.state.why}")
            if view.state.state == DONE and view.state.counts[Result.REPLAYED] != spec.total:
                raise Violation(f"{spec.id} is done: {view.state.counts} of {spec.total}")
        if self.service.unread():
            raise Violation(f"journals that cannot be read: {self.service.unread()}")

    def go_on(self) -> None:
        """Finish the runs that were under way at the crash."""
        for _ in range(400):
            if not self.service._runs:
                break
            self.service.work()
            self._end_and_sync()
            self.clock.advance(500)
        else:
            raise Violation(f"a job stands still: {self.service.jobs()}")
        self._judge_copies()
