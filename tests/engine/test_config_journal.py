"""The journal: an entry that was waited for survives a power cut; entries behind a failed call do not count."""

import errno
import os
import threading

import pytest

from appliance.engine import config_journal
from appliance.engine.config_journal import ConfigJournal, decode_line, encode_entry
from appliance.engine.disk import Disk

WAIT_S = 5.0


def entry(name, table="topics", value=1):
    return {"table": table, "name": name, "value": value}


def names(journal, table="topics"):
    return [found["name"] for found in journal.take(table)]


class ForgetfulCalls(Disk):
    """A disk that keeps through a power cut only the synced bytes - and any part of those written after."""

    def __init__(self):
        self.syncs = 0
        self.synced = b""
        self.path = None
        self.paths = {}
        self.sync_error = None
        self.write_error = None
        self.short_write = None
        self.gate = threading.Event()
        self.gate.set()
        self.syncing = threading.Event()

    def open(self, path, create=False, read_only=False):
        self.path = self.path or path
        fd = super().open(path, create, read_only)
        self.paths[fd] = path
        return fd

    def rename(self, old, new):
        super().rename(old, new)
        self.paths = {fd: new if path == old else path for fd, path in self.paths.items()}

    def pwrite(self, fd, data, position):
        if self.short_write is not None:  # a disk that fills up: it takes a part, then nothing
            self.write_error, short, self.short_write = errno.ENOSPC, self.short_write, None
            return super().pwrite(fd, data[:short], position)
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd):
        content = self.paths[fd].read_bytes()
        self.syncing.set()
        assert self.gate.wait(WAIT_S)
        if self.sync_error is not None:
            error, self.sync_error = self.sync_error, None  # the kernel reports it once
            raise OSError(error, os.strerror(error))
        self.syncs += 1
        self.synced = content

    def power_cut(self, kept=0):
        """Leave the file as the next start finds it; kept: how many bytes behind the synced ones survive."""
        content = self.path.read_bytes()
        self.path.write_bytes(self.synced + content[len(self.synced) :][:kept])


@pytest.fixture
def calls():
    return ForgetfulCalls()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rocketbox" / "config.journal"


@pytest.fixture
def open_journal():
    """Open journals; the end of the test is that of a process: open files are closed, and nothing is written."""
    opened = []

    def make(path, calls=None):
        opened.append(ConfigJournal(path, calls))
        return opened[-1]

    yield make
    for journal in opened:
        journal._file.close()


@pytest.fixture
def journal(path, calls, open_journal):
    journal = open_journal(path, calls)
    journal.start()
    yield journal
    calls.gate.set()
    journal.stop()


def test_what_was_waited_for_is_there_after_a_power_cut(path, calls, journal, open_journal):
    journal.wait_durable(journal.append(entry("A")))
    journal.wait_durable(journal.append(entry("B", value={"perm": 6})))
    calls.power_cut()
    again = open_journal(path)
    assert again.take("topics") == [entry("A"), entry("B", value={"perm": 6})]
    assert again.take("topics") == []


def test_nobody_is_told_durable_before_the_sync_has_come_back(path, calls, journal, open_journal):
    calls.gate.clear()
    ticket = journal.append(entry("A"))
    with pytest.raises(OSError, match="not synced in time"):
        journal.wait_durable(ticket, 0.05)
    calls.power_cut()
    assert names(open_journal(path)) == []
    calls.gate.set()
    journal.wait_durable(ticket)


def test_an_append_alone_survives_the_process(path, journal, open_journal):
    journal.append(entry("A"))
    assert names(open_journal(path)) == ["A"]


def test_entries_that_come_during_a_sync_share_the_next(calls, journal):
    calls.syncs = 0
    calls.syncing.clear()  # the start made a sync, too
    calls.gate.clear()
    first = journal.append(entry("first"))
    assert calls.syncing.wait(WAIT_S)
    tickets = [journal.append(entry(f"T{number}")) for number in range(50)]
    assert (journal.durable, journal.written) == (0, tickets[-1])
    calls.gate.set()
    journal.wait_durable(first)
    for ticket in tickets:
        journal.wait_durable(ticket)
    assert calls.syncs == 2
    assert journal.durable == journal.written


def test_the_tail_torn_anywhere_costs_the_last_entry_only(path, calls, journal, open_journal):
    journal.wait_durable(journal.append(entry("A")))
    journal.wait_durable(journal.append(entry("B")))
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for size in range(second, len(whole)):
        path.write_bytes(whole[:size])
        torn = open_journal(path)
        torn.append(entry("C"))
        assert names(torn) == ["A"]
        torn.stop()
        assert names(open_journal(path)) == ["A", "C"]


@pytest.mark.parametrize("tail", [b"\0" * 40, b'deadbeef {"table":"topics","name":"X"}', b"\xff" * 9])
def test_rubbish_at_the_end_is_cut(path, tail, open_journal):
    path.parent.mkdir()
    path.write_bytes(encode_entry(entry("A")) + tail)
    journal = open_journal(path)
    assert path.read_bytes() == encode_entry(entry("A"))
    assert names(journal) == ["A"]


def test_a_damaged_line_costs_itself_only(path, open_journal):
    path.parent.mkdir()
    lines = [encode_entry(entry(name)) for name in "ABC"]
    lines[1] = lines[1].replace(b'"B"', b'"X"')
    path.write_bytes(b"".join(lines))
    assert names(open_journal(path)) == ["A", "C"]


@pytest.mark.parametrize(
    "line",
    [b"", b"00000000", b"xyz", b"00000000 {}", encode_entry({"table": 1, "name": "a"}), encode_entry({"name": "a"})],
)
def test_what_is_no_entry_is_none(line):
    assert decode_line(line.rstrip(b"\n")) is None


@pytest.mark.parametrize("short", [0, 1, 20])
def test_a_disk_that_is_full_refuses_the_entry_and_takes_the_next(path, calls, journal, short, open_journal):
    journal.append(entry("A"))
    size = path.stat().st_size
    calls.short_write = short
    with pytest.raises(OSError):
        journal.append(entry("B"))
    assert path.stat().st_size == size
    calls.write_error = None
    journal.wait_durable(journal.append(entry("C")))
    assert names(open_journal(path)) == ["A", "C"]


def test_a_write_that_falls_short_is_completed(path, calls, journal, open_journal):
    calls.pwrite = lambda fd, data, position: os.pwrite(fd, data[:7], position)
    journal.wait_durable(journal.append(entry("A")))
    journal.wait_durable(journal.append(entry("B")))
    assert names(open_journal(path)) == ["A", "B"]


def test_a_write_that_fails_leaves_no_trace(path, calls, journal):
    calls.write_error = errno.EIO
    with pytest.raises(OSError):
        journal.append(entry("A"))
    assert path.read_bytes() == b""


def test_a_failed_sync_is_never_followed_by_a_good_one(path, calls, journal):
    """After a failed fdatasync the kernel has dropped the pages; the next one would report success for nothing."""
    calls.sync_error = errno.EIO
    ticket = journal.append(entry("A"))
    with pytest.raises(OSError, match="could not be synced"):
        journal.wait_durable(ticket)
    with pytest.raises(OSError, match="could not be synced"):
        journal.append(entry("B"))
    calls.syncing.clear()
    journal.wakeup()
    assert not calls.syncing.wait(0.2)
    with pytest.raises(OSError):
        journal.wait_durable(ticket)


def test_a_journal_that_broke_is_whole_again_when_the_files_hold_everything(path, calls, journal, open_journal):
    calls.sync_error = errno.EIO
    ticket = journal.append(entry("A"))
    with pytest.raises(OSError):
        journal.wait_durable(ticket)
    journal.saved("topics", journal.written)
    journal.wait_durable(ticket)  # in the JSON file
    journal.wait_durable(journal.append(entry("B")))
    calls.power_cut()
    assert names(open_journal(path)) == ["B"]


def test_it_is_emptied_when_every_table_is_saved_and_not_before(path, journal, open_journal):
    journal.append(entry("T"))
    journal.append(entry("G", table="groups"))
    size = path.stat().st_size
    journal.saved("topics", 1)
    assert path.stat().st_size == size
    journal.append(entry("T2"))
    journal.sync_written()
    journal.saved("groups", 3)
    assert path.stat().st_size > size  # T2 is in no file
    journal.saved("topics", 3)
    assert path.stat().st_size == 0
    journal.wait_durable(journal.append(entry("T3")))
    assert names(open_journal(path)) == ["T3"]


def test_it_is_not_emptied_before_it_is_synced(path, calls, journal):
    """Otherwise a power cut could keep the entry that made a name, and lose the one that deleted it."""
    journal.wait_durable(journal.append(entry("T")))
    calls.gate.clear()
    ticket = journal.append(entry("T", value=None))
    journal.saved("topics", journal.written)
    assert path.stat().st_size > 0
    with pytest.raises(OSError, match="not synced in time"):
        journal.wait_durable(ticket, 0.05)
    calls.gate.set()
    journal.wait_durable(ticket)
    journal.stop()
    assert path.stat().st_size == 0


def test_what_a_dead_process_had_not_synced_is_synced_before_it_counts(path, calls, open_journal):
    path.parent.mkdir()
    path.write_bytes(encode_entry(entry("A")))
    journal = open_journal(path, calls)
    assert journal.durable == 1
    calls.power_cut()
    assert names(open_journal(path)) == ["A"]


def test_damage_is_taken_out_so_that_no_later_write_makes_an_entry_of_it(path, open_journal):
    path.parent.mkdir()
    stale = encode_entry(entry("B", value="stale"))
    path.write_bytes(bytes(len(encode_entry(entry("A")))) + stale)
    journal = open_journal(path)
    assert names(journal) == []
    assert path.read_bytes() == b""
    journal.append(entry("A"))
    assert names(open_journal(path)) == ["A"]


def test_entries_of_a_table_nobody_reads_are_kept(path, open_journal):
    path.parent.mkdir()
    path.write_bytes(encode_entry(entry("A", table="of a later release")) + encode_entry(entry("T")))
    journal = open_journal(path)
    journal.saved("topics", journal.written)
    assert path.stat().st_size > 0


def test_tickets_go_on_growing_when_it_was_emptied(journal):
    first = journal.append(entry("A"))
    journal.saved("topics", first)
    assert journal.append(entry("B")) > first


def test_stop_syncs_the_rest(path, calls, open_journal):
    journal = open_journal(path, calls)  # its thread never ran
    journal.append(entry("A"))
    journal.stop()
    calls.power_cut()
    assert names(open_journal(path)) == ["A"]


def test_who_waits_syncs_in_its_own_thread(path, calls, open_journal):
    journal = open_journal(path, calls)  # its thread does not run
    calls.syncs = 0
    journal.make_durable(journal.append(entry("A"), wake=False))
    assert calls.syncs == 1
    journal.make_durable(1)
    assert calls.syncs == 1
    calls.power_cut()
    assert names(open_journal(path)) == ["A"]


def test_those_who_wait_together_share_a_sync(calls, journal):
    """One of them syncs, and the next sync serves all that came meanwhile."""
    calls.syncs = 0
    calls.syncing.clear()
    calls.gate.clear()
    waiting = [threading.Thread(target=journal.make_durable, args=(journal.append(entry("first"), wake=False),))]
    waiting[0].start()
    assert calls.syncing.wait(WAIT_S)
    for number in range(20):
        ticket = journal.append(entry(f"T{number}"), wake=False)
        waiting.append(threading.Thread(target=journal.make_durable, args=(ticket,)))
        waiting[-1].start()
    calls.gate.set()
    for thread in waiting:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert journal.durable == journal.written
    assert calls.syncs == 2


def test_a_sync_of_who_waits_that_fails_is_told_and_never_followed_by_a_good_one(path, calls, journal):
    calls.syncs = 0
    calls.sync_error = errno.EIO
    with pytest.raises(OSError, match="could not be synced"):
        journal.make_durable(journal.append(entry("A"), wake=False))
    with pytest.raises(OSError, match="could not be synced"):
        journal.append(entry("B"))
    journal.work()
    assert calls.syncs == 0
    assert journal.durable == 0


def test_who_comes_behind_a_sync_that_hangs_gets_an_error_in_time(calls, journal, monkeypatch):
    monkeypatch.setattr(config_journal, "WAIT_S", 0.05)
    calls.syncing.clear()
    calls.gate.clear()
    journal.append(entry("A"))
    assert calls.syncing.wait(WAIT_S)
    with pytest.raises(OSError, match="not synced in time"):
        journal.make_durable(journal.append(entry("B"), wake=False))


def test_an_entry_nobody_waits_for_after_all_is_synced_when_its_table_is_saved(calls, journal):
    calls.syncs = 0
    ticket = journal.append(entry("A"), wake=False)
    journal.saved("topics", ticket)
    journal.wait_durable(ticket)
    assert calls.syncs == 1


def test_a_file_too_large_to_be_a_journal_is_not_read(tmp_path):
    path = tmp_path / "config.journal"
    with open(path, "wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(OSError, match="not ours"):
        ConfigJournal(path)


def test_a_full_one_takes_nothing_until_its_tables_are_saved(path):
    line = len(encode_entry(entry("T0")))
    journal = ConfigJournal(path, most_bytes=3 * line)
    for number in range(3):
        journal.append(entry(f"T{number}"), wake=False)
    with pytest.raises(OSError, match="full until the tables are saved"):
        journal.append(entry("T3"))
    assert path.stat().st_size == 3 * line
    journal.work()
    journal.saved("topics", journal.written)
    journal.append(entry("T4"), wake=False)
    assert journal.stop()
    assert names(ConfigJournal(path)) == ["T4"]
