"""The page of the live tail, and what waits for a browser that does not keep up."""

import asyncio
import re

import msgspec
import pytest

from appliance.console.live import tail as live_tail
from appliance.console.live import web_sockets
from appliance.console.live.tail import LiveTail, TooMany, Viewer, frame_of, wish_of
from appliance.console.serving.turns import Turn, Turns
from appliance.engine.window.messages.snapshots import TailRow
from appliance.engine.window.messages.tail import TailLook

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>"
ROW = TailRow(0, 1, "A", None, 1, 1, None, (), 0, None, False, False)


def look(shown: int, filtered: int = 0) -> TailLook:
    return TailLook((ROW,) * shown, shown + filtered, filtered, 0, 0)


def frames(viewer: Viewer) -> list[dict]:
    async def take() -> list[dict]:
        found = []
        while (text := await viewer.next(0)) is not None:
            found.append(msgspec.json.decode(text))
        return found

    return asyncio.run(take())


def test_what_does_not_fit_is_counted_and_told_once():
    viewer = Viewer(1)
    for _ in range(live_tail.WAITING_FRAMES + 5):
        viewer.offer(frame_of(look(2, filtered=3)), look(2, filtered=3))
    *kept, told = frames(viewer)
    assert len(kept) == live_tail.WAITING_FRAMES
    assert told == {"passed": 25, "filtered": 15, "left_out": 0, "unread": 0, "dropped": 10}
    assert frames(viewer) == []


def test_what_waits_is_bounded_in_bytes():
    viewer = Viewer(1)
    viewer.offer("x" * live_tail.WAITING_BYTES, look(1))
    viewer.offer("y", look(1))
    assert viewer._bytes == live_tail.WAITING_BYTES
    assert viewer._untold["dropped"] == 1


def test_a_pause_takes_what_waits_along():
    viewer = Viewer(1)
    viewer.offer("{}", look(2))
    viewer.pause(True)
    viewer.offer("{}", look(3))
    assert frames(viewer) == []
    viewer.pause(False)
    assert [frame["held_back"] for frame in frames(viewer)] == [5]


def test_viewers_with_one_wish_share_one_look_and_when_they_leave_nobody_looks(broker, topic):
    async def run() -> None:
        tails = LiveTail(asyncio.get_running_loop())
        wish = wish_of({"topic": topic}, bodies=False)
        viewers = [Viewer(number) for number in range(3)]
        for viewer in viewers:
            tails.add(wish, viewer)
        thread = tails._thread
        assert thread is not None
        broker.sender.send(topic, b"x")
        texts = [await viewer.next(60) for viewer in viewers]
        assert texts[0] is texts[1] is texts[2], "rendered once"
        for viewer in viewers:
            tails.remove(wish, viewer)
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()
        tails.add(wish, viewers[0])
        broker.sender.send(topic, b"x")
        assert await viewers[0].next(60) is not None, "and again"
        tails.remove(wish, viewers[0])

    asyncio.run(asyncio.wait_for(run(), 300))


def test_there_are_not_too_many(broker, topic):
    async def run() -> None:
        tails = LiveTail(asyncio.get_running_loop())
        wish = wish_of({"topic": topic}, bodies=False)
        present = []

        def add(user: int) -> None:
            viewer = Viewer(user)
            tails.add(wish, viewer)
            present.append(viewer)

        for number in range(live_tail.STREAMS):
            add(number // live_tail.STREAMS_EACH)
        with pytest.raises(TooMany) as refused:
            add(0)
        assert refused.value.whose == "yours"
        with pytest.raises(TooMany) as refused:
            add(1000)
        assert refused.value.whose == "all"
        for viewer in present:
            tails.remove(wish, viewer)

    asyncio.run(asyncio.wait_for(run(), 300))


def test_the_page_says_what_it_needs_and_where_the_socket_is(client_as, broker, topic):
    page = client_as("viewer").get("/messages/tail/", {"topic": topic, "tags": "a || b"}).content.decode()
    assert re.search(rf'data-url="/messages/tail/\?topic={topic}&amp;tags=a\+%7C%7C\+b"', page)
    assert "<noscript>" in page
    assert f'href="/messages/?topic={topic}"' in page
    assert "You see no bodies" in page
    assert (
        "You see no bodies"
        not in client_as("admin", "may_read_bodies").get("/messages/tail/", {"topic": topic}).content.decode()
    )


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({}, 200, "Choose a topic to watch"),
        ({"topic": "no-such"}, 404, "There is no topic no-such."),
        ({"expression": "a >"}, 400, "This is no SQL92 expression"),
        ({"one_in": "0"}, 400, "one_in must be between 1 and"),
        ({"per_second": "x"}, 400, "is not a whole number"),
        ({"tags": HOSTILE, "key": HOSTILE, "expression": f"a = '{HOSTILE}'"}, 200, "&lt;script&gt;"),
    ],
)
def test_what_is_asked_wrongly_is_said_and_nothing_is_opened(client_as, broker, topic, asked, status, said):
    query = asked if not asked or "topic" in asked else {"topic": topic} | asked
    response = client_as("viewer").get("/messages/tail/", query)
    page = response.content.decode()
    assert response.status_code == status
    assert said in page
    assert "<script>alert" not in page
    assert ("tail.js" in page) == (status == 200 and bool(query))


def test_a_handshake_waits_for_its_turn_as_a_page_does(db):
    scope = {
        "type": "websocket", "path": "/messages/tail/", "query_string": b"topic=a", "headers": [(b"host", b"a")],
        "client": ("192.0.2.1", 1), "subprotocols": [],
    }  # fmt: skip

    async def knock() -> tuple[list[str], list[str]]:
        turns, said = Turns(_nobody), []
        messages = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1006}])

        async def receive():
            return next(messages)

        async def send(message):
            said.append(message["type"])

        async with Turn(turns, {**scope, "type": "http", "method": "GET"}).again():
            task = asyncio.create_task(web_sockets.application(scope, receive, send, turns.run))
            while not turns._pages._waiting:
                await asyncio.sleep(0)
            early = list(said)
        await task
        return early, said

    assert asyncio.run(knock()) == ([], ["websocket.close"])


async def _nobody(*_arguments) -> None: ...
