"""The stream of a master to a slave, compared with streams of Apache's masters."""

import socket
import time

import pytest

from appliance.engine.clock import Clock
from appliance.engine.config import BrokerConfig
from appliance.engine.disk import Disk
from appliance.engine.replication.roles import NO_GUARD, Guard
from appliance.engine.replication.slave_link import LinkSettings, SlaveLink
from appliance.engine.store.log.commit_log import CommitLog
from appliance.engine.tls.between_brokers import BetweenBrokers
from appliance.engine.tls.certificate import Certificate
from tests.support.ha import VERSIONS, PlayedSlave, recorded
from tests.support.tls import make_pair
from tests.support.waiting import wait_for

FILE = 65_536
SETTINGS = LinkSettings(heartbeat_s=60, silence_s=60, batch_bytes=32_768, bytes_per_s=0, from_last_file=True)


class Rig:
    """A log whose end the test moves, and a link that sends it."""

    def __init__(self, tmp_path, files: dict[int, bytes], **settings) -> None:
        for start, data in files.items():
            (tmp_path / f"{start:020d}").write_bytes(data.ljust(FILE, b"\0"))
        self.log = CommitLog(tmp_path, Disk(), FILE)
        self.log.load()
        self.end = 0
        self.settings = SETTINGS._replace(**settings)
        self.progress: list[int] = []
        self.ended: list[SlaveLink] = []
        self.guard = NO_GUARD

    def connect(self) -> PlayedSlave:
        with socket.create_server(("127.0.0.1", 0)) as server:
            slave = PlayedSlave(server.getsockname()[1])
            sock = server.accept()[0]
        self.link = SlaveLink(
            sock, "slave", self.log, lambda: self.end, self.settings, lambda link, asked: "",
            lambda: self.progress.append(self.link.acknowledged), self.ended.append, Clock(), None, self.guard,
        )  # fmt: skip
        self.link.start()
        return slave

    def grow(self, end: int) -> None:
        self.end = end
        self.link.log_grew()


@pytest.fixture
def rig(tmp_path):
    made: list[Rig] = []

    def make(files: dict[int, bytes], **settings) -> Rig:
        made.append(Rig(tmp_path, files, **settings))
        return made[0]

    yield make
    for one in made:
        one.link.stop()
        one.log.close()


@pytest.fixture
def permissive(tmp_path):
    """TLS that is permitted, and not required."""
    directory = tmp_path / "tls"
    directory.mkdir()
    files = [str(path) for path in make_pair(directory)]
    options = BrokerConfig(tls_mode="permissive", tls_cert_file=files[0], tls_key_file=files[1])
    tls = BetweenBrokers(options, Certificate(*files), Clock())
    tls.start()
    yield Guard(tls=tls)
    tls.stop()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("takes_tls_too", [False, True], ids=["plain", "permissive"])
def test_frames_are_apaches_to_the_byte(rig, permissive, version, takes_tls_too):
    """The recorded slave's bytes are sent, the log grows as it grew then: each frame is the recorded one."""
    events = list(recorded(version))
    data = bytearray(FILE)
    for event in events:
        if event.body:
            data[event.offset - FILE : event.offset - FILE + len(event.body)] = event.body
    one = rig({0: b"x" * FILE, FILE: bytes(data)})
    one.guard = permissive if takes_tls_too else NO_GUARD
    one.end = FILE  # a slave that wants all is served from its last file on
    conn, slave, compared = 0, None, 0
    for event in events:
        if event.conn != conn:
            conn = event.conn
            if slave is not None:
                slave.close()
                wait_for(lambda: one.ended, "the link")
                one.ended.clear()
            slave = one.connect()
        if event.body is None:
            slave.report(event.offset)
            if event.offset:
                wait_for(lambda: one.link.acknowledged == event.offset, "the link")  # noqa: B023 - waits here
            continue
        if not event.body:
            continue  # a heartbeat comes when it is due, here never
        one.grow(event.offset + len(event.body))
        assert slave.frame() == (event.offset, event.body)
        compared += 1
    assert compared > 60


def test_heartbeats_say_the_next_offset(rig):
    one = rig({0: b"abcdefgh"}, heartbeat_s=0.05)
    slave = one.connect()
    slave.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        slave.receive(1)  # nothing before the slave's first report
    slave.sock.settimeout(60)
    one.end = 8
    slave.report(3)
    assert slave.frame() == (3, b"")  # long due, and first, as from Apache
    assert slave.frame() == (3, b"defgh")
    assert [slave.frame() for _ in range(3)] == [(8, b"")] * 3
    assert not one.ended


def test_silence_of_a_slave_ends_it(rig):
    one = rig({0: b"abcdefgh"}, heartbeat_s=0.05, silence_s=0.5)
    slave = one.connect()
    one.end = 8
    slave.report(3)
    assert slave.is_closed()
    wait_for(lambda: one.ended, "the link")


@pytest.mark.parametrize(
    ("low", "asked", "from_last_file", "begins"),
    [(0, 0, True, FILE), (0, 0, False, 0), (0, 5, True, 5), (FILE, 0, False, FILE), (0, FILE + 9, False, FILE + 9)],
)
def test_where_a_slave_begins(rig, low, asked, from_last_file, begins):
    files = {start: b"x" * FILE for start in (0, FILE) if start >= low}
    one = rig(files, from_last_file=from_last_file)
    slave = one.connect()
    one.end = FILE + 10
    slave.report(asked)
    assert slave.frame()[0] == begins


@pytest.mark.parametrize("asked", [FILE - 1, 2 * FILE, -5, 0x4745_5420_2F20_4854])
def test_what_cannot_be_served_is_let_go(rig, asked):
    """An offset that is deleted already or ahead of this log, no offset, a web browser."""
    one = rig({FILE: b"x" * FILE})
    slave = one.connect()
    one.end = FILE + 10
    slave.report(asked)
    assert slave.is_closed()
    assert one.progress == []


def test_an_acknowledgement_of_what_was_not_sent_is_not_believed(rig):
    one = rig({0: b"x" * FILE})
    slave = one.connect()
    one.end = 100
    slave.report(10)
    assert len(slave.frame()[1]) == 90
    slave.report(100)
    wait_for(lambda: one.link.acknowledged == 100, "the link")
    slave.report(101)
    assert slave.is_closed()
    assert one.progress == [10, 100]


def test_half_a_report_waits_for_its_rest(rig):
    one = rig({0: b"x" * FILE})
    slave = one.connect()
    one.end = 100
    slave.sock.sendall(b"\0\0\0\0\0\0")
    slave.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        slave.receive(1)
    slave.sock.sendall(b"\0\x5a")
    assert slave.frame() == (0x5A, b"x" * 10)


def test_frames_end_where_files_end_and_at_the_batch(rig):
    one = rig({0: b"a" * FILE, FILE: b"b" * FILE}, batch_bytes=50_000, from_last_file=False)
    slave = one.connect()
    one.end = 2 * FILE
    slave.report(0)
    assert [(o, len(b)) for o, b in (slave.frame() for _ in range(4))] == [
        (0, 50_000), (50_000, 15_536), (FILE, 50_000), (FILE + 50_000, 15_536),
    ]  # fmt: skip


def test_a_slow_slave_holds_nobody_up_and_gets_everything(rig):
    """The socket is full for long: the thread waits for it, and goes on where it was."""
    files = {n * FILE: bytes([n]) * FILE for n in range(128)}
    one = rig(files, from_last_file=False)
    slave = one.connect()
    one.end = 128 * FILE
    slave.report(0)
    wait_for(lambda: one.link.sent > 0, "the link")
    sent = -1
    while sent != one.link.sent:
        sent = one.link.sent
        time.sleep(0.3)
    assert sent < one.end  # the kernel takes no more
    slave.sock.settimeout(60)
    assert slave.copy_to(one.end) == b"".join(files.values())


def test_the_flow_limit_holds(rig):
    one = rig({0: b"x" * FILE, FILE: b"y" * FILE}, bytes_per_s=100_000, from_last_file=False)
    slave = one.connect()
    one.end = 2 * FILE
    begun = time.monotonic()
    slave.report(0)
    slave.copy_to(one.end)
    # The first second's worth at once, then the rest at the rate.
    assert time.monotonic() - begun >= 0.25
