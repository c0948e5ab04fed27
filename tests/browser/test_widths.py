"""Nothing is cut off on a phone or on a desktop, in English or Chinese: labels of axes, ids, columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import first_run
from tests.browser.furniture import Furniture, odd_names
from tests.browser.widths import unfit
from tests.support import report_days
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

PHONE, LAPTOP, DESK = ({"width": width, "height": 900} for width in (390, 1280, 1400))
PAGES = (
    "/", "/clients/", "/groups/", "/groups/billing/?tab=clients", "/groups/billing/?tab=settings",
    "/groups/shipping/retries/", "/topics/", "/topics/orders/", "/messages/?topic=orders",
    "/messages/?topic=orders&bodies=on", "/search/?q=order-7", "/search/?q=order-7&bodies=on",
    "/delayed/", "/transactions/", "/dead-letters/", "/dead-letters/shipping/", "/dead-letters/shipping/?bodies=on",
    f"/reports/{report_days.DAY}/failures/", "/alerts/", "/system/config/", "/system/checks/", "/system/users/",
    "/account/", "/needs/", "/reports/settings/",
)  # fmt: skip


#: Pages that scroll on a laptop: messages with bodies, and a chart with long names.
WIDE = {
    "/search/?q=order-7&bodies=on",
    "/messages/?topic=orders&bodies=on",
    "/dead-letters/shipping/?bodies=on",
    f"/reports/{report_days.DAY}/failures/",
}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    data_dir = shared_directory(request, "server") / "data"
    odd_names(data_dir)
    with Server(data_dir, "--http-port", "0", roles="broker,namesrv,console") as running:
        yield running


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Furniture]:
    furniture = Furniture(server.broker)
    for number in range(3):
        unique = f"AC11000100002A9F0000000001{number:06X}"
        own = {"KEYS": f"later-{number}", "TAGS": "created", "UNIQ_KEY": unique}
        furniture.send(f"half {number}", "payments", b"x", 3, 4, TRAN_MSG="true", PGROUP="tills", **own)
        furniture.send(f"delayed {number}", "payments", b"x", 3, DELAY="18", **own)
        furniture.send(f"dead {number}", "%DLQ%shipping", b"a long body " * 9, 0, RETRY_TOPIC="orders", **own)
        furniture.member(f"192.0.2.{number}@accounts-service-{number}#18234", f"accounts-{number}", "orders", "*")
    yield furniture
    furniture.close()


def test_pages_fit_a_phone_and_a_desk(visit: Callable[..., Page], server: Server, house: Furniture) -> None:
    page = visit(locale="en-GB", viewport=PHONE)
    first_run(page, server.ready["setup_url"]).click("text=Open the console")
    wrong = {}

    def look(address: str) -> None:
        for size in (PHONE, DESK if address in WIDE else LAPTOP):
            page.set_viewport_size(size)
            if found := unfit(page):
                wrong[f"{address} in {language} at {size['width']}"] = found

    for language in ("English", "简体中文"):
        if page.locator(f".languages button:text-is('{language}')").count():
            page.set_viewport_size(DESK)  # on a phone it is in the menu
            page.click(f".languages button:text-is('{language}')")
        for address in PAGES:
            page.goto(address)
            look(address)

    def is_drawn() -> bool:
        page.goto("/history/")
        return page.locator(".axes").count() > 6

    wait_for(is_drawn, "figures of the history", 120)
    look("/history/")
    assert not wrong
