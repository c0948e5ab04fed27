"""ZooKeeper alone: servers that die or stop, sessions, access control, and kazoo's queue."""

from __future__ import annotations

import threading
import time

import pytest
from kazoo.client import KazooClient

from appliance.engine.failover.leader_store import StoreReplaced, StoreUnavailable, SwapConflict
from appliance.engine.failover.stores import open_store, tidy
from appliance.engine.failover.stores.access import Access
from tests.support.directories import shared_directory
from tests.support.tcp_relay import TcpRelay
from tests.support.waiting import ends, wait_for
from tests.support.zookeeper import ZooKeeper

KEY = "/rocketbox/set/state"


@pytest.fixture(scope="module")
def one(request):
    with ZooKeeper(shared_directory(request, "zookeeper")) as zookeeper:
        yield zookeeper


def opened(request, url, **access):
    store = open_store(url, Access(**access))
    request.addfinalizer(store.close)
    return store


def port_in_use(store):
    return store._client._connection._socket.getpeername()[1]


def swap(store, value, expected, key=KEY):
    """Set the key, if need be by several tries; return its revision.

    An earlier try may have done so, and only its answer did not come: a starved server is late.
    """

    def once():
        try:
            return store.swap(key, value, expected)
        except SwapConflict:
            found = store.read(key)
            assert found is not None
            assert found[0] == value
            return found[1]

    return wait_for(once, f"a swap to {value!r}", not_yet=(StoreUnavailable,))


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_the_server_that_is_asked_goes_and_another_answers(tmp_path, request, fault):
    with ZooKeeper(tmp_path / "zookeeper", members=3) as zookeeper:
        store = opened(request, zookeeper.url)
        revision = swap(store, b"one", None)
        port = port_in_use(store)
        member = next(member for member in zookeeper.members if member.port == port)
        getattr(member, fault)()
        gone = time.monotonic()
        found = wait_for(lambda: store.read(KEY), "another answers", not_yet=(StoreUnavailable,))
        print(f"{fault}: back after {time.monotonic() - gone:.2f} s")
        assert found == (b"one", revision)
        assert port_in_use(store) != port
        revision = swap(store, b"two", revision)
        if fault == "pause":
            member.resume()
        else:
            member.start()
        zookeeper.wait_until_ready()
        assert wait_for(lambda: store.read(KEY), "it answers", not_yet=(StoreUnavailable,)) == (b"two", revision)


def test_a_session_that_is_lost_is_replaced(one, request):
    key = "/rocketbox/session/state"
    with TcpRelay(one.members[0].address) as relay:
        store = opened(request, f"zookeeper://{relay.address}", timeout_s=1.0)
        revision = swap(store, b"one", None, key)
        session = store._client.client_id
        relay.refuse = True
        # Its own session beside: when that one would be gone, the other is, too.
        time.sleep(store._client._session_timeout / 1000 * 2)
        relay.refuse = False
        assert wait_for(lambda: store.read(key), "it is back", not_yet=(StoreUnavailable,)) == (b"one", revision)
        assert store._client.client_id != session
        swap(store, b"two", revision, key)


def test_what_cannot_be_asked_is_not_kept_for_later(one, request):
    """Kazoo would queue requests that it cannot send, without a limit."""
    key = "/rocketbox/queue/state"
    with TcpRelay(one.members[0].address) as relay:
        store = opened(request, f"zookeeper://{relay.address}", timeout_s=0.05)
        wait_for(lambda: store.put(key, b"one") or True, "a first put", not_yet=(StoreUnavailable,))
        relay.hold = True
        for _ in range(40):
            with pytest.raises(StoreUnavailable):
                store.read(key)
        assert len(store._client._queue) + len(store._client._pending) <= 3


def test_a_swap_whose_connection_breaks_is_unknown_and_its_repeat_definite(one, request):
    key = "/rocketbox/breaks/state"
    with TcpRelay(one.members[0].address) as relay:
        store = opened(request, f"zookeeper://{relay.address}", timeout_s=5.0)
        revision = swap(store, b"one", None, key)
        relay.swallow_after = (b"nonce",)
        cuts = threading.Thread(target=lambda: relay.swallowed.wait(60) and relay.cut())
        cuts.start()
        with pytest.raises(StoreUnavailable):
            store.swap(key, b"nonce", revision)
        cuts.join()
        relay.swallow_after = ()
        with pytest.raises(SwapConflict) as caught:
            wait_for(lambda: store.swap(key, b"nonce", revision), "an answer", not_yet=(StoreUnavailable,))
        assert caught.value.value == b"nonce"


def test_the_name_of_the_cluster_is_missed(one, request):
    store = opened(request, one.url)
    store.put(KEY, b"one")
    name = store.identity()
    with_tools = KazooClient(one.members[0].address)
    with_tools.start()
    try:
        with_tools.set("/rocketbox/cluster", b"another")
        known = opened(request, one.url, cluster=name)
        with pytest.raises(StoreReplaced):
            known.read(KEY)
        assert known.identity() == "another"
        with_tools.delete("/rocketbox/cluster")
        with pytest.raises(StoreReplaced):
            known.identity()
        with pytest.raises(StoreReplaced):
            known.swap(KEY, b"two", None)
    finally:
        with_tools.create("/rocketbox/cluster", name.encode())
        with_tools.stop()
        with_tools.close()


def test_nodes_of_a_user_are_for_that_user(one, request):
    above = "/private"
    access = {"user": "box", "password": "secret", "prefix": above, "timeout_s": 20.0}
    store = opened(request, one.url, **access)
    revision = swap(store, b"one", None, f"{above}/set/state")
    assert store.read(f"{above}/set/state") == (b"one", revision)
    for other in ({**access, "password": "wrong"}, {**access, "user": ""}):
        stranger = opened(request, one.url, **other)
        with pytest.raises(StoreUnavailable, match="NoAuth"):
            stranger.read(f"{above}/set/state")
        with pytest.raises(StoreUnavailable, match="NoAuth"):
            stranger.put(f"{above}/set/state", b"two")
    assert store.read(f"{above}/set/state") == (b"one", revision)


def test_it_needs_no_tidying_and_ends_in_time(one, request):
    before = set(threading.enumerate())
    store = opened(request, one.url)
    wait_for(lambda: store.read(KEY), "it answers", not_yet=(StoreUnavailable,))
    tidy(store, True)
    one.members[0].pause()
    try:
        ends(store.close, "it waits for a server that stands still")
    finally:
        one.members[0].resume()
    wait_for(lambda: not set(threading.enumerate()) - before, "kazoo's threads end")
