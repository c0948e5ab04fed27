"""So many requests are answered at the same time, callers take turns, and nothing runs without a turn."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async

from appliance.console.serving.turns import (
    ACTS_AT_ONCE,
    ACTS_EACH,
    CROWD,
    PAGES_AT_ONCE,
    QUICK_AT_ONCE,
    REST,
    TURN,
    Gate,
    Turns,
)


class Views:
    """An application that ends, with an answer, only when the test lets it."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.end = asyncio.Event()

    async def __call__(self, scope, receive, send) -> None:
        self.running.append(scope["path"])
        await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        self.running.remove(scope["path"])


def request(path="/topics/", method="GET", address="192.0.2.1", cookie=b"") -> dict:
    headers = [(b"cookie", b"a=b; rocketbox_session=" + cookie)] if cookie else []
    return {"type": "http", "path": path, "method": method, "headers": headers, "client": (address, 1)}


async def nothing(message=None) -> None: ...


def running(*requests: dict, known: dict[bytes, int] | None = None) -> list[str]:
    """The paths of those that run once nothing moves; all of them end afterwards."""

    async def run() -> list[str]:
        views = Views()
        turns = Turns(views)
        for shown, user in (known or {}).items():
            turns.know(shown, user)
        tasks = [asyncio.create_task(turns(one, nothing, nothing)) for one in requests]
        for _ in range(20):
            await asyncio.sleep(0)
        found = list(views.running)
        views.end.set()
        await asyncio.gather(*tasks)
        assert not views.running
        return found

    return asyncio.run(run())


KNOWN = {b"one": 1, b"two": 2}


def test_pages_take_turns():
    assert len(running(*[request(cookie=b"one")] * 10, known=KNOWN)) == PAGES_AT_ONCE


def test_a_stranger_takes_one_place_and_leaves_the_other():
    assert len(running(*[request()] * 10)) == 1
    assert running(*[request("/1")] * 10, request("/2", address="192.0.2.2")) == ["/1", "/2"]


def test_sends_that_wait_for_the_disk_keep_no_page_from_being_made():
    acts = [request("/send", "POST", cookie=b"one")] * 50 + [request("/other", "POST", cookie=b"two")] * 50
    found = running(*acts, *[request("/page", cookie=b"two")] * 50, known=KNOWN)
    assert found.count("/page") == PAGES_AT_ONCE
    assert found.count("/send") == ACTS_EACH
    assert len(found) == ACTS_AT_ONCE + PAGES_AT_ONCE


def test_health_checks_and_files_are_bounded_too():
    for path in ("/healthz", "/readyz", "/static/console.css"):
        assert len(running(*[request(path)] * 10)) == QUICK_AT_ONCE


@pytest.mark.parametrize("path", ["/login/", "/login/code/", "/password/x/", "/setup/x/", "/login/oidc/back/"])
def test_strangers_at_the_door_keep_nobody_from_pages(path):
    strangers = [request(path, "POST", f"192.0.2.{number}") for number in range(50)]
    assert "/topics/" in running(*strangers, request(cookie=b"one"), known=KNOWN)


def test_callers_take_turns_however_many_requests_one_has():
    async def run() -> list[str]:
        gate, served = Gate(1, 1), []

        async def ask(who: str) -> None:
            await gate.take(("user", who))
            served.append(who)
            await asyncio.sleep(0)
            gate.give_back(("user", who))

        await asyncio.gather(*(ask("viewer") for _ in range(100)), *(ask("admin") for _ in range(3)))
        return served

    assert asyncio.run(run())[:7].count("admin") == 3


def test_a_crowd_rests_as_long_as_it_worked_and_nobody_else_waits_for_it(monkeypatch):
    async def run() -> None:
        loop = asyncio.get_running_loop()
        now, calls = 100.0, []
        monkeypatch.setattr(loop, "time", lambda: now)
        monkeypatch.setattr(loop, "call_at", lambda at, call, *said: calls.append((at, call, said)))
        gate, served = Gate(2, 2, crowds_rest=True), []

        async def ask(who: str) -> None:
            await gate.take(("user", who))
            served.append(who)

        crowd = [asyncio.ensure_future(ask("crowd")) for _ in range(CROWD + 4)]
        await asyncio.sleep(0)
        assert served == ["crowd"] * 2
        gate.give_back(("user", "crowd"), 0.5)
        await asyncio.sleep(0)
        assert served == ["crowd"] * 2, "it rests"
        await ask("admin")
        gate.give_back(("user", "admin"), 0.5)
        now += 0.1
        gate.give_back(("user", "crowd"), 0.5)
        assert [at for at, _, _ in calls] == [100 + REST * 0.5, 100.1 + REST * 0.5]
        for at, call, said in calls:
            now = at
            call(*said)
            await asyncio.sleep(0)
        assert served == ["crowd"] * 2 + ["admin"] + ["crowd"] * 2, "after the last one's rest"
        for _ in range(CROWD + 4):
            gate.give_back(("user", "crowd"))
            await asyncio.sleep(0)
        await asyncio.gather(*crowd)

    asyncio.run(run())


def test_who_gives_up_while_waiting_takes_no_place():
    async def run() -> None:
        gate = Gate(1, 1)
        await gate.take(("user", 1))
        waiting = [asyncio.create_task(gate.take(("user", number % 3))) for number in range(9)]
        await asyncio.sleep(0)
        for task in waiting[:-1]:
            task.cancel()
        gate.give_back(("user", 1))
        await asyncio.wait_for(waiting[-1], 60)
        gate.give_back(("user", 2))
        await asyncio.wait_for(gate.take(("user", 5)), 60)
        assert not gate._waiting

    asyncio.run(run())


def test_who_hangs_up_makes_no_room_before_the_thread_has_ended():
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(60)

    async def application(scope, receive, send) -> None:
        await sync_to_async(work)()

    async def run() -> None:
        turns = Turns(application)
        scopes = [request("/login/", "POST") for _ in range(2)]
        first = asyncio.create_task(turns(scopes[0], nothing, nothing))
        await asyncio.to_thread(began.wait, 60)
        began.clear()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(turns(scopes[1], nothing, nothing))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not began.is_set(), "the first one's password is still being checked"
        go_on.set()
        await asyncio.wait_for(second, 60)
        assert began.is_set()

    asyncio.run(run())


def test_a_stream_leaves_its_turn_when_it_begins_and_takes_one_for_what_it_renders():
    async def run() -> None:
        ended = []

        async def application(scope, receive, send) -> None:
            scope[TURN].at_end(lambda: ended.append(scope["path"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            streams.append(scope[TURN])
            await end.wait()

        streams, end = [], asyncio.Event()
        turns = Turns(application)
        turns.know(b"one", 1)
        tasks = [asyncio.create_task(turns(request(cookie=b"one"), nothing, nothing)) for _ in range(10)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(streams) == 10
        rendering, most = 0, 0

        async def render(turn) -> None:
            nonlocal rendering, most
            async with turn.again():
                rendering += 1
                most = max(most, rendering)
                await asyncio.sleep(0)
                rendering -= 1

        await asyncio.gather(*(render(turn) for turn in streams))
        assert most == PAGES_AT_ONCE
        end.set()
        await asyncio.gather(*tasks)
        assert len(ended) == 10

    asyncio.run(run())


def test_what_is_remembered_of_callers_is_short():
    turns = Turns(None)
    turns.know(b"Bearer rbx_" + b"a" * 43, 1)
    turns.know(b"Bearer " + b" " * 8000 + b"rbx_" + b"a" * 43, 1)
    assert [len(one) for one in turns._known] == [54]
