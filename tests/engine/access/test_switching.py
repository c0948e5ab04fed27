"""From report mode to enforcing, and back, while it runs."""

from __future__ import annotations

import pytest

from appliance.engine.config import Secret
from appliance.engine.errors import InvalidInput
from tests.engine.access.test_enforced import ANN, BOB, CODE, Site, send, start
from tests.engine.access.test_quotas_enforced import gather, send_body, set_quotas, settle
from tests.support.engine import Peer, pull_fields
from tests.support.waiting import wait_for

__all__ = ["start"]


def switch(site: Site, mode: str | None) -> None:
    site.running.window.option_commands.change({"accessControl": mode})
    settle(site)


def hold(peer: Peer) -> int:
    """Send a pull that is held at the end of the queue."""
    fields = pull_fields("T", 0, 2, consumerGroup="readers", sysFlag=6, suspendTimeoutMillis=600_000)
    return peer.send(CODE.PULL_MESSAGE, fields)


def test_who_may_goes_on_without_a_break_and_what_report_mode_let_through_ends(start):
    site = start(access_control="report")
    ann = site.make(ANN, "Group:readers Sub", "Topic:T Sub,Pub")
    stranger, bob = site.peer(), site.make(BOB, "Topic:T Pub")
    assert [send(peer, "T").code for peer in (ann, bob)] == [0, 0]
    held = {peer: hold(peer) for peer in (ann, stranger, bob)}
    connections = site.running.engine.server.connections
    wait_for(lambda: sum(conn.parked_count for conn in list(connections.values())) == 3, "three held pulls")
    switch(site, "enforce")
    assert stranger.is_closed()
    assert bob.is_closed(), "he may not read T"
    assert send(site.peer(), "T").code == 16
    again = site.peer(BOB)
    assert send(again, "T", b"news").code == 0
    answer = ann.receive()
    assert (answer.opaque, answer.code) == (held[ann], 0)
    assert send(ann, "T").code == 0
    switch(site, "report")
    assert send(site.peer(), "T").code == 0


def test_it_is_kept_over_a_restart_until_the_file_says_so_itself(start):
    site = start(access_control="report")
    switch(site, "enforce")
    assert site.running.window.access_mode() == "enforce"
    site.running.restart()
    again = Site(site.running)
    assert send(again.peer(), "T").code == 16
    assert again.root.ask(CODE.GET_BROKER_RUNTIME_INFO).code == 0
    switch(again, None)
    assert send(again.peer(), "T").code == 0


def test_quotas_count_from_then_on(start):
    site = start(access_control="report")
    ann = site.make(ANN, "Topic:T Pub")
    set_quotas(site, ANN, requests=1)
    assert {send(ann, "T").code for _ in range(20)} == {0}
    switch(site, "enforce")
    codes = [
        one.code
        for one in gather(ann, [ann.send(CODE.SEND_MESSAGE_V2, send_body(0), b"x") for _ in range(20)]).values()
    ]
    assert codes.count(2) > 10
    switch(site, "report")
    assert {send(ann, "T").code for _ in range(20)} == {0}
    set_quotas(site, ANN, connections=1)
    others = [site.peer(ANN) for _ in range(2)]
    assert {send(peer, "T").code for peer in others} == {0}
    switch(site, "enforce")
    assert [peer.is_closed() for peer in others] == [True, True]
    assert send(ann, "T").code == 0


def test_users_of_the_wire_do_not_switch_it(start):
    site = start(access_control="report")
    for peer, mode in ((site.root, "enforce"), (site.peer(), "enforce")):
        assert peer.ask(CODE.UPDATE_BROKER_CONFIG, {}, f"accessControl={mode}\n".encode()).code == 16
    switch(site, "enforce")
    assert site.root.ask(CODE.UPDATE_BROKER_CONFIG, {}, b"accessControl=report\n").code == 16
    assert send(site.peer(), "T").code == 16


def test_nothing_is_enforced_that_nobody_could_administer(start):
    site = start(access_control="report", init_authentication_user=Secret())
    with pytest.raises(InvalidInput, match="needs an enabled Super user, and there is none"):
        switch(site, "enforce")
    assert send(site.peer(), "T").code == 0
    site.running.window.users.create("chief", user_type="Super")
    switch(site, "enforce")
    assert send(site.peer(), "T").code == 16


@pytest.mark.parametrize(("configured", "wanted"), [("off", "report"), ("off", "enforce"), ("enforce", "report"),
                                                    ("enforce", "off"), ("report", "off")])  # fmt: skip
def test_what_takes_a_start(start, configured, wanted):
    """A mode that the file enforces is not loosened while it runs, whatever an earlier run has left."""
    site = start(access_control=configured)
    path = site.running.data_dir / "rocketbox" / "options.json"
    with pytest.raises(InvalidInput):
        switch(site, wanted)
    assert not path.exists()
    path.write_text(f'{{"broker.accessControl": "{wanted}"}}')
    site.running.restart()
    assert site.running.window.access_mode() == configured
