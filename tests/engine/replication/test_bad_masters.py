"""A slave behind a master that is slow, broken, hostile, or another one; and with a full disk of its own."""

import errno
import random
import socket
import struct
import threading

import pytest

from appliance.engine.protocol.ha_stream import pack_header
from appliance.engine.protocol.record import MAGIC_V1
from tests.support.directories import shared_directory
from tests.support.effort import effort
from tests.support.engine import RunningEngine
from tests.support.ha import VERSIONS, manifest, recorded
from tests.support.set_of_brokers import FILE, SMALL, log_of
from tests.support.waiting import wait_for


class PlayedMaster:
    """Accepts one slave at a time, reads its reports, and sends what the test wants."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(60)
        self.port = self.server.getsockname()[1]

    def accept(self) -> socket.socket:
        sock = self.server.accept()[0]
        sock.settimeout(60)
        return sock

    @staticmethod
    def report(sock: socket.socket) -> int:
        data = b""
        while len(data) < 8:
            more = sock.recv(8 - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return struct.unpack(">q", data)[0]

    def heard(self, sock: socket.socket, offset: int) -> None:
        """Read reports until one has `offset`; check that none has more."""
        while (said := self.report(sock)) != offset:
            assert said < offset

    def gone(self, sock: socket.socket) -> None:
        """Wait until the slave hangs up."""
        try:
            while sock.recv(4096):
                pass
        except ConnectionError:
            pass
        sock.close()


@pytest.fixture
def master(impatient):
    played = PlayedMaster()
    yield played
    played.server.close()


def slave_of(master: PlayedMaster, data_dir, **store) -> RunningEngine:
    options = SMALL | {"broker_role": "SLAVE", "ha_master_address": f"127.0.0.1:{master.port}"} | store
    return RunningEngine(data_dir, broker={"broker_id": 1, "slave_read_enable": True}, store=options)


@pytest.fixture(scope="module")
def log(request) -> bytes:
    """Three files of records, as a RocketBox broker wrote them."""
    running = RunningEngine(shared_directory(request, "writer"), store=SMALL)
    try:
        for n in range(150):
            running.put("Orders", b"%d " % n * 4000, queue=n % 4)
        return log_of(running)
    finally:
        running.stop()


def frames(log: bytes, begin: int = 0, size: int = 32_768) -> bytes:
    """Return the stream of a log from an offset on, cut as masters cut it."""
    out = b""
    while begin < len(log):
        part = log[begin : begin + min(size, FILE - begin % FILE)]
        out += pack_header(begin, len(part)) + part
        begin += len(part)
    return out


def last_record_in(log: bytes) -> int:
    """Return where the last whole record of a log begins."""
    at, last = 0, -1
    while (size := int.from_bytes(log[at : at + 4], "big")) and at + size <= len(log):
        last = at if log[at + 4 : at + 8] == MAGIC_V1.to_bytes(4, "big") else last
        at += size
    return last


def wait_shown(slave: RunningEngine, log: bytes) -> None:
    """Wait until the slave shows what it has of a log: it reports bytes a moment before that."""
    wait_for(lambda: slave.engine.broker.store.last_record_offset == last_record_in(log), "the last record to be seen")


def follower_of(slave: RunningEngine):
    return slave.engine.broker.follower.follower


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_streams_make_the_recorded_logs(tmp_path, master, version):
    """Sent in the frames of Apache's master; the log begins in its second file."""
    events = [one for one in recorded(version) if one.body]
    begin = manifest(version)["firstOffset"]
    slave = slave_of(master, tmp_path, mapped_file_size_commit_log=65_536, max_message_size=30_000)
    try:
        sock = master.accept()
        assert master.report(sock) == 0
        for one in events:
            sock.sendall(pack_header(one.offset, len(one.body)) + one.body)
        end = events[-1].offset + len(events[-1].body)
        master.heard(sock, end)
        assert log_of(slave) == b"".join(one.body for one in events)
        store = slave.engine.broker.store
        assert store.log.min_offset == begin
        replicated = manifest(version)["replicated"]
        # Written bytes are reported a moment before they are published.
        wait_for(lambda: store.last_record_offset == replicated[-1]["offset"], "its last record to be seen")
        queues = {(m["topic"], m["queueId"]): m["queueOffset"] + 1 for m in replicated}
        assert {key: store.max_offset(*key) for key in queues} == queues
        sock.close()
    finally:
        slave.stop()


def test_what_was_not_compared_yet_is_not_reported(tmp_path, master, log):
    """On a new connection the last record counts as far as the master has sent it again."""
    slave = slave_of(master, tmp_path / "slave")
    try:
        sock = master.accept()
        assert master.report(sock) == 0
        sock.sendall(frames(log))
        master.heard(sock, len(log))
        wait_shown(slave, log)
        sock.close()
        sock = master.accept()
        begin = master.report(sock)
        assert begin == slave.engine.broker.store.last_record_offset
        stream = frames(log, begin)
        header = len(pack_header(0, 0))
        sock.sendall(stream[: header + 10])
        assert master.report(sock) == begin + 10
        sock.sendall(stream[header + 10 :])
        assert master.report(sock) == len(log)
        sock.close()
    finally:
        slave.stop()


@pytest.mark.parametrize("seed", range(effort(1, 3, 30)))
def test_cut_off_anywhere_and_again(tmp_path, master, log, seed):
    """Half headers, half records, half blanks: the slave goes on after its last whole record."""
    dice = random.Random(seed)
    slave = slave_of(master, tmp_path / "slave")
    before = 0
    try:
        while True:
            sock = master.accept()
            begin = master.report(sock)
            # Perhaps more is shown by now than was when it connected.
            assert before <= begin <= max(0, slave.engine.broker.store.last_record_offset)
            assert begin == max(0, last_record_in(log[: begin + int.from_bytes(log[begin : begin + 4], "big")]))
            before = begin
            stream = frames(log, begin, dice.choice((100, 32_768, 1 << 30)))
            cut = dice.randrange(1, 700_000)
            sock.sendall(stream[:cut])
            if cut >= len(stream):
                master.heard(sock, len(log))
                sock.close()
                break
            sock.close()
        assert log_of(slave) == log
    finally:
        slave.stop()


def has_said(caplog, words: str) -> bool:
    """True once the slave has logged why it does not follow. Its status says so until it is connected again: it is at
    once here."""
    return any("cannot follow" in line and words in line for line in caplog.messages)


def damaged(log: bytes, what: str) -> bytes:
    if what == "a body":
        return log[:5000] + bytes([log[5000] ^ 1]) + log[5001:]
    if what == "a place":
        return log[:35] + bytes([log[35] ^ 8]) + log[36:]
    if what == "a size":
        return struct.pack(">i", 0x7FFFFFFF) + log[4:]
    return b"\0" * 5000 + log[5000:]


@pytest.mark.parametrize("what", ["a body", "a place", "a size", "zeros"])
def test_damage_is_not_copied(tmp_path, master, log, what, caplog):
    slave = slave_of(master, tmp_path / "slave")
    try:
        sock = master.accept()
        master.report(sock)
        try:
            sock.sendall(frames(damaged(log, what)))
        except ConnectionError:
            pass
        master.gone(sock)
        assert slave.engine.broker.store.log.written == 0
        wait_for(lambda: has_said(caplog, ""), "it to say so")
        # The same master is followed when it behaves.
        sock = master.accept()
        master.report(sock)
        sock.sendall(frames(log))
        master.heard(sock, len(log))
        assert log_of(slave) == log
        sock.close()
    finally:
        slave.stop()


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">qi", 0, 0x7FFFFFFF),  # 2 GiB
        struct.pack(">qi", 0, -1),
        struct.pack(">qi", -1, 0),
        struct.pack(">qi", 5, 10) + bytes(10),  # not where a file begins
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_nonsense_is_hung_up_on_and_takes_no_memory(tmp_path, master, said):
    slave = slave_of(master, tmp_path)
    try:
        sock = master.accept()
        master.report(sock)
        sock.sendall(said)
        master.gone(sock)
        assert slave.engine.broker.store.log.written == 0
        sock = master.accept()  # it tries again, later
        sock.close()
    finally:
        slave.stop()


@pytest.mark.parametrize("other", ["record", "rest"])
def test_a_master_with_another_last_record_is_not_followed(tmp_path, master, log, other, caplog):
    """The slave has no other source for records here: the stream itself shows that it is another log."""
    slave = slave_of(master, tmp_path / "slave")
    try:
        sock = master.accept()
        master.report(sock)
        sock.sendall(frames(log[:300_000]))
        wait_shown(slave, log[:300_000])
        sock.close()
        sock = master.accept()
        begin = master.report(sock)
        held = log_of(slave)
        assert 0 < begin < len(held)
        # In the middle of the record, or the one before its end and a whole one behind it.
        changed = begin + 100 if other == "record" else len(held) - 1
        sock.sendall(frames(log[:changed] + b"?" + log[changed + 1 : 400_000], begin, 1000))
        master.gone(sock)
        assert follower_of(slave).agrees is False
        wait_for(lambda: has_said(caplog, "is another than"), "it to say so")
        sock = master.accept()
        assert master.report(sock) == begin
        assert log_of(slave) == held
        # The right one is followed, and gets the report of the whole log only after the comparison.
        sock.sendall(frames(log, begin, 1000))
        master.heard(sock, len(log))
        assert follower_of(slave).agrees
        assert log_of(slave) == log
        sock.close()
        # Another process may listen at the address by then.
        wait_for(lambda: not follower_of(slave).agrees, "it to take nothing over without a stream")
    finally:
        slave.stop()


def test_a_slave_that_gets_nothing_sends_its_heartbeats(tmp_path, master):
    slave = slave_of(master, tmp_path, ha_housekeeping_interval_ms=60_000, ha_send_heartbeat_interval_ms=100)
    try:
        sock = master.accept()
        assert [master.report(sock) for _ in range(3)] == [0, 0, 0]
        sock.close()
    finally:
        slave.stop()


def test_a_silent_master_is_given_up(tmp_path, master):
    slave = slave_of(master, tmp_path, ha_housekeeping_interval_ms=300, ha_send_heartbeat_interval_ms=100)
    try:
        master.gone(master.accept())
    finally:
        slave.stop()


def test_a_full_disk_stops_it_and_room_lets_it_go_on(tmp_path, master, log, monkeypatch, caplog):
    """The next file cannot be made: the received bytes stay, and are reported; then the slave goes on where it was."""
    slave = slave_of(master, tmp_path / "slave")
    store_log = slave.engine.broker.store.log
    make = store_log.create_segment
    full = threading.Event()
    full.set()

    def no_room(start: int, frees: bool = False):
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(start, frees)

    monkeypatch.setattr(store_log, "create_segment", no_room)
    try:
        sock = master.accept()
        master.report(sock)
        sender = threading.Thread(target=lambda: sock.sendall(frames(log)), daemon=True)
        sender.start()
        wait_for(lambda: has_said(caplog, "no room"), "it to say so")
        assert slave.engine.broker.store.log.broken is None
        master.gone(sock)
        full.clear()
        sock = master.accept()
        begin = master.report(sock)
        assert 0 < begin <= FILE
        sock.sendall(frames(log, begin))
        master.heard(sock, len(log))
        assert log_of(slave) == log
        sock.close()
    finally:
        slave.stop()
