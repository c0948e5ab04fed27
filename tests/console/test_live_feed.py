"""One look and one rendering for all watching browsers."""

import asyncio
from types import SimpleNamespace

import pytest

from appliance import runtime
from appliance.console.live import feed as live_feed
from appliance.console.live.feed import LiveFeed
from appliance.engine.errors import Unavailable
from tests.support.waiting import wait_in_loop


class Frames:
    """Frames as they come; counts who asks."""

    def __init__(self, frames):
        self.frames = list(frames)
        self.asked = 0

    def frame(self):
        self.asked += 1
        found = self.frames.pop(0) if len(self.frames) > 1 else self.frames[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def window(monkeypatch):
    monkeypatch.setattr(live_feed, "LOOK_EVERY_S", 0.02)

    def show(*frames):
        made = Frames(frames)
        monkeypatch.setattr(runtime, "window", lambda: SimpleNamespace(live=made))
        return made

    return show


async def _watch(feed, events, got):
    while len(got) < events:
        event = await feed.next()
        got.append(event)
        if event is None:
            return


def test_all_streams_get_each_frame_and_the_window_is_asked_once_for_all(window):
    made = window((1, b"{}"), (1, b"{}"), (2, b'{"n":2}'))
    streams = [[] for _ in range(20)]

    async def run():
        feed = LiveFeed()
        await asyncio.gather(*(_watch(feed, 2, got) for got in streams))

    asyncio.run(asyncio.wait_for(run(), 60))
    assert all(got == [b"id: 1\ndata: {}\n\n", b'id: 2\ndata: {"n":2}\n\n'] for got in streams)
    assert all(got[1] is streams[0][1] for got in streams), "rendered once"
    assert made.asked <= 5


def test_who_comes_late_begins_with_the_newest(window):
    window((7, b"{}"))

    async def run():
        feed = LiveFeed()
        assert feed.latest == b""
        first = asyncio.create_task(_watch(feed, 2, []))
        while not feed.latest:
            await asyncio.sleep(0.01)
        first.cancel()
        return feed.latest

    assert asyncio.run(run()) == b"id: 7\ndata: {}\n\n"


def test_nobody_looks_when_nobody_watches(window):
    made = window((1, b"{}"), (2, b"{}"))

    async def run():
        feed = LiveFeed()
        await _watch(feed, 1, [])
        await wait_in_loop(lambda: feed._looker is None, "it to look no more")
        asked = made.asked
        await asyncio.sleep(0.2)
        assert made.asked == asked
        assert feed.latest == b"", "what is old is not shown as new"
        await asyncio.wait_for(_watch(feed, 1, []), 60)

    asyncio.run(run())


def test_a_quiet_stream_shows_signs_of_life(window, monkeypatch):
    monkeypatch.setattr(live_feed, "HEARTBEAT_S", 0.05)
    window((1, b"{}"))
    got = []
    asyncio.run(asyncio.wait_for(_watch(LiveFeed(), 2, got), 60))
    assert got == [b"id: 1\ndata: {}\n\n", b": still here\n\n"]


@pytest.mark.parametrize("error", [Unavailable("gone"), runtime.EngineNotRunning("gone"), RuntimeError("a bug")])
def test_streams_end_when_there_is_nothing_to_look_at(window, error):
    window((1, b"{}"), error)
    streams = [[], [], []]

    async def run():
        feed = LiveFeed()
        await asyncio.gather(*(_watch(feed, 9, got) for got in streams))

    asyncio.run(asyncio.wait_for(run(), 60))
    assert streams == [[b"id: 1\ndata: {}\n\n", None]] * 3
