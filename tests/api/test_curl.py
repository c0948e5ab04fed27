"""Pages and the command lines that tell the same: each is an operation, and answers."""

from __future__ import annotations

import contextlib
import html
import re
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.api.api import openapi
from appliance.console.models import User
from appliance.console.pages.curl import NEEDED, OPERATIONS
from appliance.engine.errors import Conflict
from tests.api.test_pairs import ALONE, PAGE_OF
from tests.support.engine import RunningEngine

from .conftest import Caller, answer_of

pytestmark = pytest.mark.django_db

#: Pages whose operation is not told -> why.
LEFT_OUT = {
    "message": "it has two commands, in a place of their own",
    "message_content": "a part of the message's page, where its command is",
    "message_raw": "a part of the message's page, where its command is",
    "messages": "its operation needs a topic, so the view makes the command",
    "message_tail": "its operation is asked again and again; the command is `rocketbox message tail`",
    "user": "its operation needs the name, and the page's address a number, so the view makes the command",
    **dict.fromkeys(("job_file", "backup_download", "definitions_file", "support_bundle_file"), "a file"),
}


def command_of(page: str) -> list[str]:
    [found] = re.findall(r'id="as-curl">.*?<pre[^>]*>(.*?)</pre>', page, re.DOTALL)
    return shlex.split(html.unescape(found))


def test_every_page_that_has_an_operation_tells_it():
    with_operation = {page for operation, page in PAGE_OF.items() if operation.startswith("GET ")}
    assert with_operation - OPERATIONS.keys() == LEFT_OUT.keys()
    assert not OPERATIONS.keys() & ALONE.keys()


@pytest.mark.parametrize("page", OPERATIONS)
def test_it_is_an_operation_with_these_parameters(page: str):
    path, _, names = OPERATIONS[page].partition("?")
    shape = re.sub(r"{\w+}", "{}", "/api/v1/" + path)
    [operation] = [ways for known, ways in openapi()["paths"].items() if re.sub(r"{\w+}", "{}", known) == shape]
    known = {one["name"] for one in operation["get"]["parameters"] if one["in"] == "query"}
    assert set(names.split()) <= known
    needed = [one["name"] for one in operation["get"]["parameters"] if one["in"] == "query" and one["required"]]
    assert needed == [NEEDED[page]] if page in NEEDED else needed == []


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("/", "/api/v1/broker"),
        ("/topics/?q=a%26b+%27c&sort=-name&show=all", "/api/v1/topics?q=a%26b+%27c&sort=-name&system=true"),
        ("/topics/?show=dlq", "/api/v1/topics?category=dlq"),
        ("/groups/?online=no&system=yes", "/api/v1/groups?online=false&system=true"),
        ("/topics/?q=&sort=", "/api/v1/topics"),
        ("/topics/half%25full/", "/api/v1/topics/half%25full"),
        ("/groups/shipping/diagnosis/", "/api/v1/groups/shipping/diagnosis"),
        ("/messages/?topic=half%25full", "/api/v1/topics/half%25full/messages"),
        (
            "/messages/?topic=half%25full&queue=1&from=1000&order=oldest&filter=tag+%3D+%27a%27&bodies=on",
            "/api/v1/topics/half%25full/messages?from=1000&queue_id=1&filter=tag%20%3D%20%27a%27&newest_first=false",
        ),
        ("/system/", "/api/v1/system"),
        ("/system/users/?q=a&role=viewer&sort=-name", "/api/v1/users?q=a&role=viewer&sort=-name"),
        ("/transactions/?topic=orders", "/api/v1/transactions/open?topic=orders"),
        ("/transactions/?show=resolved&how=committed", "/api/v1/transactions/resolved?how=committed&from=24+h+ago"),
        (
            "/dead-letters/shipping/?key=a&origin=orders",
            "/api/v1/groups/shipping/dead-letters?origin_topic=orders&key=a",
        ),
        (
            "/dead-letters/shipping/?no_origin=yes&from=1000&bodies=on",
            "/api/v1/groups/shipping/dead-letters?from=1000&origin_topic=",
        ),
        (
            "/search/?q=k+1&topic=half%25full&from=1000&to=2000&copies=yes&bodies=on",
            "/api/v1/search?q=k+1&topic=half%25full&from=1000&to=2000&copies=true",
        ),
        (
            "/delayed/?topic=half%25full&level=3&from=1000&show=retries&q=",
            "/api/v1/delayed?topic=half%25full&level=3&from=1000&retries=true",
        ),
        ("/delayed/?topic=half%25full&q=k", "/api/v1/delayed?q=k"),
        ("/system/audit/?q=topic&way=wire&to=2000", "/api/v1/audit?q=topic&to=2000&kind=wire"),
        ("/connect/?topic=orders&language=go", "/api/v1/connect?topic=orders&language=go"),
        ("/connect/try/?client=go&topic=orders&group=g", "/api/v1/connect/trial?client=go&topic=orders&group=g"),
    ],
)
def test_it_answers_what_the_page_shows(client_as, admin: Caller, running: RunningEngine, page: str, path: str):
    for make in (
        lambda: running.window.topic_commands.create("half%full"),
        lambda: running.window.group_commands.create("shipping"),
    ):
        with contextlib.suppress(Conflict):
            make()
    words = command_of(client_as("admin").get(page).content.decode())
    assert words[:2] == ["curl", "-H"]
    address = urlsplit(words[3])
    assert f"{address.path}?{address.query}".rstrip("?") == path
    answer_of(admin.get(path.removeprefix("/api/v1")))


def test_a_page_behind_a_path_tells_that_path(client_as):
    page = client_as("admin").get("/topics/", SCRIPT_NAME="/box", HTTP_HOST="testserver").content.decode()
    assert command_of(page)[3] == "http://testserver/box/api/v1/topics"


def test_no_page_without_a_twin_tells_one(client_as):
    assert "as-curl" not in client_as("admin").get("/search/").content.decode()
    assert "as-curl" in client_as("admin").get("/search/?q=x").content.decode()
    assert "as-curl" not in client_as("admin").get("/create/topic/").content.decode()
    assert "as-curl" not in client_as("admin").get("/system/audit/?way=console").content.decode()


@pytest.mark.parametrize("page", ["/search/?q=k&", "/messages/?topic=Times&", "/dead-letters/Times/?", "/delayed/?"])
def test_a_time_without_a_zone_is_the_readers(client_as, running: RunningEngine, page: str):
    """A token reads such a time in UTC."""
    for make in (running.window.topic_commands.create, running.window.group_commands.create):
        with contextlib.suppress(Conflict):
            make("Times")
    client = client_as("viewer", "may_read_bodies")
    User.objects.filter(username="the-viewer").update(time_zone="Asia/Shanghai")
    address = command_of(client.get(f"{page}from=2026-11-30+08:00&bodies=on").content.decode())[3]
    asked = parse_qs(urlsplit(address).query)
    assert asked["from"] == ["1795996800000"], "2026-11-30T00:00Z"
    assert asked.get("body_chars") == (None if page.startswith("/delayed/") else ["160"])


def test_the_page_of_a_person_tells_the_name(client_as, admin: Caller):
    person = User.objects.create(username="ann b", role="viewer")
    page = client_as("admin").get(f"/system/users/{person.pk}/").content.decode()
    assert command_of(page)[3] == "http://testserver/api/v1/users/ann%20b"
    answer_of(admin.get("/users/ann%20b"))


@pytest.mark.parametrize(
    ("page", "of"),
    [
        ("/history/", ""),
        ("/topics/half%25full/history/", "topic=half%25full"),
        ("/groups/shipping/history/", "group=shipping"),
    ],
)
def test_a_page_of_figures_tells_each(client_as, admin: Caller, running: RunningEngine, page: str, of: str):
    with contextlib.suppress(Conflict):
        running.window.topic_commands.create("half%full")
    with contextlib.suppress(Conflict):
        running.window.group_commands.create("shipping")
    addresses = [urlsplit(word) for word in command_of(client_as("admin").get(page).content.decode()) if "http" in word]
    assert len(addresses) >= 4
    for address in addresses:
        assert of in address.query
        answer_of(admin.get(f"{address.path.removeprefix('/api/v1')}?{address.query}"))
