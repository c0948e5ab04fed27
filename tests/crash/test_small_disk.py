"""A file system that fills up for real under the real process, and comes back without a restart."""

import errno
import os
import re
import time

import pytest

from appliance.engine.protocol.codes import ResponseCode
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.server import Server
from tests.support.small_disk import NoSmallDisk, SmallDisk

SIZE_MIB = 128
OPTIONS = {
    "ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG": str(4 << 20),
    "ROCKETBOX_STORE_MAX_MESSAGE_SIZE": "65536",
    "ROCKETBOX_STORE_CLEAN_RESOURCE_INTERVAL": "200",
    "ROCKETBOX_BROKER_FLUSH_CONSUMER_OFFSET_INTERVAL": "100",
    "ROCKETBOX_STORE_CLEAN_FILE_FORCIBLY_ENABLE": "false",
    "ROCKETBOX_STORE_DISK_MAX_USED_SPACE_RATIO": "75",
    "ROCKETBOX_STORE_DISK_SPACE_CLEAN_FORCIBLY_RATIO": "85",
    "ROCKETBOX_STORE_DISK_SPACE_WARNING_LEVEL_RATIO": "90",
}
QUEUES = 4
UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA%04X\x02"


@pytest.fixture
def disk(tmp_path):
    try:
        with SmallDisk(tmp_path / "data", SIZE_MIB) as disk:
            yield disk
    except NoSmallDisk as error:
        pytest.skip(str(error))


class Traffic:
    """The acknowledged messages, and the checks that all of them are there."""

    def __init__(self, server):
        self.server = server
        self.acked = {queue: [] for queue in range(QUEUES)}
        self.count = 0

    def peer(self):
        return Peer(self.server.broker)

    def body(self, number):
        return number.to_bytes(8, "big") * 7500  # 60,000 bytes

    def send(self, peer, topic="T"):
        """The answer; what it acknowledged is remembered."""
        number, self.count = self.count, self.count + 1
        queue = number % QUEUES
        fields = send_fields(topic, queue, UNIQ % (number & 0xFFFF))
        answer = peer.ask(310, fields, self.body(number))
        if answer.code == 0:
            self.acked[queue].append((int(answer.ext_fields["queueOffset"]), number))
        return answer

    def send_until_refused(self, peer, seconds=180):
        end = time.monotonic() + seconds
        while (answer := self.send(peer)).code == 0:
            assert time.monotonic() < end, "the disk never filled up"
        return answer

    def send_until_taken(self, peer, seconds=180):
        end = time.monotonic() + seconds
        while (answer := self.send(peer)).code != 0:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer
            assert time.monotonic() < end, f"sends are refused still: {answer.remark}"
            time.sleep(0.05)

    def consume(self, peer):
        """queue -> what a reader gets from each queue's first offset on, as (offset, number). None when the files of
        what it asked for went meanwhile: a client asks on behind them."""
        found = {}
        for queue in range(QUEUES):
            got, offset = [], int(peer.ask(31, {"topic": "T", "queueId": queue}).ext_fields["offset"])
            while True:
                answer = peer.ask(11, pull_fields("T", queue, offset))
                if answer.code in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
                    assert int(answer.ext_fields["nextBeginOffset"]) > offset, answer
                    return None
                if answer.code != 0:
                    assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
                    break
                for record in records(answer.body):
                    number = int.from_bytes(record.body[:8], "big")
                    assert record.body == self.body(number), "altered"
                    got.append((record.queue_offset, number))
                offset = int(answer.ext_fields["nextBeginOffset"])
            found[queue] = got
        return found

    def check_whole(self, peer):
        found = self.consume(peer)
        assert found == self.acked

    def check_what_is_left(self, peer):
        """Check that acknowledged messages that have not expired are whole and in order. Return how many were there."""
        found = self.consume_when_still(peer)
        for queue, got in found.items():
            assert got, queue
            assert got == [entry for entry in self.acked[queue] if entry[0] >= got[0][0]]
        return sum(map(len, found.values()))

    def consume_when_still(self, peer, seconds=180):
        """Consume until two reads in a row agree: a round of the cleaner that was under way has ended."""
        end = time.monotonic() + seconds
        before = None
        while (found := self.consume(peer)) is None or found != before:
            assert time.monotonic() < end, "files go on and on"
            before = found
            time.sleep(0.3)  # longer than the cleaner rests
        return found


def change(peer, **options):
    """Change settings as mqadmin updateBrokerConfig does."""
    body = "".join(f"{name}={value}\n" for name, value in options.items()).encode()
    answer = peer.ask(25, body=body)
    assert answer.code == 0, answer


def commit(peer, offset):
    return peer.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": offset})


def committed(peer):
    return int(peer.ask(14, {"consumerGroup": "CG", "topic": "T", "queueId": 0}).ext_fields["offset"])


def fill_up(disk):
    """Another program takes every byte that is left; its file."""
    filler = disk.inside / "filler"
    for size in (1 << 20, 4096, 1):
        with open(filler, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return filler


def test_a_disk_over_its_last_stage_refuses_sends_and_comes_back_when_old_files_may_go(disk):
    with Server(disk.path, environment=OPTIONS, prefix=disk.prefix) as server:
        traffic = Traffic(server)
        peer = traffic.peer()
        refusal = traffic.send_until_refused(peer)
        assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refusal.remark.startswith("service not available now: the broker's disk is full [CL:  0.9")
        assert disk.used_share > 0.9
        traffic.check_whole(peer)
        assert commit(peer, 7).code == 0
        assert committed(peer) == 7
        pid = server.pid
        change(peer, cleanFileForciblyEnable="true")
        traffic.send_until_taken(peer)
        assert disk.used_share <= 0.9
        before = sum(map(len, traffic.acked.values()))
        for _ in range(150):  # more than two files: old ones go while new ones come
            traffic.send_until_taken(peer)
        assert sum(map(len, traffic.acked.values())) == before + 150
        change(peer, cleanFileForciblyEnable="false")
        left = traffic.check_what_is_left(peer)
        assert 150 <= left < before + 150
        assert server.running
        assert server.pid == pid
        server.kill()
        server.start()
        peer = traffic.peer()
        assert traffic.check_what_is_left(peer) == left
        assert committed(peer) == 7
        peer.close()


def test_a_disk_without_a_byte_left_loses_nothing_and_needs_no_restart(disk):
    """Not even a queue file's block or a table's copy can be written, while messages are."""
    environment = OPTIONS | {
        "ROCKETBOX_STORE_DISK_SPACE_CLEAN_FORCIBLY_RATIO": "100",
        "ROCKETBOX_STORE_DISK_SPACE_WARNING_LEVEL_RATIO": "100",
    }
    with Server(disk.path, environment=environment, prefix=disk.prefix) as server:
        traffic = Traffic(server)
        peer = traffic.peer()
        for _ in range(120):
            assert traffic.send(peer).code == 0
        traffic.check_whole(peer)  # the group is known: a new one could not be noted without a byte
        filler = fill_up(disk)
        refusal = traffic.send_until_refused(peer)  # the file at hand and the one prepared are filled up first
        assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no room for the next commit log file" in refusal.remark
        assert disk.free_bytes < 1 << 20
        traffic.check_whole(peer)
        assert commit(peer, 5).code == 0
        assert committed(peer) == 5
        time.sleep(0.5)  # offsets and queue files are tried to be saved meanwhile
        os.unlink(filler)
        traffic.send_until_taken(peer)
        traffic.check_whole(peer)
        refusal = traffic.send_until_refused(peer)
        assert "no room for the next commit log file" in refusal.remark
        assert disk.free_bytes >= 7 << 19, "nothing is left for tables and queue files"
        traffic.check_whole(peer)
        server.kill()
        server.start()
        peer = traffic.peer()
        traffic.check_whole(peer)
        assert committed(peer) == 5
        change(peer, cleanFileForciblyEnable="true")
        traffic.send_until_taken(peer)
        traffic.check_what_is_left(peer)
        peer.close()


def kept_keys(disk, prefix):
    """Keys with this prefix in the files of the log."""
    pattern = re.compile(b"UNIQ_KEY\x01(" + prefix + b"[0-9A-F]{4})")
    found = set()
    for path in sorted((disk.inside / "store" / "commitlog").iterdir()):
        found.update(pattern.findall(path.read_bytes()))
    return found


def test_a_disk_full_of_timers_loses_none_and_takes_sends_again(disk):
    """The oldest files hold messages with a time of their own: they are stored again before the files go, and the
    first file that goes makes the room for the next one's."""
    environment = OPTIONS | {"ROCKETBOX_STORE_CLEAN_FILE_FORCIBLY_ENABLE": "true"}
    environment["ROCKETBOX_STORE_CLEAN_RESOURCE_INTERVAL"] = "10000"
    prefix = b"7F0000016AB14E0E2F2A69208FCC"
    with Server(disk.path, environment=environment, prefix=disk.prefix) as server:
        traffic = Traffic(server)
        peer = traffic.peer()
        due_ms = int(time.time() * 1000) + 40 * 3_600_000
        keys = set()
        while True:
            key = prefix + b"%04X" % len(keys)
            properties = f"UNIQ_KEY\x01{key.decode()}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
            answer = peer.ask(310, send_fields("Later", 0, properties), traffic.body(len(keys)))
            if answer.code != 0:
                break
            keys.add(key)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert len(keys) > 300
        for _ in range(2):
            traffic.send_until_refused(peer)
            first = min(os.listdir(disk.inside / "store" / "commitlog"))
            traffic.send_until_taken(peer, 120)
            assert min(os.listdir(disk.inside / "store" / "commitlog")) > first
            assert keys <= kept_keys(disk, prefix)
            server.kill()
            server.start()
            peer = traffic.peer()
        traffic.send_until_taken(peer, 120)
        assert keys <= kept_keys(disk, prefix)
        peer.close()
