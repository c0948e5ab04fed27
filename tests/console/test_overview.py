"""The overview, what every page has in common, and the stream behind the live parts."""

import json

import pytest

from appliance import runtime
from appliance.console.live import streams
from appliance.console.pages.template_tags import as_duration, thousands
from tests.support.waiting import wait_for


def test_without_a_broker_the_page_tells_addresses_version_and_uptime(client_as, serve):
    serve(up_s=3 * 3600 + 125)
    page = client_as("viewer").get("/").content.decode()
    for part in ("10.0.0.5:10911", "10.0.0.5:9876", "v0.1.0", "3 h 2 min", "No broker is running in this process."):
        assert part in page


def test_without_an_engine_the_page_says_so(client_as):
    response = client_as("viewer").get("/")
    assert response.status_code == 503
    assert "RocketBox is starting or stopping" in response.content.decode()


def test_the_page_shows_the_brokers_own_numbers(client_as, broker, topic):
    broker.sender.send(topic, b"one")
    viewer = client_as("viewer")

    def page_with_count():
        """Return the page. Not if a message that an earlier test left comes due in between."""
        page = viewer.get("/").content.decode()
        return f'data-count="put_total">{thousands(broker.overview.snapshot().put_total)}<' in page and page

    page = wait_for(page_with_count, "the page and the broker to agree")
    assert broker.overview.snapshot().broker_address in page
    assert "Needs you" in page
    assert page.index("Needs you") < page.index("Last ten minutes"), "what needs a person comes before charts"


def test_what_needs_a_person_links_to_its_group(client_as, broker, topic, monkeypatch):
    from appliance.engine.window.sentences import say
    from appliance.engine.window.snapshots import Need

    needs = (Need("stuck", "group", "a|b%c", say("stuck", group="a|b%c", lag=12_904, idle_span=18 * 60_000)),)
    real = broker.overview.snapshot()
    import dataclasses

    monkeypatch.setattr(type(broker.overview), "snapshot", lambda self: dataclasses.replace(real, needs=needs))
    page = client_as("viewer").get("/").content.decode()
    assert "a backlog of 12\u202f904," in page
    assert 'href="/groups/a%7Cb%25c/diagnosis/"' in page


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "1.5 GiB of the disk are free (50.0 % used)."), ("zh-hans", "磁盘可用 1.5 GiB（已用 50.0 %）。")],
)
def test_a_sentence_is_told_in_the_readers_language_with_readable_sizes(language, words):
    from django.utils import translation

    from appliance.console.templatetags.pages import translated
    from appliance.engine.window.sentences import say

    with translation.override(language):
        assert translated(say("disk_roomy", free_bytes=3 << 29, used_percent=50.0)) == words


async def _first_frames(client, count):
    response = await client.get("/live/")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    got = []
    async for part in response.streaming_content:
        got.append(part)
        if len(got) > count:
            break
    await response.streaming_content.aclose()
    return got


@pytest.mark.django_db(transaction=True)
def test_a_stream_carries_the_windows_frame(client_as, broker):
    from asgiref.sync import async_to_sync
    from django.test import AsyncClient

    signed_in = client_as("viewer")
    client = AsyncClient()
    client.cookies = signed_in.cookies
    opened = streams._open.copy()

    def carries_the_count():
        """Not if a message that an earlier test left comes due in between."""
        parts = async_to_sync(_first_frames)(client, 1)
        assert parts[0] == b"retry: 2000\n\n"
        data = next(line for line in parts[1].decode().splitlines() if line.startswith("data: "))
        frame = json.loads(data.removeprefix("data: "))
        return frame["put_total"] == broker.overview.snapshot().put_total

    wait_for(carries_the_count, "the frame and the broker to agree")
    assert streams._open == opened, "a stream that ended is not counted any more"


def test_a_stranger_gets_no_stream(client_as, broker):
    response = client_as("").get("/live/", headers={"accept": "text/event-stream"})
    assert response.status_code == 401


def test_so_many_streams_and_no_more(client_as, people, broker, monkeypatch):
    monkeypatch.setitem(streams._open, people["viewer"].pk, streams.STREAMS_EACH)
    assert client_as("viewer").get("/live/").status_code == 429


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (250, "4 min 10 s"),
        (7260, "2 h 1 min"),
        (86_400, "1 day"),
        (200_000, "2 days 7 h"),
        (None, "not known"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds, words):
    assert as_duration(seconds) == words


def test_another_sites_name_is_refused_on_a_loopback_address(tmp_path):
    assert "*" not in runtime.Place(tmp_path, "127.0.0.1").allowed_hosts()
    assert runtime.Place(tmp_path, "0.0.0.0").allowed_hosts() == ["*"]
    behind_a_proxy = runtime.Place(tmp_path, "127.0.0.1", "https://mq.example.org/rocketbox")
    assert "mq.example.org" in behind_a_proxy.allowed_hosts()
    assert "*" not in behind_a_proxy.allowed_hosts()
