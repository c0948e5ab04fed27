"""A real server, and Debian's Chromium driven by Playwright, which downloads nothing here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.clients.agents import Agent, start_java
from tests.support.directories import shared_directory
from tests.support.server import Server

CHROMIUM = "/usr/bin/chromium"
PASSWORD = "correct horse battery"
PHONE = {"width": 360, "height": 740}
# An expectation on a page must hold in the end, however busy the machine is.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="session", autouse=True)
def _sync_playwright_and_django() -> Iterator[None]:
    """Let Django work beside Playwright's synchronous API, whose event loop in this thread Django would refuse."""
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser; script/test installs it."""
    if not Path(CHROMIUM).exists() and shutil.which("chromium") is None:
        pytest.skip("chromium is not installed; script/test installs it")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A new server with the console; the first test of the module sets it up."""
    directory = shared_directory(request, "server")
    with Server(directory / "data", "--http-port", "0", roles="broker,namesrv,console") as running:
        yield running


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Callable[..., Page]]:
    """`visit(locale=..., viewport=...)`: a page of a fresh browser. An error in it or a request elsewhere fails."""
    contexts, wrong = [], []
    base = f"http://{server.ready['http']}"

    def open_page(**options: object) -> Page:
        context = browser.new_context(base_url=base, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
        )
        page.on(
            "request",
            lambda asked: None if asked.url.startswith((base, "data:")) else wrong.append(f"request: {asked.url}"),
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def sign_in(page: Page, name: str = "ada", password: str = PASSWORD) -> Page:
    """Sign in through the form; return the page of the console."""
    page.goto("/login/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("button.go")
    page.wait_for_selector("body.console")
    return page


def first_run(page: Page, address: str, name: str = "ada", password: str = PASSWORD) -> Page:
    """Set up a new server from its link, up to the page that waits for the first message."""
    page.goto(address)
    page.click("button[value=en]")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.fill("#id_again", password)
    page.click("button.go")
    page.wait_for_selector("#findings")
    page.click("button.go")
    return page


@pytest.fixture
def ada(visit: Callable[..., Page], server: Server) -> Page:
    """The administrator's browser, signed in; its first use on a server creates her, with all rights."""
    page = visit(locale="en-GB", accept_downloads=True)
    answer = page.goto(server.ready["setup_url"])
    if answer is not None and answer.status == 404:  # she exists already
        return sign_in(page)
    first_run(page, server.ready["setup_url"]).click("text=Open the console")
    return page


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """The official Java client."""
    agent = start_java("5.3.3", "json", shared_directory(request, "java"))
    yield agent
    agent.close()
