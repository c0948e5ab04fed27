"""Messages that retention deletes unread are recorded."""

import json

import pytest

from appliance.engine.broker import deleted_unread
from appliance.engine.broker.deleted_unread import NAME, DeletedUnread, DeletedUnreadTable
from appliance.engine.broker.offsets import QueueOffsets
from appliance.engine.disk import Disk
from appliance.engine.store.retention.clean_queues import Raised
from tests.engine.test_format_pages import blocks_of

QUARTER_MS = 900_000
NOW_MS = 1_700_000_000_000


def entry(group, topic, **queues):
    found = QueueOffsets(topic, group)
    found.queues = {int(name[1:]): offset for name, offset in queues.items()}
    return found


class Made:
    """A table, the offsets that it looks at, and its clock."""

    def __init__(self, directory, *entries):
        self.entries, self.now_ms = list(entries), NOW_MS
        self.path = directory / NAME
        self.open()

    def open(self):
        self.table = DeletedUnreadTable(self.path, Disk(), lambda: self.entries, lambda: self.now_ms)
        return self.table


def test_messages_below_the_new_minimum_that_a_group_had_not_consumed(tmp_path):
    made = Made(tmp_path, entry("behind", "T", q0=5, q1=20), entry("far", "T", q0=0), entry("done", "T", q0=10))
    made.table.deleted([Raised("T", 0, 2, 10), Raised("T", 1, 0, 15), Raised("T", 7, 0, 9), Raised("other", 0, 0, 9)])
    wanted = (DeletedUnread("behind", "T", 0, 5, 10, 5, NOW_MS), DeletedUnread("far", "T", 0, 2, 10, 8, NOW_MS))
    assert made.table.rows == made.open().rows == wanted


@pytest.mark.parametrize(("group", "topic"), [("CID_RMQ_SYS_TRANS", "T"), ("TOOLS_CONSUMER", "T"), ("g", "%DLQ%g")])
def test_the_brokers_own_groups_and_dead_letters_are_no_loss(tmp_path, group, topic):
    made = Made(tmp_path, entry(group, topic, q0=0))
    made.table.deleted([Raised(topic, 0, 0, 10)])
    assert made.table.rows == ()
    assert not made.path.exists()


def test_rounds_of_a_quarter_of_an_hour_are_one_row_and_the_fact_stays_when_the_offset_moves_on(tmp_path):
    made = Made(tmp_path, entry("g", "T", q0=0))
    made.table.deleted([Raised("T", 0, 0, 10)])
    made.now_ms += 1000
    made.table.deleted([Raised("T", 0, 10, 30)])
    made.entries[0].queues[0] = 35
    made.now_ms += QUARTER_MS
    made.table.deleted([Raised("T", 0, 30, 40)])
    assert made.open().rows == (
        DeletedUnread("g", "T", 0, 0, 30, 30, NOW_MS + 1000),
        DeletedUnread("g", "T", 0, 35, 40, 5, made.now_ms),
    )


def test_the_queues_of_the_oldest_rows_are_summed_up(tmp_path, monkeypatch):
    monkeypatch.setattr(deleted_unread, "MOST_ROWS", 4)
    made = Made(tmp_path, entry("g", "T", **{f"q{n}": 0 for n in range(3)}))
    made.table.deleted([Raised("T", queue_id, 5, 10) for queue_id in range(3)])
    made.now_ms += QUARTER_MS
    made.table.deleted([Raised("T", queue_id, 10, 12) for queue_id in range(3)])
    assert made.open().rows == (
        DeletedUnread("g", "T", -1, 0, 15, 15, NOW_MS),
        *(DeletedUnread("g", "T", queue_id, 10, 12, 2, made.now_ms) for queue_id in range(3)),
    )


def test_one_cleaning_of_more_than_fits_loses_no_message_of_the_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(deleted_unread, "MOST_ROWS", 4)
    made = Made(tmp_path, *(entry(f"g{n}", "T", q0=0, q1=0) for n in range(9)))
    for begin in (0, 10):
        for one in made.entries:
            one.queues = dict.fromkeys(one.queues, begin + (one.group != "g5"))
        made.table.deleted([Raised("T", queue, begin, begin + 10) for queue in range(2)])
        made.now_ms += QUARTER_MS
    rows = made.open().rows
    assert len(rows) == 4
    assert sum(one.messages for one in rows) == 2 * 2 * (8 * 9 + 10)
    assert rows[0] == DeletedUnread("*", "*", -1, 0, 164, 164, NOW_MS)
    assert rows[1] == DeletedUnread("g5", "T", -1, 0, 20, 20, NOW_MS + QUARTER_MS), "the worst keeps its row"
    assert (rows[-1].group, rows[-1].messages) == ("*", 2 * 9 * 7)


def test_a_quarter_before_the_newest_ones_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(deleted_unread, "MOST_ROWS", 3)
    made = Made(tmp_path, entry("g", "T", q0=0))
    for number in range(5):
        made.table.deleted([Raised("T", 0, number, number + 1)])
        made.now_ms += QUARTER_MS
    assert [one.begin for one in made.open().rows][1:] == [3, 4]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"rows": [[1]]}', '{"rows": [[1, 2, 3, 4, 5, 6, 7]]}', "[" * 100_000]
)
def test_a_damaged_file_begins_anew(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    assert Made(tmp_path).table.rows == ()


def test_a_full_disk_loses_no_row_of_this_life(tmp_path):
    made = Made(tmp_path / "gone", entry("g", "T", q0=0))
    made.table.deleted([Raised("T", 0, 0, 10)])
    assert [one.messages for one in made.table.rows] == [10]


def test_the_file_is_the_one_of_its_page(tmp_path):
    made = Made(tmp_path, entry("clicks", "events", q3=12))
    made.table.deleted([Raised("events", 3, 0, 20)])
    [example] = blocks_of("deleted-unread.md")
    assert json.loads(made.path.read_text()) == json.loads(example)
