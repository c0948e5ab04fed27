"""At most two views run at the same time; health checks and files never wait for one."""

import asyncio

from django.http import HttpResponse
from django.test import RequestFactory

from appliance.console.middleware import PAGES_AT_ONCE, Outermost


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


def running_views(path: str, requests: int) -> int:
    """How many of these requests are in their views once nothing moves any more."""

    async def run() -> int:
        async def view(request) -> HttpResponse:
            return await views(request)

        views = Views()
        outermost = Outermost(view)
        tasks = [asyncio.create_task(outermost(RequestFactory().get(path))) for _ in range(requests)]
        for _ in range(20):
            await asyncio.sleep(0)
        found = views.running
        views.end.set()
        answers = await asyncio.gather(*tasks)
        assert len({answer.headers["X-Request-Id"] for answer in answers}) == requests
        return found

    return asyncio.run(run())


def test_pages_take_turns():
    assert running_views("/topics/", 10) == PAGES_AT_ONCE


def test_health_checks_and_files_do_not_wait():
    for path in ("/healthz", "/readyz", "/static/console.css"):
        assert running_views(path, 10) == 10
