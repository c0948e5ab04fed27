"""The bounds of docs/bounds.md that all peers share: one takes all it can get, and a later one is still served.

The page and the table below have to agree, row by row.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from appliance.engine.access import brake
from appliance.engine.broker import long_polling, offsets, queue_locks
from appliance.engine.broker.filters import consumer_filters
from appliance.engine.broker.heartbeat import SubscriptionData
from appliance.engine.broker.long_polling import LongPolling
from appliance.engine.broker.processors import client as client_processor
from appliance.engine.errors import RefusedRequest
from appliance.engine.filter import long_tags, sql_filter
from appliance.engine.filter.expressions import make_filter
from appliance.engine.filter.shelf import Shelf
from appliance.engine.namesrv import route_info, topic_table
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.remoting import dispatcher, peer_requests
from appliance.engine.remoting.dispatcher import WorkerPool
from appliance.engine.remoting.peer_requests import PeerRequests
from tests.engine.access.test_quotas import Line, Rig
from tests.engine.broker.conftest import BrokerDesk, consumer
from tests.engine.namesrv.conftest import Desk
from tests.engine.namesrv.test_bounds import register_static
from tests.support.clock import FakeClock
from tests.support.fakes import FakeConnection

PAGE = (Path(__file__).parents[2] / "docs" / "bounds.md").read_text()
SECTIONS = ("Memory, time and descriptors of the remoting ports", "Names and tables")
#: Their bounds are of people and of programs with a token.
OF_PEOPLE = (
    "Administration over the wire",
    "Signing in",
    "What leaves the house, and what comes in",
    "The console's port",
)
_IN_COMMON = re.compile("in all|of all|together")
#: Number of connections of the greedy peer, all from one address.
HOGS = 60


def peers(address="10.0.0.1"):
    return [FakeConnection(f"{address}:{port}") for port in range(1, HOGS + 1)]


#: A later peer of the same address as the greedy one, and one of another address.
def after():
    return FakeConnection("10.0.0.1:9999"), FakeConnection("10.0.0.2:1")


@pytest.fixture
def desk(tmp_path):
    desk = BrokerDesk(tmp_path / "broker", FakeClock())
    yield desk
    desk.stop()


@pytest.fixture
def names(tmp_path):
    return Desk(tmp_path / "names")


def pools(desk, names, monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_WAITING_BYTES", 1 << 20)
    pool = WorkerPool("shared", capacity=100)
    for hog in peers():
        hog.take_place = lambda size: True
        while pool.submit(lambda: None, 8000, hog):
            pass
    for one in after():
        one.take_place = lambda size: True
        assert pool.submit(lambda: None, 8000, one)


def put_off(desk, names, monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_PUT_OFF_BYTES", 1 << 20)
    pool = WorkerPool("shared")

    def have_one_put_off(one):
        one.take_place = one.leave_place = lambda size: True
        one.wait_for_room = lambda resume: None
        pool._since[0] = 0.0
        pool._held += 8000
        pool._shares.add(one.born_host, 8000)
        pool._keep_for_later(dispatcher._Job(lambda: None, 8000, one, True, 0), one)

    for hog in peers():
        while not hog.closed:
            have_one_put_off(hog)
    for one in after():
        have_one_put_off(one)
        assert not one.closed


def held_pulls(desk, names, monkeypatch):
    monkeypatch.setattr(long_polling, "MOST_IN_ALL", 400)
    monkeypatch.setattr(long_polling, "FEW_OF_A_CONNECTION", 4)
    loop = SimpleNamespace(monotonic=0.0, call_later=lambda seconds, job: SimpleNamespace(cancel=lambda: None))
    polling = LongPolling(loop, None, None, None)
    queue = object()

    class Pull:
        """A held pull."""

        bucket, previous, following = 0, None, None

        def __init__(self, conn):
            self.conn, self.queue = conn, queue

    held = []
    for hog in peers():
        hog.parked, hog.parked_count = None, 0
        held.append(hog)
        while polling.hold(Pull(hog), 1000):
            pass
    # A peer of the same address has its few, and one of another address gets more.
    for one, least in zip(after(), (4, 24), strict=True):
        one.parked, one.parked_count = None, 0
        held.append(one)
        assert all(polling.hold(Pull(one), 1000) for _ in range(least))
    polling.forget(hog)
    assert hog.parked_count == 0
    for one in held:
        polling.forget(one)
    assert polling._shares.taken == 0


def heartbeats(desk, names, monkeypatch):
    monkeypatch.setattr(client_processor, "MOST_WAITING_BYTES", 100_000)
    processor = desk.dispatcher._handlers[34][0].__self__
    processor._later = [].append

    def beat(one):
        groups = [consumer(f"g{one.born_host.hex()}-{n}", "T") for n in range(40)]
        body = json.dumps({"clientID": "c", "consumerDataSet": groups}).encode()
        desk.dispatcher.dispatch_request(one, RemotingCommand(34, body=body))
        return not one.answers

    for hog in peers():
        beat(hog)
    assert all(map(beat, after()))


def filters(desk, names, monkeypatch):
    monkeypatch.setattr(consumer_filters, "MOST_ENTRIES", 200)
    monkeypatch.setattr(consumer_filters, "MOST_CHARS", 20_000)
    monkeypatch.setattr(desk.filters._shares, "few", 2000)

    def subscribe(one, group):
        wanted = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92", sub_version=1)
        return desk.filters.register(group, [wanted], None, one.born_host)

    for hog in peers():
        number = 0
        while subscribe(hog, f"h{hog.remote_host.replace(':', '-')}-{number}"):
            number += 1
    assert [subscribe(one, f"after{n}") for n, one in enumerate(after())] == [True, True]


def expressions(desk, names, monkeypatch):
    shelves_are_shared(sql_filter, "SQL92", "a = {} AND b = '{}'", monkeypatch)


def tag_expressions(desk, names, monkeypatch):
    shelves_are_shared(long_tags, "TAG", "T{}||T{}||" + "T||" * 200, monkeypatch)


def shelves_are_shared(module, kind, text, monkeypatch):
    shelves = module._shelves
    for shelf in shelves:
        few, is_longest = shelf._few, shelf is shelves[-1]
        fresh = Shelf(1 << 30, 16, shelf.most, few)
        monkeypatch.setattr(module, "_shelves", (fresh,))
        held = []

        def have_one(one, number, held=held):
            held.append(make_filter(kind, text.format(number, one.remote_host), one.born_host))

        for hog in peers():
            with pytest.raises(RefusedRequest):
                deque(have_one(hog, number) for number in itertools.count())
        for one in after()[is_longest:]:  # of the longest, all peers of one address have few together
            for number in range(few):
                have_one(one, number)
        held.clear()
        for number in range(few):
            have_one(after()[0], number)


def groups(desk, names, monkeypatch):
    monkeypatch.setattr(type(desk.groups), "most", 500)
    for number, hog in enumerate(peers()):
        desk.heartbeat(hog, consumerDataSet=[consumer(f"h{number}-{n}", "T") for n in range(40)])
        for n in range(40):
            desk.ask(352, {"group": f"asked{number}-{n}"}, peer=hog)
    desk.clock.advance(ms=60_000)
    for number, one in enumerate(after()):
        desk.heartbeat(one, consumerDataSet=[consumer(f"after{number}", "T")])
        assert desk.groups.get(f"after{number}") is not None
        assert desk.ask(352, {"group": f"asked-after{number}"}, peer=one).code == 0
    assert desk.ask(200, body={"groupName": "administrators"}).code == 0


def topics(desk, names, monkeypatch):
    monkeypatch.setattr(type(desk.topics), "most", 500)

    def make(one, name):
        try:
            return desk.topics.create_from_default(name, "TBW102", 4, peer=one.born_host)
        except client_processor.TooMany:
            return None

    for number, hog in enumerate(peers()):
        for n in range(40):
            make(hog, f"h{number}-{n}")
    assert len(desk.topics.all()) < 250
    desk.clock.advance(ms=60_000)
    assert all(make(one, f"after{number}") for number, one in enumerate(after()))


def topics_and_groups(desk, names, monkeypatch):
    groups(desk, names, monkeypatch)
    topics(desk, names, monkeypatch)


def pairs(desk, names, monkeypatch):
    monkeypatch.setattr(offsets, "MOST_ENTRIES", 500)
    for number, hog in enumerate(peers()):
        for n in range(40):
            desk.offsets.commit(f"h{number}-{n}", "T", 0, 1, hog.born_host)
    desk.clock.advance(ms=60_000)
    for number, one in enumerate(after()):
        assert desk.offsets.commit(f"after{number}", "T", 0, 1, one.born_host)


def leases(desk, names, monkeypatch):
    monkeypatch.setattr(queue_locks, "MOST_LEASES", 500)
    for number, hog in enumerate(peers()):
        many = [queue_locks.MessageQueue("T", f"b{number}", n) for n in range(500)]
        desk.locks.lock(f"h{number}", "c", many, hog.born_host)
    for number, one in enumerate(after()):
        few = [queue_locks.MessageQueue("T", "b", n) for n in range(16)]
        assert desk.locks.lock(f"after{number}", "c", few, one.born_host) == few


def questions(desk, names, monkeypatch):
    monkeypatch.setattr(peer_requests, "MAX_WAITING", 500)
    loop = SimpleNamespace(call_later=lambda seconds, job: SimpleNamespace(cancel=lambda: None))
    asks = PeerRequests(loop, SimpleNamespace(on_close=lambda listener: None))
    refused = []
    for one in [*peers(), *after()]:
        one.send_command = lambda command: None
        is_hog = one.born_host[4:] < encode_host("0.0.0.0", 9999)[4:] and one.born_host[3] == 1
        for _ in range(400 if is_hog else 4):
            asks.ask(one, RemotingCommand(307), 60, lambda answer, one=one: refused.append(one))
    assert refused
    assert not {one.remote_host for one in refused} & {one.remote_host for one in after()}


def brokers(desk, names, monkeypatch):
    monkeypatch.setattr(route_info, "MOST_BROKERS", 100)
    for number, hog in enumerate(peers()):
        for n in range(20):
            names.register(["A", "B"], name=f"h{number}-{n}", address=f"h{number}:{n + 1}", peer=hog)
    for number, one in enumerate(after()):
        assert names.register(["A", "B"], name=f"after{number}", address=f"a{number}:1", peer=one).code == 0


def topics_of_brokers(desk, names, monkeypatch):
    for module in (route_info, topic_table):
        monkeypatch.setattr(module, "MOST_ENTRIES", 1000)
    monkeypatch.setattr(route_info, "FEW_ENTRIES", 20)
    for number, hog in enumerate(peers()):
        names.register([f"T{n}" for n in range(200)], name=f"h{number}", address=f"h{number}:1", peer=hog)
    for number, one in enumerate(after()):
        found = names.register([f"T{n}" for n in range(20)], name=f"after{number}", address=f"a{number}:1", peer=one)
        assert found.code == 0


def mappings(desk, names, monkeypatch):
    for module in (route_info, topic_table):
        monkeypatch.setattr(module, "MOST_MAPPING_BYTES", 20_000)
    monkeypatch.setattr(route_info, "FEW_MAPPING_BYTES", 500)

    def add(one, name, size):
        return register_static(names, ["T1", "T2"], ["T1"], name=name, peer=one, pad="x" * size).code == 0

    for number, hog in enumerate(peers()):
        size = 20_000
        while size > 100 and not add(hog, f"h{number}", size):
            size //= 2
    assert names.namesrv.routes._topics.mapping_bytes["h0"] > 2000
    assert [add(one, f"after{number}", 300) for number, one in enumerate(after())] == [True, True]


def over_quota(desk, names, monkeypatch):
    monkeypatch.setattr(brake, "MOST_WAITING_BYTES", 100_000)
    with TemporaryDirectory() as directory, closing(Rig(Path(directory))) as rig:
        rig.brake.waiting.few = 1000
        rig.quotas(send_bytes=1_000_000)
        rig.ask(Line(1), 1_000_000)
        hogs = [Line(1) for _ in range(HOGS)]
        for hog in hogs:
            for _ in range(20):
                rig.ask(hog, 5000)
        assert any(hog.answers for hog in hogs)
        for one in (Line(1), Line(2)):
            rig.ask(one, 900)
            assert not one.answers


#: The rows marked *shared*, and how one peer takes all there.
SHARED = {
    "requests waiting in one pool": pools,
    "requests that a pool put off because their peer takes nothing": put_off,
    "held pulls of a connection; in all": held_pulls,
    "bodies of heartbeats that wait for their next tick": heartbeats,
    "groups and topics with expressions": filters,
    "different SQL92 expressions in use at once": expressions,
    "different tag expressions over 400 characters in use at once": tag_expressions,
    "topics; groups of the broker": topics_and_groups,
    "pairs of groups and topics with offsets; offsets": pairs,
    "queues of one 41 or 42; leases": leases,
    "questions to clients under way (223, 307, 309, 326)": questions,
    "brokers of a connection; in all; addresses of one": brokers,
    "topics of one 103; of all brokers": topics_of_brokers,
    "mappings of static topics, of all brokers": mappings,
    "requests over their users' quotas that wait": over_quota,
}
#: Bounds in common that are not shared, and why they keep no peer out.
GIVES_WAY = {
    "answers of all peers": "whoever took nothing for longest is closed",
    "partial and kept frames of all peers": "the largest other one is closed",
    "producer groups whose half messages wait for a member": "the others are looked at again",
    "queue files open": "the least recently used is closed",
    "descriptors peers may take": "the address with the most connections loses one",
    "what groups have pulled": "forgotten until the next pulls",
    "pairs of topics and groups whose send-backs are counted (315)": "the one that was quiet for longest is forgotten",
    "who got what, as events name it": "numbered anew",
    "queues that one reset moves (222, 314); moved ones whose consumers have not come": "administrators only",
    "a key-value; all of them": "administrators only",
    "lines of the log about refusals": "counted in the next line; the refusals are kept apart",
}


#: Bounds that people have in common, and why one of them keeps no other out.
LEAVES_ROOM = {
    "the same of all addresses": "acts are counted in one entry, and are done",
    "a receiver of alerts": "of the steps of one receiver",
    "memory of all processes of a run; time": "of one run, and one is made at a time",
    "files of all jobs": "the oldest go",
    "bodies over 64 KiB together; of one caller": "one caller has three quarters of it",
    "live tails of one user; of all": "one user has a tenth of it",
    "jobs that wait, of one user with their tokens; of all": "one user has a fifth of it",
}


def rows(sections=SECTIONS):
    """Return row -> text of its bound."""
    found = {}
    for section in sections:
        (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) == 6 and cells[1] != "what" and not cells[1].startswith("---"):
                found[cells[1]] = cells[2]
    return found


def test_the_page_and_the_table_agree():
    table = rows()
    assert len(table) > 60
    assert {row for row, bound in table.items() if "shared" in bound} == SHARED.keys()
    assert GIVES_WAY.keys() <= table.keys()
    for row, bound in table.items():
        if _IN_COMMON.search(row + bound):
            assert row in SHARED or row in GIVES_WAY, f"nobody says what keeps one from taking all: {row}"


def test_what_people_have_in_common_leaves_room_for_others():
    table = rows(OF_PEOPLE)
    assert len(table) > 50
    assert {row for row, bound in table.items() if _IN_COMMON.search(row + bound)} == LEAVES_ROOM.keys()


@pytest.mark.parametrize("row", SHARED)
def test_who_comes_after_one_that_took_all_is_served(row, desk, names, monkeypatch):
    SHARED[row](desk, names, monkeypatch)
