"""Behaviour that all back ends share: real servers behind a relay, and the store in memory that other tests use."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from appliance.engine.failover.leader_store import (
    LeaderStore,
    Revision,
    StoreReplaced,
    StoreUnavailable,
    SwapConflict,
)
from tests.engine.failover.stores.beds import Bed, EtcdBed, MemoryBed, ZooKeeperBed
from tests.support.directories import shared_directory
from tests.support.waiting import ends, wait_for

RACERS = 32
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["memory", "etcd", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Iterator[Bed]:
    if request.param == "memory":
        bed: Bed = MemoryBed()
    elif request.param == "etcd":
        bed = EtcdBed(shared_directory(request, "etcd"))
    else:
        bed = ZooKeeperBed(shared_directory(request, "zookeeper"))
    yield bed
    bed.close()


@pytest.fixture
def bed(server: Bed) -> Iterator[Bed]:
    yield server
    server.heal()


@pytest.fixture
def opened(bed: Bed) -> Iterator[Callable[..., LeaderStore]]:
    """Open stores that are closed after the test."""
    stores = []

    def open_one(**options: object) -> LeaderStore:
        stores.append(bed.open(**options))
        return stores[-1]

    yield open_one
    bed.heal()
    for one in stores:
        one.close()


@pytest.fixture
def store(opened: Callable[..., LeaderStore]) -> LeaderStore:
    return opened()


@pytest.fixture
def key() -> str:
    return f"/rocketbox/set-{next(_numbers)}/state"


def conflict(store: LeaderStore, key: str, value: bytes, expected: Revision | None) -> tuple[bytes | None, Revision]:
    with pytest.raises(SwapConflict) as caught:
        store.swap(key, value, expected)
    return caught.value.value, caught.value.revision


def took(act: Callable[[], object]) -> float:
    start = time.monotonic()
    act()
    return time.monotonic() - start


def fails(act: Callable[[], object]) -> None:
    with pytest.raises(StoreUnavailable):
        ends(act, "it waits for an answer")


# --- compare and swap


def test_a_key_is_made_read_and_replaced(store, key):
    value, _ = store.read(key)
    assert value is None
    first = store.swap(key, b"one", None)
    assert store.read(key) == (b"one", first)
    second = store.swap(key, b"two", first)
    assert second != first
    assert store.read(key) == (b"two", second)


def test_of_many_that_make_a_key_one_wins(opened, key):
    stores = [opened(timeout_s=20.0) for _ in range(RACERS)]
    start = threading.Barrier(RACERS)
    won: dict[int, Revision] = {}
    lost: dict[int, SwapConflict] = {}
    broke: list[Exception] = []

    def race(at: int) -> None:
        try:
            stores[at].read(key)  # connected
            start.wait(60)
            won[at] = stores[at].swap(key, b"%d" % at, None)
        except SwapConflict as error:
            lost[at] = error
        except Exception as error:
            broke.append(error)
            start.abort()

    threads = [threading.Thread(target=race, args=(at,)) for at in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broke
    ((winner, revision),) = won.items()
    assert len(lost) == RACERS - 1
    assert {(error.value, error.revision) for error in lost.values()} == {(b"%d" % winner, revision)}
    assert stores[0].read(key) == (b"%d" % winner, revision)


def test_no_swap_of_several_writers_is_lost(opened, key):
    opened().swap(key, b"0", None)

    def count(store: LeaderStore) -> None:
        done, end = 0, time.monotonic() + 60
        value, revision = store.read(key)
        while done < 25 and time.monotonic() < end:
            try:
                revision = store.swap(key, b"%d" % (int(value) + 1), revision)
                value, done = b"%d" % (int(value) + 1), done + 1
            except SwapConflict as error:
                value, revision = error.value, error.revision

    threads = [threading.Thread(target=count, args=(opened(timeout_s=20.0),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened().read(key)[0] == b"100"


def test_a_stale_revision_conflicts_and_says_what_is_there(store, key):
    first = store.swap(key, b"one", None)
    second = store.swap(key, b"two", first)
    assert conflict(store, key, b"three", first) == (b"two", second)
    assert conflict(store, key, b"three", None) == (b"two", second)
    assert store.read(key) == (b"two", second)


def test_the_same_value_again_is_another_revision(store, key):
    first = store.swap(key, b"same", None)
    second = store.swap(key, b"same", first)
    assert second != first
    assert conflict(store, key, b"same", first) == (b"same", second)


def test_a_key_that_is_gone_conflicts(bed, store, key):
    revision = store.swap(key, b"one", None)
    bed.delete(key)
    value, absent = conflict(store, key, b"two", revision)
    assert value is None
    assert store.read(key) == (None, absent)
    store.swap(key, b"two", absent)


def test_a_key_that_was_made_again_is_not_the_one_before(bed, store, key):
    """Not even if its versions count from the start again."""
    revision = store.swap(key, b"one", None)
    bed.delete(key)
    again = store.swap(key, b"other", None)
    assert conflict(store, key, b"two", revision) == (b"other", again)


# --- answers that do not come


def test_a_swap_whose_answer_is_lost_meets_itself_when_repeated(bed, opened, key):
    beside, store = opened(), opened(timeout_s=0.4)
    revision = beside.swap(key, b"before", None)
    assert len(b"nonce-of-mine--") % 3 == 0
    bed.lose_reply_of(b"nonce-of-mine--")
    fails(lambda: store.swap(key, b"nonce-of-mine--", revision))
    wait_for(lambda: beside.read(key)[0] == b"nonce-of-mine--", "it was done")
    bed.heal()

    def repeated() -> tuple[bytes | None, Revision] | None:
        try:
            store.swap(key, b"nonce-of-mine--", revision)
        except SwapConflict as error:
            return error.value, error.revision
        return None

    assert wait_for(repeated, "the repeat is answered", not_yet=(StoreUnavailable,)) == beside.read(key)
    assert beside.read(key)[0] == b"nonce-of-mine--"


def test_a_store_that_is_down_says_so_and_comes_back(bed, store, key):
    revision = store.swap(key, b"one", None)
    bed.set_down(True)
    fails(lambda: store.read(key))
    fails(lambda: store.swap(key, b"two", revision))
    fails(lambda: store.put(key, b"two"))
    fails(lambda: store.list(key.removesuffix("state")))
    fails(store.identity)
    assert took(lambda: store.wait(key, revision, 0.3)) > 0.2
    bed.set_down(False)
    assert wait_for(lambda: store.read(key), "it is back", not_yet=(StoreUnavailable,)) == (b"one", revision)
    store.swap(key, b"two", revision)


def test_nothing_that_was_asked_while_it_was_down_is_done_later(bed, store, opened, key):
    revision = store.swap(key, b"one", None)
    bed.set_down(True)
    short = opened(timeout_s=0.1)
    for _ in range(5):
        fails(lambda: short.swap(key, b"two", revision))
        fails(lambda: short.put(key, b"two"))
    bed.set_down(False)
    assert wait_for(lambda: short.read(key), "it is back", not_yet=(StoreUnavailable,)) == (b"one", revision)


def test_a_slow_store_is_waited_for_no_longer_than_the_time_out(bed, opened, key):
    store = opened(timeout_s=0.4)
    revision = wait_for(lambda: store.swap(key, b"one", None), "the first swap", not_yet=(StoreUnavailable,))
    bed.set_slow(1.5)
    for _ in range(2):
        fails(lambda: store.read(key))
        fails(lambda: store.swap(key, b"one", revision))
        fails(lambda: store.list("/rocketbox/"))
    ends(lambda: store.wait(key, revision, 0.2), "it waits for an answer")


def test_a_store_that_is_only_slow_answers(bed, opened, key):
    store = opened(timeout_s=20.0)
    revision = store.swap(key, b"one", None)
    bed.set_slow(0.05)
    assert store.read(key) == (b"one", revision)


# --- which cluster


def test_the_identity_is_the_clusters_and_stays(store, opened):
    assert store.identity()
    assert opened().identity() == store.identity()


def test_another_cluster_is_not_believed_and_not_written_to(store, opened, key):
    revision = store.swap(key, b"one", None)
    stranger = opened(cluster="another")
    for act in (
        lambda: stranger.read(key),
        lambda: stranger.swap(key, b"two", revision),
        lambda: stranger.put(key, b"two"),
        lambda: stranger.list("/rocketbox/"),
    ):
        with pytest.raises(StoreReplaced):
            act()
    assert store.read(key) == (b"one", revision)
    assert opened(cluster=store.identity()).read(key) == (b"one", revision)


def test_a_store_that_lost_everything_is_not_believed(bed, store, opened, key):
    for at in range(5):
        store.put(key, b"%d" % at)
    bed.wipe()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        fails(lambda: store.read(key))
        fails(lambda: store.swap(key, b"mine", None))
    assert opened().read(key)[0] in (None, b"mine")


# --- waiting


def test_waiting_ends_with_a_change(store, opened, key):
    revision = store.swap(key, b"one", None)
    beside = opened()
    beside.read(key)
    changes = threading.Timer(0.3, lambda: beside.swap(key, b"two", revision))
    waits = 0

    def change() -> None:
        nonlocal waits
        while store.read(key)[1] == revision:
            waits += 1
            store.wait(key, revision, 600.0)

    changes.start()
    ends(change, "nobody told it of the change")
    changes.join()
    assert waits < 10


def test_waiting_ends_at_once_when_the_revision_is_another(store, key):
    revision = store.swap(key, b"one", None)
    store.swap(key, b"two", revision)
    ends(lambda: store.wait(key, revision, 600.0), "it waits for another change")


def test_waiting_without_a_change_ends_after_the_time(store, key):
    revision = store.swap(key, b"one", None)
    store.wait(key, revision, 0.05)
    assert took(lambda: store.wait(key, revision, 0.3)) > 0.25


def test_waiting_for_a_key_that_is_not_there(store, opened, key):
    _, absent = store.read(key)
    beside = opened()
    makes = threading.Timer(0.2, lambda: beside.put(key, b"one"))
    makes.start()
    while store.read(key)[0] is None:
        store.wait(key, absent, 5.0)
    makes.join()


# --- values and lists


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", bytes(range(256)), b"\xff\xfe\xc3\x28", b'{"a": "\\u0000"}', os.urandom(64 * 1024), b"x" * 65536],
    ids=["empty", "zero", "all bytes", "no text", "json", "64 KiB at random", "64 KiB alike"],
)
def test_values_come_back_byte_for_byte(store, key, value):
    revision = store.swap(key, value, None)
    assert store.read(key) == (value, revision)
    assert conflict(store, key, b"", None) == (value, revision)
    store.put(key, value + b"!")
    assert store.list(key.removesuffix("state")) == {key: value + b"!"}


def test_a_value_that_is_too_large_harms_nothing(store, key):
    with pytest.raises(StoreUnavailable):
        store.put(key, bytes(8 * 1024 * 1024))
    assert wait_for(lambda: (store.read(key),), "it goes on", not_yet=(StoreUnavailable,))[0][0] is None


def test_the_list_has_what_is_below_and_nothing_beside(store, key):
    above = key.removesuffix("/state")
    for name in ("member/b", "member/a", "members/c", "membe", "member-d/e"):
        store.put(f"{above}/{name}", name.encode())
    store.put(f"{above}/member/b", b"again")
    assert store.list(f"{above}/member/") == {f"{above}/member/a": b"member/a", f"{above}/member/b": b"again"}
    assert store.list(f"{above}/nothing/") == {}


def test_a_put_is_a_change_for_a_swap(store, key):
    revision = store.swap(key, b"one", None)
    store.put(key, b"two")
    assert conflict(store, key, b"three", revision) == store.read(key)


def test_a_store_that_was_closed_is_unavailable(opened, key):
    store = opened()
    store.put(key, b"one")
    store.close()
    store.close()
    fails(lambda: store.read(key))
    fails(lambda: store.swap(key, b"two", None))
    ends(lambda: store.wait(key, Revision("0"), 600.0), "it waits for what it cannot hear")
