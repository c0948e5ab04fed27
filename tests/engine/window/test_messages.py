"""Messages by time over a fixed snapshot, and one message by its place."""

import time

import pytest

from appliance.engine.cursors import encode_cursor
from appliance.engine.errors import InvalidInput, NotFound
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.window.messages.views import Cursor, cursor_of
from tests.support.engine import send_fields


def walk(admin, topic, **options):
    """Walk all pages; return (rows, pages)."""
    pages = [admin.messages.page(topic, **options)]
    limit = options.get("limit", 50)
    while pages[-1].next_cursor:
        pages.append(admin.messages.page(topic, cursor=pages[-1].next_cursor, limit=limit))
    return [row for page in pages for row in page.rows], pages


@pytest.fixture
def orders(running):
    """100 messages in four queues, interleaved: the nth of them has the body `n`."""
    running.put("Orders", b"0")
    sender = running.peers[-1]
    for n in range(1, 100):
        assert sender.ask(310, send_fields("Orders", n * n % 4), b"%d" % n).code == 0
    return running


def bodies(running, rows):
    return [int(running.window.messages.body_bytes(row.offset_id)) for row in rows]


@pytest.mark.parametrize("limit", [1, 7, 100, 500])
@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_give_every_message_once_in_order_of_storing(orders, limit, newest_first):
    rows, pages = walk(orders.window, "Orders", limit=limit, newest_first=newest_first)
    expected = list(range(100))
    assert bodies(orders, rows) == (expected[::-1] if newest_first else expected)
    assert {page.total for page in pages} == {100}
    assert pages[-1].seen == 100
    assert len(pages) == -(-100 // limit)


@pytest.mark.parametrize("newest_first", [True, False])
def test_new_messages_do_not_change_a_walk(orders, newest_first):
    first = orders.window.messages.page("Orders", limit=60, newest_first=newest_first)
    orders.put("Orders", *[b"777"] * 20, queue=1)
    second = orders.window.messages.page("Orders", cursor=first.next_cursor, limit=60)
    assert second.next_cursor is None
    assert (second.total, second.seen, len(second.rows)) == (100, 100, 40)
    assert 777 not in bodies(orders, first.rows + second.rows)
    assert orders.window.messages.page("Orders").total == 120


def test_one_queue_only(orders):
    rows, _ = walk(orders.window, "Orders", queue_id=1, newest_first=False, limit=20)
    assert {row.queue_id for row in rows} == {1}
    assert [row.queue_offset for row in rows] == list(range(50))


def test_a_span_of_time_holds_what_was_stored_in_it(running):
    running.put("Orders", b"1", b"2", queue=0)
    time.sleep(0.02)
    running.put("Orders", b"3", queue=1)
    time.sleep(0.02)
    running.put("Orders", b"4", queue=0)
    times = {
        int(running.window.messages.body_bytes(r.offset_id)): r.stored_at_ms
        for r in running.window.messages.page("Orders").rows
    }

    def found(**options):
        return sorted(bodies(running, running.window.messages.page("Orders", **options).rows))

    assert found(from_ms=times[3]) == [3, 4]
    assert found(from_ms=times[3] + 1) == [4]
    assert found(to_ms=times[3]) == [1, 2, 3]
    assert found(to_ms=times[3] - 1) == [1, 2]
    assert found(from_ms=times[3], to_ms=times[3]) == [3]
    assert found(from_ms=times[4] + 1) == []
    assert running.window.messages.page("Orders", from_ms=times[4] + 1).total == 0
    with pytest.raises(InvalidInput):
        found(from_ms=2, to_ms=1)


def test_messages_on_disk_and_in_memory_are_one_walk(make_running):
    running = make_running(store={"mapped_file_size_consume_queue": 200})
    running.put("Orders", *[b"%d" % n for n in range(55)])
    running.restart()
    running.put("Orders", *[b"%d" % n for n in range(55, 70)])
    queue = running.engine.broker.store.find_queue("Orders", 0)
    assert queue.max_offset == 70
    rows, _ = walk(running.window, "Orders", limit=25)
    assert bodies(running, rows) == list(range(70))[::-1]


def test_an_entry_whose_record_is_gone_is_skipped_and_counted(orders):
    store = orders.engine.broker.store
    store._flush_queues.stop()  # later messages stay in the tail
    orders.put("Orders", b"100")
    queue = store.find_queue("Orders", 0)
    queue.tail[-12:-8] = (0x7FFFFFFF).to_bytes(4, "big")
    rows, pages = walk(orders.window, "Orders", limit=30)
    assert (len(rows), pages[0].total) == (100, 101)
    assert pages[-1].seen == pages[-1].total


def test_a_cursor_is_checked(orders):
    cursor = orders.window.messages.page("Orders", limit=10).next_cursor
    assert cursor_of(cursor, "Orders").seen == 10
    orders.window.topic_commands.create("Others")
    wrong = [cursor[:-1] + ("0" if cursor[-1] != "0" else "1"), cursor[:-8], "", "zz", "é", cursor * 2]
    for text in wrong:
        with pytest.raises(InvalidInput):
            orders.window.messages.page("Orders", cursor=text)
    with pytest.raises(InvalidInput, match="another topic"):
        orders.window.messages.page("Others", cursor=cursor)


@pytest.mark.parametrize("low", [0, 2**62])
def test_a_forged_cursor_gives_nothing_but_messages_of_its_topic(orders, low):
    honest = cursor_of(orders.window.messages.page("Orders", limit=10).next_cursor, "Orders")
    orders.put("Secrets", *[b"s"] * 10)
    forged = encode_cursor(Cursor(honest.topic_crc, False, -1, low, 2**63 - 1, 0, 0, 2**62, 0))
    page = orders.window.messages.page("Orders", cursor=forged, limit=500)
    assert [row.topic for row in page.rows] == ["Orders"] * (100 if low == 0 else 0)


def test_questions_that_make_no_sense(orders):
    for options in ({"limit": 0}, {"limit": 501}, {"from_ms": -1}):
        with pytest.raises(InvalidInput):
            orders.window.messages.page("Orders", **options)
    with pytest.raises(NotFound):
        orders.window.messages.page("Nope")
    with pytest.raises(NotFound):
        orders.window.messages.page("Orders", queue_id=99)
    assert orders.window.messages.page("Orders", queue_id=3).total >= 0


# --- one message


def test_a_message_is_found_by_its_place_and_by_its_offset_id(running):
    text = encode_properties({"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "A" * 32, "colour": "red"})
    running.put("Orders", b"body", queue=2, properties=text, h=7)
    by_place = running.window.messages.detail("Orders/2/0")
    assert running.window.messages.detail(by_place.offset_id) == by_place
    row = by_place
    assert (row.tags, row.keys, row.unique_id, row.body_bytes) == ("paid", ("k1", "k2"), "A" * 32, 4)
    assert by_place.properties["colour"] == "red"
    assert (by_place.flag, by_place.compression, by_place.transaction, by_place.crc_ok) == (7, None, "none", True)
    assert [line.what for line in by_place.story] == ["born", "stored"]
    assert by_place.story[0].at_ms == 1700000000000


def test_a_body_that_was_altered_on_the_disk_is_said(running):
    """Pulls send it as it is, and the client checks it; a person who looks at the message sees the damage."""
    running.put("Orders", b"body", queue=2)
    row = running.window.messages.detail("Orders/2/0")
    log = running.data_dir / "store" / "commitlog" / f"{0:020d}"
    at = log.read_bytes().index(b"body", row.physical_offset)
    with open(log, "r+b") as file:
        file.seek(at)
        file.write(b"bodx")
    assert running.window.messages.detail("Orders/2/0").crc_ok is False


@pytest.mark.parametrize(
    "ref", ["", "Orders", "Orders/0", "Orders/x/0", "Orders/0/-1", "12", "Z" * 32, "a/b/c/d", "Orders/0/" + "9" * 20]
)
def test_what_is_no_place_is_refused(running, ref):
    with pytest.raises(InvalidInput):
        running.window.messages.detail(ref)


def test_a_place_without_a_message(running):
    running.put("Orders", b"x")
    offset_id = running.window.messages.detail("Orders/0/0").offset_id
    other_host = "01020304" + offset_id[8:]
    in_the_middle = offset_id[:-2] + "01"
    for ref in ("Orders/0/1", "Orders/9/0", "Nope/0/0", other_host, in_the_middle, offset_id[:16] + "F" * 16):
        with pytest.raises(NotFound):
            running.window.messages.detail(ref)


def test_a_record_inside_a_body_is_no_message(running):
    """A body may hold bytes that look like a record, but the queue that they name does not lead there."""
    from appliance.engine.protocol.record import decode_record, encode_record

    running.put("Orders", b"innocent")
    store = running.engine.broker.store
    honest = decode_record(store.log.read(0, store.published))
    running.put("Orders", b"x")
    start = store.published + 88  # where the next body begins
    host = bytes.fromhex(running.window.messages.detail("Orders/0/0").offset_id[:16])
    forged = encode_record(honest._replace(physical_offset=start, body=b"forged"), bytes(8), host)
    running.put("Orders", forged)
    assert decode_record(store.log.read(start, len(forged))).body == b"forged", "the bytes are there"
    with pytest.raises(NotFound):
        running.window.messages.detail(host.hex() + f"{start:016x}")


def test_who_has_a_message(running):
    text = encode_properties({"TAGS": "paid"})
    running.put("Orders", b"0", b"1", b"2", properties=text)
    for group, tags in (("done", "*"), ("waits", "paid"), ("vip", "vip"), ("new", "*")):
        running.join(f"{group}-1", group, tags=tags)
    running.join("b-1", "radio", model="BROADCASTING")
    running.commit("done", "Orders", 0, 3)
    running.commit("waits", "Orders", 0, 1)
    running.commit("vip", "Orders", 0, 3)
    states = {state.group: state for state in running.window.messages.detail("Orders/0/2").groups}
    assert {group: state.state for group, state in states.items()} == {
        "done": "consumed", "waits": "waiting", "vip": "filtered", "new": "unknown", "radio": "unknown",
    }  # fmt: skip
    assert states["waits"].ahead == 1
    assert states["new"].why.code == "never_committed"
    assert states["radio"].why.code == "broadcast_keeps_offsets"


def test_the_raw_record_field_by_field(running):
    running.put("Orders", b"body", properties=encode_properties({"KEYS": "k"}))
    raw = running.window.messages.raw("Orders/0/0")
    data = running.engine.broker.store.log.read(0, raw.size_bytes)
    at = 0
    for _, position, size, _ in raw.fields:
        assert position == at
        at += size
    assert at == raw.size_bytes == len(data)
    fields = {name: (position, value) for name, position, _, value in raw.fields}
    assert data[fields["body"][0] :][:4] == b"body"
    assert data[fields["topic"][0] :][:6] == b"Orders"
    assert fields["magic"][1] == "0xdaa320a7 (V1)"
    assert bytes.fromhex("".join(line[1] for line in raw.dump)) == data
    assert len(running.window.messages.raw("Orders/0/0", dump_bytes=32).dump) == 2


def test_hostile_names_and_bodies_come_back_as_they_are(running):
    nasty = "<script>alert('ü')</script>\x00\u202e"
    text = encode_properties({"KEYS": nasty.replace(" ", ""), "TAGS": nasty, "a%(b)s": nasty})
    running.put("Orders", nasty.encode(), properties=text)
    detail = running.window.messages.detail("Orders/0/0")
    assert detail.tags == nasty
    assert detail.properties["a%(b)s"] == nasty
    assert running.window.messages.body("Orders/0/0").kind == "binary", "a NUL is no text"
