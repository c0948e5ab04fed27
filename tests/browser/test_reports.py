"""Reports in the browser: from the schedule to reading a report, a run that fails, and the look of every page.

The tests of this module share one server: the first one fills it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from spark_reports.reports.document import REPORTS
from tests.browser.axe import problems
from tests.browser.conftest import PASSWORD, PHONE, sign_in
from tests.support import report_days
from tests.support.directories import shared_directory
from tests.support.engine import Peer, send_fields
from tests.support.server import Server

Visit = Callable[..., Page]
MESSAGES = 3000
#: The runner begins 20 s after a start; its processes and their work take some seconds. They have the lowest priority
#: on the machine (nice 19).
RUN_LIMIT_MS = 1_800_000
WIDE = {"width": 1200, "height": 900}
NAMES = "g" * 255, *(f"group-{number:02}-{'long-' * (number % 9)}name" for number in range(40))


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    environment = {"ADMIN_USER": "ada", "ADMIN_PASSWORD": PASSWORD}
    directory = shared_directory(request, "report-server")
    options = {"roles": "broker,namesrv,console", "environment": environment}
    with Server(directory / "data", "--http-port", "0", **options) as running:
        yield running


def settle(page: Page, **values: str) -> None:
    """Change settings through the form."""
    page.goto("/reports/settings/")
    page.click("text=Change")
    for name, value in values.items():
        field = page.locator(f"#id_{name}")
        if field.evaluate("one => one.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.click("button.go")
    expect(page.locator("h1")).to_contain_text("?")
    page.click("button.go")
    expect(page.locator("#notices")).to_contain_text("Saved.")


def ended(page: Page) -> None:
    """Wait until the page of a run shows that the run has ended."""
    expect(page.locator("#progress")).not_to_contain_text(re.compile("waiting|running"), timeout=RUN_LIMIT_MS)


def test_reports_of_todays_traffic_are_made_and_read(visit: Visit, server: Server) -> None:
    peer = Peer(server.broker)
    topic = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    assert peer.ask(17, topic).code == 0
    for number in range(MESSAGES):
        fields = send_fields("orders", number % 4, f"KEYS\x01k{number}\x02", g=int(time.time() * 1000))
        assert peer.ask(310, fields, b"x" * 200).code == 0
    peer.close()
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.click("nav >> text=Reports")
    expect(page.locator("main")).to_contain_text("No report was made yet")
    settle(page, engine="python", zone="UTC", at="02:00", keep_days="7")
    page.goto("/reports/")
    page.select_option("#run-day", "today")
    page.click("text=Run now")
    expect(page.locator("h1")).to_contain_text("Run for")
    expect(page.locator("#progress")).to_contain_text(re.compile("waiting|running"))
    ended(page)
    expect(page.locator("#progress")).to_contain_text("done")
    page.click("text=Read the digest")
    expect(page.locator(".tile").first).to_contain_text("3\u202f000")
    expect(page.locator("main")).to_contain_text("plain Python")
    for report in REPORTS:
        day = page.url.split("/reports/")[1].split("/")[0]
        page.goto(f"/reports/{day}/{report}/")
        expect(page.locator("h1")).to_be_visible()
        assert not re.search(r"[a-z]_[a-z]", page.locator("main").inner_text()), report
    page.goto("/")
    expect(page.locator("main")).to_contain_text("Morning digest")


@pytest.mark.nightly
def test_spark_makes_the_same_and_tells_how_far_it_is(visit: Visit, server: Server) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    settle(page, engine="spark", master="local[2]", memory_mib="4096", timeout_min="60")
    page.goto("/reports/")
    page.click("text=Run now")
    expect(page.locator("#progress b")).to_be_visible(timeout=RUN_LIMIT_MS)
    ended(page)
    expect(page.locator("#progress")).to_contain_text("done")
    expect(page.locator("#progress")).to_contain_text("Spark local[2]")
    page.click("text=Read the digest")
    expect(page.locator(".head")).to_contain_text("on Spark local[2]")
    expect(page.locator(".tile").first).to_contain_text("3\u202f000")


@pytest.mark.nightly
def test_a_run_that_fails_is_told_and_the_last_good_reports_stay(visit: Visit, server: Server) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    settle(page, engine="spark", master="spark://127.0.0.1:1", memory_mib="4096", timeout_min="1")
    page.goto("/reports/")
    page.select_option("#run-day", "today")
    page.click("text=Run now")
    ended(page)
    expect(page.locator("#progress")).to_contain_text("failed")
    page.goto("/reports/")
    banner = page.locator(".note.bad")
    expect(banner).to_contain_text("failed")
    expect(banner).to_contain_text("Below are the last good reports")
    expect(page.locator(".tile").first).to_contain_text("3\u202f000")
    page.goto("/needs/")
    expect(page.locator("#needs, main").first).to_contain_text("The reports of")
    settle(page, engine="python")


@pytest.mark.nightly
def test_the_progress_bar_moves_without_loading_the_page_again(visit: Visit, server: Server) -> None:
    """The page follows a run's directory as the runner writes it."""
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    run = report_days.record(id="20260101-000000-00000001", state="running", ended_ms=None, steps=[], rows=0)
    run |= {"started_ms": int(time.time() * 1000) - 5000}
    begin = {"step": "counting", "done": 1, "total": 10, "at_ms": 1}
    directory = report_days.put_run(server.data_dir, run, "so far\n", begin)
    page.goto(f"/reports/runs/{run['id']}/")
    bar = page.locator("#progress [role=progressbar]")
    expect(bar).to_have_attribute("aria-valuenow", "10")
    page.evaluate("window.same = true")
    for done in (3, 7):
        (directory / "progress.json").write_text(json.dumps(begin | {"done": done}))
        expect(bar).to_have_attribute("aria-valuenow", f"{done}0")
    assert page.evaluate("window.same")
    report_days.put_run(server.data_dir, run | {"state": "done", "ended_ms": int(time.time() * 1000)})
    expect(page.locator("#progress")).to_contain_text("done")


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("groups", [("shipping",), (), NAMES], ids=["small", "empty", "large"])
@pytest.mark.nightly
def test_every_page_looks_right(visit: Visit, server: Server, locale: str, groups: tuple[str, ...]) -> None:
    """In light and dark, wide and narrow, and for a screen reader; nothing is wider than the page."""
    report_days.put(server.data_dir, groups=groups)
    report_days.put_runs(server.data_dir)
    page = sign_in(visit(locale=locale, viewport=WIDE))
    day, run = report_days.DAY, report_days.FAILED_RUN
    addresses = [
        *("/reports/", f"/reports/{day}/digest/", f"/reports/runs/{run}/", "/reports/runs/"),
        *("/reports/settings/", "/reports/settings/change/"),
    ]
    for address in addresses:
        page.goto(address)
        assert not problems(page), address
        page.emulate_media(color_scheme="dark")
        assert not problems(page, "color-contrast"), address
        page.emulate_media(color_scheme="light")
        for size in (PHONE, WIDE):
            page.set_viewport_size(size)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], f"{address} {size}"


@pytest.mark.nightly
def test_a_report_is_printed_on_paper(visit: Visit, server: Server) -> None:
    """A report that fits is printed on one page, without the console's frame around it."""
    report_days.put(server.data_dir)
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.goto(f"/reports/{report_days.DAY}/group-health/")
    expect(page.locator("button[data-prints]")).to_be_visible()
    page.emulate_media(media="print")
    for hidden in (".side", ".top", ".tabs", "button[data-prints]", "td.acted"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.locator("svg.plot.report").is_visible()
    paper = page.pdf(format="A4", print_background=False)
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == 1
