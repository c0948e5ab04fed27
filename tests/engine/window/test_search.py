"""One box: places, offset ids, unique ids and keys over all topics, over a snapshot, page by page."""

import pytest

from appliance.engine.errors import InvalidInput, NotFound

UNIQUE = "7F0000016AB14E0E2F2A69208FBA%04X"


def keyed(keys="", unique=""):
    return (f"KEYS\x01{keys}\x02" if keys else "") + (f"UNIQ_KEY\x01{unique}\x02" if unique else "")


def pages(admin, text, between=lambda: None, **options):
    found, cursor, count = [], None, 0
    while True:
        page = admin.search.page(text, cursor=cursor, **options)
        found += page.hits
        cursor, count = page.next_cursor, count + 1
        if cursor is None:
            return found, count
        between()
        assert count < 1000


def told(hits):
    return [(hit.matched, hit.message.topic, hit.message.queue_offset) for hit in hits]


@pytest.fixture
def shop(running):
    """Three topics, each with a message of the key `order-1`; its number is the queue offset."""
    for number, topic in enumerate(("Carts", "Orders", "Returns")):
        running.put(topic, b"a", b"b", properties=keyed("other", UNIQUE % number))
        running.put(topic, b"c", properties=keyed("order-1 vip", UNIQUE % (100 + number)))
    return running


def test_a_key_is_found_in_every_topic(shop):
    page = shop.window.search.page("order-1")
    assert told(page.hits) == [("key", "Returns", 2), ("key", "Orders", 2), ("key", "Carts", 2)]
    assert (page.kinds, page.text, page.next_cursor, page.truncated) == (("key",), "order-1", None, False)
    assert page.searched_topics == page.topics >= 3
    assert told(shop.window.search.page("  vip ", topic="Orders").hits) == [("key", "Orders", 2)]
    assert shop.window.search.page("order").hits == shop.window.search.page("ORDER-1").hits == ()


def test_a_unique_id_an_offset_id_and_a_place_are_recognised(shop):
    [hit] = shop.window.search.page(UNIQUE % 101).hits
    assert told([hit]) == [("unique_id", "Orders", 2)]
    page = shop.window.search.page(hit.message.offset_id)
    assert (page.kinds, told(page.hits)) == (("unique_id", "offset_id", "key"), [("offset_id", "Orders", 2)])
    page = shop.window.search.page("Orders/0/2")
    assert (page.kinds, told(page.hits)) == (("place", "key"), [("place", "Orders", 2)])
    for nothing in ("Orders/0/3", "Orders/9/0", "Nowhere/0/0", "F" * 32, "0" * 56, "/1/2", "Orders/0/" + "9" * 19):
        assert shop.window.search.page(nothing).hits == (), nothing


def test_a_key_that_looks_like_something_else_is_found_too(running):
    running.put("T", b"x", properties=keyed("2024/1/17 " + "A" * 32))
    running.put("T", b"y", properties=keyed("T/0/0"))
    assert told(running.window.search.page("2024/1/17").hits) == [("key", "T", 0)]
    assert told(running.window.search.page("A" * 32).hits) == [("key", "T", 0)]
    assert told(running.window.search.page("T/0/0").hits) == [("place", "T", 0), ("key", "T", 1)]
    # Found once, although the unique id is also a key of the same message.
    running.put("T", b"z", properties=keyed("same", "same"))
    assert told(running.window.search.page("same").hits) == [("unique_id", "T", 2)]


@pytest.mark.parametrize("limit", [1, 3, 500])
def test_pages_hold_every_hit_once_while_messages_come(running, limit):
    for number in range(12):
        running.put(f"T{number % 3}", b"x", properties=keyed("k"))
    late = lambda: running.put("T2", b"late", properties=keyed("k"))  # noqa: E731
    hits, count = pages(running.window, "k", late, limit=limit)
    assert told(hits) == [("key", f"T{n}", offset) for offset in (3, 2, 1, 0) for n in (2, 1, 0)]
    assert count >= 12 // limit


def test_a_page_that_runs_out_of_time_goes_on(shop, monkeypatch):
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 0.0)
    page = shop.window.search.page("order-1")
    assert (told(page.hits), page.truncated) == ([("key", "Returns", 2)], True)
    rest, _ = pages(shop.window, "order-1")
    assert [hit.message.topic for hit in rest] == ["Returns", "Orders", "Carts"]
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 60_000.0)
    page = shop.window.search.page("order-1", cursor=page.next_cursor)
    assert [hit.message.topic for hit in page.hits] == ["Orders", "Carts"]
    assert not page.truncated


def test_times_bound_keys(shop):
    at = shop.window.search.page("vip", topic="Orders").hits[0].message.stored_at_ms
    assert [h.message.topic for h in shop.window.search.page("vip", from_ms=at, to_ms=at).hits].count("Orders") == 1
    assert shop.window.search.page("vip", from_ms=at + 60_000).hits == ()
    assert shop.window.search.page("vip", to_ms=at - 60_000).hits == ()
    assert len(shop.window.search.page("Orders/0/2", to_ms=1).hits) == 1, "a place is named, not sought"


def test_topics_out_of_reach_are_not_told(shop):
    reach = lambda topic: topic != "Orders"  # noqa: E731
    page = shop.window.search.page("order-1", may_see=reach)
    assert [hit.message.topic for hit in page.hits] == ["Returns", "Carts"]
    assert page.topics == shop.window.search.page("order-1").topics - 1
    place = shop.window.search.page("Orders/0/2").hits[0].message
    for text in ("Orders/0/2", place.offset_id, place.unique_id):
        assert shop.window.search.page(text, may_see=reach).hits == ()
    assert shop.window.search.page("order-1", topic="Orders", may_see=reach).hits == ()


def test_nothing_to_search_finds_nothing(shop):
    for text in ("", "   ", "x" * 1025):
        page = shop.window.search.page(text)
        assert (page.text, page.kinds, page.hits, page.next_cursor, page.truncated) == ("", (), (), None, False)


def test_what_is_wrong_is_said(shop):
    cursor = shop.window.search.page("order-1", limit=1).next_cursor
    assert cursor is not None
    for options, field in (
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"from_ms": -1}, "from_ms"),
        ({"to_ms": 1 << 63}, "to_ms"),
        ({"from_ms": 2, "to_ms": 1}, "to_ms"),
        ({"cursor": "00"}, "cursor"),
        ({"cursor": "xyz"}, "cursor"),
        ({"cursor": cursor[:-1] + ("0" if cursor[-1] != "0" else "1")}, "cursor"),
        ({"cursor": cursor, "from_ms": 5}, "cursor"),
        ({"cursor": cursor, "copies": True}, "cursor"),
    ):
        with pytest.raises(InvalidInput) as error:
            shop.window.search.page("order-1", **options)
        assert error.value.field == field
    with pytest.raises(InvalidInput):
        shop.window.search.page("vip", cursor=cursor)
    with pytest.raises(NotFound):
        shop.window.search.page("order-1", topic="Nowhere")


def test_without_an_index_places_are_still_found(make_running):
    running = make_running(store={"message_index_enable": False})
    running.put("T", b"x", properties=keyed("k"))
    page = running.window.search.page("k")
    assert (page.hits, page.index_enabled) == ((), False)
    assert len(running.window.search.page("T/0/0").hits) == 1


def test_a_check_says_how_the_index_is(running, make_running):
    def check(running):
        return next(check for check in running.window.checks() if check.name == "index")

    running.put("T", b"x", properties=keyed("k"))
    assert (check(running).level, check(running).sentence.code) == ("ok", "index_current")
    index = running.engine.broker.store.index
    index.failure = "no room"
    assert (check(running).level, str(check(running).sentence)) == (
        "failed",
        "The key index cannot be written; trying again: no room.",
    )
    index.failure = None
    running.window.search.page("k")
    assert running.window.metrics()["index_behind_bytes"] == 0
    assert running.window.metrics()["index_files"] == 1
    off = make_running(store={"message_index_enable": False})
    assert check(off).sentence.code == "index_off"


def test_the_index_is_behind_only_if_it_lacks_what_was_there_before_the_search(shop, monkeypatch):
    search, index = shop.window.search, shop.engine.broker.store.index
    assert search.page("order-1").index_behind_bytes == 0
    newest = search.query.newest

    def traffic(*asked):
        monkeypatch.setattr(index, "work", lambda: False)
        shop.put("Carts", b"new", properties=keyed("order-1"))
        return newest(*asked)

    monkeypatch.setattr(search.query, "newest", traffic)
    page = search.page("order-1")
    assert (len(page.hits), page.index_behind_bytes) == (3, 0)
    behind = index.behind
    assert behind > 0
    monkeypatch.setattr(search.query, "newest", newest)
    monkeypatch.setattr("appliance.engine.window.messages.search.CATCH_UP_S", 0.1)  # it does not catch up
    late = search.page("order-1")
    assert (len(late.hits), late.index_behind_bytes) == (3, behind)
    assert search.page("  ").index_behind_bytes == 0


def test_ids_are_found_as_people_type_them(shop):
    unique = UNIQUE % 101
    for text in (unique.lower(), f"  {unique} ", unique[:20] + unique[20:].lower()):
        assert told(shop.window.search.page(text).hits) == [("unique_id", "Orders", 2)]
    offset_id = shop.window.search.page(unique).hits[0].message.offset_id
    assert told(shop.window.search.page(offset_id.lower()).hits) == [("offset_id", "Orders", 2)]
    assert pages(shop.window, (UNIQUE % 0).lower(), limit=1)[0] == pages(shop.window, UNIQUE % 0, limit=50)[0]


def test_a_message_is_asked_for_by_its_unique_id(shop):
    for text in (UNIQUE % 101, (UNIQUE % 101).lower()):
        assert shop.window.messages.detail(text).queue_offset == 2
        assert shop.window.messages.body_bytes(text) == b"c"
    for wrong in ("F" * 32, "0" * 56):
        with pytest.raises(NotFound):
            shop.window.messages.detail(wrong)
    with pytest.raises(InvalidInput):
        shop.window.messages.detail("order-1")  # a key is no place: several messages may have it


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_of_a_topic_that_was_deleted_and_made_again_is_not_found(shop, restarts):
    [hit] = shop.window.search.page(UNIQUE % 101).hits
    assert shop.peer().ask(215, {"topic": "Orders"}).code == 0
    shop.put("Orders", b"new", properties=keyed("order-1 vip", UNIQUE % 201))
    if restarts:
        shop.restart()
    assert [topic for _, topic, _ in told(shop.window.search.page("vip").hits)] == ["Orders", "Returns", "Carts"]
    for ref in (UNIQUE % 101, hit.message.offset_id):
        assert shop.window.search.page(ref).hits == ()
        with pytest.raises(NotFound):
            shop.window.messages.detail(ref)
    assert shop.window.messages.detail(UNIQUE % 201).topic == "Orders"


def test_of_copies_with_one_id_the_one_of_the_users_topic_is_meant(shop):
    unique = UNIQUE % 500
    for topic in ("%RETRY%A", "Zoo", "%DLQ%A"):
        shop.put(topic, topic.encode(), properties=keyed("", unique))
    assert shop.window.messages.body_bytes(unique) == b"Zoo"


@pytest.mark.parametrize(
    ("place", "note"),
    [
        ("Orders/0/99999", "Queue 0 of Orders ends at 3."),
        ("Orders/0/3", "Queue 0 of Orders ends at 3."),
        ("Orders/1/0", "Queue 1 of Orders has no messages."),
        ("Orders/77/0", "The topic Orders has only 4 queues, and no queue 77."),
        ("Nowhere/0/0", "There is no topic Nowhere."),
        ("Orders/0/2", "None"),
        ("order-1", "None"),
    ],
)
def test_a_place_without_a_message_says_where_the_queue_ends(shop, place, note):
    assert str(shop.window.search.page(place).place_note) == note
    if note != "None" and place != "Nowhere/0/0":
        assert shop.window.search.page(place, may_see=lambda topic: topic != "Orders").place_note is None
