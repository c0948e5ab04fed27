"""A leader whose disk is full hands over, or is fenced: the set goes on at the other member with all that was
acknowledged, and the full one follows when there is room."""

from __future__ import annotations

import errno
import os

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import StartError
from tests.support.engine import send_fields
from tests.support.members_of_set import FILE, SEND, bodies, make, wait_for_same_log
from tests.support.waiting import wait_for

NOT_AVAILABLE, REFUSED_FOR_ROOM = 14, "no room for the next commit log file"


def fill(patch, directory):
    """Have nothing more fit on the disk of a directory, but for what was allocated before."""

    def refused(act):
        def refuse(disk, fd, *arguments):
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(str(directory)) and (act is allocate or "/commitlog/" not in path):
                raise OSError(errno.ENOSPC, "No space left on device")
            return act(disk, fd, *arguments)

        return refuse

    allocate, write_all, pwrite = Disk.allocate, Disk.write_all, Disk.pwrite
    for name, act in (("allocate", allocate), ("write_all", write_all), ("pwrite", pwrite)):
        patch.setattr(Disk, name, refused(act))


@pytest.mark.parametrize("hands_over", [True, False])
def test_the_set_goes_on_and_the_full_one_is_back_when_there_is_room(members, tmp_path, hands_over):
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "Orders", 1)
    sent = [b"first"]
    assert peer.ask(SEND, send_fields("Orders"), sent[0]).code == 0
    with pytest.MonkeyPatch.context() as patch:
        fill(patch, tmp_path / "one")
        codes = []
        # Two files at most: the one in use, and one that was made ahead.
        while NOT_AVAILABLE not in codes and len(codes) < 4 * FILE // 60_000:
            body = b"%d" % len(codes) * 20_000
            answer = peer.ask(SEND, send_fields("Orders"), body)
            codes.append(answer.code)
            sent += [body] if answer.code == 0 else []
        assert set(codes) == {0, NOT_AVAILABLE}
        assert REFUSED_FOR_ROOM in answer.remark
        assert bodies(peer) == sent[: len(bodies(peer))], "reads go on"
        if hands_over:
            assert one.brokers.drain(60.0), "the other one has all of it"
        with pytest.raises(StartError, match="No space left"):  # the service tries again until there is a broker
            one.fence()
        two.lead(2)
        assert two.peer().ask(SEND, send_fields("Orders"), b"next").code == 0
        refused = one.peer().ask(SEND, send_fields("Orders"), b"no")
        assert (refused.code, "No space left" in refused.remark) == (NOT_AVAILABLE, True)
        assert all_bodies(two) == [*sent, b"next"]
        with pytest.raises(OSError, match="No space left"):  # it cannot note the epoch, so it does nothing in it
            one.follow(two, 2)
        assert two.peer().ask(SEND, send_fields("Orders"), b"alone").code == 0
    two.take_in(one)
    wait_for_same_log(one, two)
    two.fence()
    one.lead(3)
    wait_for(lambda: all_bodies(one) == [*sent, b"next", b"alone"], "all of it where there was no room")
    assert one.peer().ask(SEND, send_fields("Orders"), b"last").code == 0


def all_bodies(member):
    found, peer = [], member.peer()
    while more := bodies(peer, offset=len(found)):
        found += more
    return found
