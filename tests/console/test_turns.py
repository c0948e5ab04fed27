"""At most two pages are made at the same time; health checks, files and those who wait for the engine take no turn."""

import asyncio

from django.http import HttpResponse
from django.test import RequestFactory

from appliance.console.middleware import ACTS_AT_ONCE, PAGES_AT_ONCE, Outermost


class Views:
    """Views that do not end before they are told to."""

    def __init__(self) -> None:
        self.running = 0
        self.end = asyncio.Event()

    async def __call__(self, request) -> HttpResponse:
        self.running += 1
        await self.end.wait()
        self.running -= 1
        return HttpResponse()


def running_views(path: str, requests: int, acts: int = 0) -> int:
    """How many of these requests, and of as many that send something there, are in their views once nothing moves."""

    async def run() -> int:
        async def view(request) -> HttpResponse:
            return await views(request)

        views = Views()
        outermost = Outermost(view)
        asked = [RequestFactory().post(path) for _ in range(acts)]
        asked += [RequestFactory().get(path) for _ in range(requests)]
        tasks = [asyncio.create_task(outermost(request)) for request in asked]
        for _ in range(20):
            await asyncio.sleep(0)
        found = views.running
        views.end.set()
        answers = await asyncio.gather(*tasks)
        assert len({answer.headers["X-Request-Id"] for answer in answers}) == requests + acts
        return found

    return asyncio.run(run())


def test_pages_take_turns():
    assert running_views("/topics/", 10) == PAGES_AT_ONCE


def test_sends_that_wait_for_the_disk_keep_no_page_from_being_made():
    assert running_views("/messages/send/", PAGES_AT_ONCE, acts=50) == ACTS_AT_ONCE + PAGES_AT_ONCE


def test_health_checks_and_files_do_not_wait():
    for path in ("/healthz", "/readyz", "/static/console.css"):
        assert running_views(path, 10) == 10
