"""The layout of a set of two: a leader dies, comes back, is switched, is cut; no acknowledged message is lost."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.peer import send_fields
from tests.support.server import ROOT
from tests.support.set_of_two import SEND, TOPIC, SetOfTwo
from tests.support.standstill import stop_process
from tests.support.waiting import wait_for

ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "Vogel-Nest-42-Kran"}


@pytest.fixture
def brokers(request, tmp_path) -> Iterator[SetOfTwo]:
    with SetOfTwo(tmp_path, **getattr(request, "param", {})) as running:
        yield running


def test_a_killed_leader_is_followed_by_the_other_and_follows_it_later(brokers):
    assert brokers.send(1, 50) == [0] * 50
    assert set(brokers.send(2, 3)) == {14}
    brokers.brokers[1].kill()
    assert brokers.wait_for_sends((2,)) == 2
    assert brokers.state().epoch == 2
    brokers.wait_route(3, 2)
    assert brokers.send(2, 50) == [0] * 50
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))
    brokers.hang_up(1)
    brokers.brokers[1].launch()
    brokers.brokers[1].wait_until_ready()
    brokers.wait_in_sync()
    assert brokers.leader() == 2
    assert brokers.send(2, 10) == [0] * 10
    wanted = brokers.bodies_at(2)
    wait_for(lambda: brokers.bodies_at(1) == wanted, "the old leader to serve the same")
    # And back: the present leader dies.
    brokers.hang_up(1)
    brokers.brokers[2].kill()
    assert brokers.wait_for_sends((1,)) == 1
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(1))


@pytest.mark.nightly
def test_a_leader_that_is_stopped_hands_over(brokers):
    assert brokers.send(1, 20) == [0] * 20
    brokers.brokers[1].stop()
    assert brokers.wait_for_sends((2,)) == 2
    assert brokers.state().elections[-1].why == "the leader resigned"
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))


#: ALONE of these exceed the socket buffers between two members, so that some bytes never leave the first.
BIG = b"x" * (1 << 20)
ALONE = 24
PATIENT = {"ROCKETBOX_STORE_HA_MAX_TIME_SLAVE_NOT_CATCHUP": "60000"}


@pytest.mark.parametrize("brokers", [PATIENT], indirect=True)
def test_what_was_not_acknowledged_is_cut_and_kept_in_quarantine(brokers):
    assert brokers.send(1, 20) == [0] * 20
    # The follower is stopped: messages sent now are on the leader's disk alone, and none is acknowledged with 0.
    stop_process(int(brokers.brokers[2].ready["pid"]))
    try:
        for n in range(ALONE):
            brokers.peer(1).send(SEND, send_fields(TOPIC, 0, ""), b"alone %d " % n + BIG)
        log = brokers.brokers[1].data_dir / "rocketbox/store/commitlog"
        last = b"alone %d " % (ALONE - 1)
        wait_for(lambda: any(last in path.read_bytes() for path in log.iterdir()), "the leader to have it", every=0.1)
        brokers.brokers[1].kill()
    finally:
        brokers.brokers[2].signal(signal.SIGCONT)
    brokers.hang_up(1)
    assert brokers.wait_for_sends((2,)) == 2
    brokers.brokers[1].launch()
    brokers.brokers[1].wait_until_ready()
    brokers.wait_in_sync()
    assert brokers.send(2, 5) == [0] * 5
    wanted = brokers.bodies_at(2)
    wait_for(lambda: brokers.bodies_at(1) == wanted, "both to serve the same")
    assert not any(body.startswith(last) for body in wanted)
    assert set(brokers.acknowledged) <= set(wanted)
    kept = list((brokers.brokers[1].data_dir / "rocketbox/rocketbox/quarantine").glob("diverged-*.log"))
    assert last in b"".join(path.read_bytes() for path in kept)


def ha(brokers: SetOfTwo, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `rocketbox ha ... --json` on a machine, with its data directory instead of a token."""
    machine = brokers.brokers[number]
    return subprocess.run(
        [sys.executable, "-m", "appliance.main", "ha", *words, "--json", "--url", f"http://{machine.ready['http']}",
         "--data-dir", str(machine.data_dir / "rocketbox")],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def asked(brokers: SetOfTwo, number: int, *words: str) -> dict:
    done = ha(brokers, number, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly
def test_a_machine_that_lost_everything_joins_as_another_member(brokers):
    assert brokers.send(1, 20) == [0] * 20
    before = brokers.wait_in_sync().isr
    brokers.brokers[2].kill()
    brokers.hang_up(2)
    shutil.rmtree(brokers.brokers[2].data_dir / "rocketbox")
    assert brokers.send(1, 20) == [0] * 20
    brokers.brokers[2].launch()
    brokers.brokers[2].wait_until_ready()
    after = brokers.wait_in_sync().isr
    assert len(set(before) & set(after)) == 1
    brokers.brokers[1].kill()
    assert brokers.wait_for_sends((2,)) == 2
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))


@pytest.mark.parametrize("brokers", [{"ROCKETBOX_STORE_BROKER_ROLE": "ASYNC_MASTER"}], indirect=True)
@pytest.mark.nightly
def test_an_asynchronous_set_fails_over_and_is_silent_without_its_store(brokers):
    assert brokers.send(1, 20) == [0] * 20
    end = brokers.bodies_at(1)
    wait_for(lambda: brokers.bodies_at(2) == end, "the follower to have it")
    brokers.brokers[1].kill()
    brokers.hang_up(1)
    assert brokers.wait_for_sends((2,)) == 2
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))
    brokers.brokers[1].launch()
    brokers.brokers[1].wait_until_ready()
    brokers.wait_in_sync()
    for etcd in brokers.stores:
        etcd.kill()
    wait_for(lambda: brokers.send(2) != [0], "the leader to fall silent: another may be elected", every=0.2)
    for etcd in brokers.stores:
        etcd.launch()
    brokers.wait_for_sends((2, 1))


@pytest.mark.parametrize("brokers", [{"ROCKETBOX_STORE_HA_ELECT_AFTER": "2000"}], indirect=True)
@pytest.mark.nightly
def test_a_synchronous_set_goes_on_without_its_store(brokers):
    for etcd in brokers.stores:
        etcd.kill()
    until = time.monotonic() + 6  # three times as long as others wait for a silent leader
    while time.monotonic() < until:
        assert brokers.send(1) == [0]
    for etcd in brokers.stores:
        etcd.launch()
    wait_for(lambda: (state := brokers.state()) and state.beat > 20, "the leader to beat again", every=0.1)
    assert (brokers.leader(), brokers.state().epoch) == (1, 1)


@pytest.mark.parametrize("brokers", [ADMIN], indirect=True)
def test_a_store_that_was_wiped_freezes_the_set_until_somebody_adopts(brokers):
    assert brokers.send(1, 20) == [0] * 20
    for etcd in brokers.stores:
        etcd.kill()
        shutil.rmtree(etcd.data_dir / "etcd")
    for etcd in brokers.stores:
        etcd.launch()
    assert brokers.send(1, 5) == [0] * 5  # the leader has all members, so none is elected elsewhere
    for number in (1, 2):
        brokers.brokers[number].kill()
        brokers.hang_up(number)
        brokers.brokers[number].launch()
        brokers.brokers[number].wait_until_ready()
    status = wait_for(lambda: (found := asked(brokers, 1, "status"))["role"] == "frozen" and found, "it to freeze")
    assert brokers.send(1) == [14]
    assert brokers.state() is None
    refused = ha(brokers, 1, "adopt", status["uuid"], "--confirm", "another", "--yes")
    assert refused.returncode == 6
    assert asked(brokers, 1, "adopt", status["uuid"], "--confirm", "broker-a", "--yes")["applied"]
    brokers.wait_in_sync()
    assert (brokers.leader(), brokers.state().epoch) == (1, 2)
    assert brokers.send(1, 5) == [0] * 5
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(1))


@pytest.mark.parametrize("brokers", [ADMIN], indirect=True)
def test_a_planned_switch_is_seen_by_nobody(brokers):
    """Clients go on sending to the old leader, which passes the messages on."""
    assert brokers.send(1, 20) == [0] * 20
    status = asked(brokers, 1, "status")
    assert (status["role"], status["epoch"], len(status["members"])) == ("leader", 1, 2)
    assert all(one["in_sync"] for one in status["members"])
    assert status["leader_addr"] == brokers.broker(1)
    switched = asked(brokers, 1, "switch", "--yes")
    assert switched["applied"]
    codes = brokers.send(1, 1)
    assert codes == [0]
    assert brokers.leader() == 2
    assert asked(brokers, 2, "status")["role"] == "leader"
    assert brokers.send(2, 5) == [0] * 5
    assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))
