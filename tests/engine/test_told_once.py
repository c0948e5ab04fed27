"""What is tried again each few seconds, as on a full disk, has one line in the log for each reason."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.engine.broker.offsets import ConsumerOffsetManager
from appliance.engine.broker.transactions import check
from appliance.engine.broker.transactions.check import CheckTransactions
from appliance.engine.errors import QueueBroken
from appliance.engine.few_lines import OncePerReason
from appliance.engine.protocol.names import HALF_TOPIC
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.store.queues import queue_repair
from appliance.engine.store.queues.queue_repair import RETRY_S, QueueRepair
from appliance.engine.store.record_reader import Missing
from appliance.engine.store.retention import clean_service
from appliance.engine.store.retention.clean_service import CleanService
from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest

FULL, BROKEN = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error")
#: Reasons of one try after the other; None for one that succeeds.
TRIES = [FULL, FULL, BROKEN, BROKEN, None, BROKEN]
TOLD = [FULL, BROKEN, BROKEN]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().rpartition(": ")[2] for one in caplog.records]


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[StoreUnderTest]:
    found = StoreUnderTest(tmp_path).open()
    yield found
    found.stop()


class Failing:
    """Fails as TRIES says."""

    def __init__(self) -> None:
        self._tries = iter(TRIES)

    def __call__(self, *_: Any) -> None:
        reason = next(self._tries)
        if reason is not None:
            raise reason


def saves(tmp_path: Path) -> Callable[[], None]:
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", 5000, FakeClock())
    offsets.beside = Failing()
    return offsets.persist


def raises_purged_queues(_: Path) -> Callable[[], None]:
    failing = Failing()
    cleaner: Any = SimpleNamespace(
        _purges=deque(),
        _files=SimpleNamespace(has_purged=lambda: True, purged_queues=SimpleNamespace(places={})),
        _trimmer=SimpleNamespace(follow_places=failing),
        _publication=SimpleNamespace(published=0),
        _raising_told=OncePerReason(clean_service.logger.error),
    )

    def look() -> None:
        cleaner._follow_purges = True
        CleanService._look_at_purges(cleaner)

    return look


def rebuilds_queues(_: Path) -> Callable[[], None]:
    failing, clock = Failing(), FakeClock()

    def rebuild() -> Generator[None, None, None]:
        failing()
        yield from ()

    repair: Any = SimpleNamespace(
        _clock=clock,
        _not_before=0.0,
        _job=None,
        _unchecked=False,
        _rebuild=rebuild,
        _told=OncePerReason(queue_repair.logger.error),
    )

    def step() -> None:
        clock.advance(int(RETRY_S * 1000))
        repair._asked = True
        QueueRepair.step(repair)

    return step


@pytest.mark.parametrize("kind", [saves, raises_purged_queues, rebuilds_queues])
def test_each_reason_is_told_once(
    kind: Callable[[Path], Callable[[], None]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries = kind(tmp_path)
    for _ in TRIES:
        tries()
    assert told(caplog) == [str(reason) for reason in TOLD]


def test_halves_in_a_queue_that_cannot_be_read(
    under_test: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> bytes:
        raise QueueBroken("its entries are being written anew")

    clock, store = FakeClock(), under_test.store
    loop = cast(EventLoop, SimpleNamespace(clock=clock))
    decisions: Any = SimpleNamespace(halves=None)
    offsets: Any = SimpleNamespace(get=lambda *_: -1)
    checks = CheckTransactions(store, decisions, cast(Any, None), offsets, loop, cast(Any, None), cast(Any, None))
    under_test.write(HALF_TOPIC, 0, b"x")
    monkeypatch.setattr(store.queues, "read_entries", broken)
    looked = [checks._look(0) for _ in range(100)]
    assert {one.missing for one in looked} == {Missing.UNREADABLE}
    assert 1 <= caplog.text.count("cannot be read") <= 5
    checks._files.close()


def test_open_transactions_that_cannot_be_looked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = [FULL, FULL, BROKEN, BROKEN]

    def find(*_: Any) -> None:
        raise looks.pop(0)

    def wait(_: float) -> None:
        checks.stopped = not looks

    monkeypatch.setattr(check, "Rebuild", lambda *_: SimpleNamespace(find=find))
    checks: Any = SimpleNamespace(
        stopped=False, failure=None, wait=wait, _store=None, _files=None,
        _half_begin=0, _half_end=1, _op_begin=0, _op_end=0,
    )  # fmt: skip
    assert not CheckTransactions._find_open(cast(CheckTransactions, checks))
    assert told(caplog) == [str(FULL), str(BROKEN)]
