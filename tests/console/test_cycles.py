"""Old objects are never collected (D10): what a request leaves in a cycle stays, so nothing large may be in one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from django.core.handlers.base import BaseHandler
from django.test import RequestFactory

from .test_access import PAGES, address_of

pytestmark = pytest.mark.django_db

BODY_BYTES = 60_000
MESSAGES = 40
#: What one request may leave; a form and its fields are a cycle, for one.
MOST_LEFT = 20_000


def left_by(request: Callable[[], object]) -> int:
    """Bytes of texts and buffers that cycles keep, of one request after the first."""
    request()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        request()
        gc.collect()
        found, seen = 0, set()
        for one in gc.garbage:
            for part in gc.get_referents(one):
                if isinstance(part, bytes | bytearray | str) and id(part) not in seen:
                    seen.add(id(part))
                    # What others hold, too, is no leak: names of attributes, templates.
                    found += sys.getsizeof(part) if sys.getsizeof(part) > 512 else 0
        return found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture
def ask(client_as) -> Callable[[str], int]:
    """`ask(address)`: the answer's status, and nothing of it is kept. Test clients make a cycle of each answer."""
    factory, handler = RequestFactory(), BaseHandler()
    factory.cookies = client_as("admin", "may_read_bodies", "may_export").cookies
    handler.load_middleware()

    def answered(address: str) -> int:
        response = handler.get_response(factory.get(address))
        status = response.status_code
        response.close()
        return status

    return answered


@pytest.fixture
def messages(broker, topic) -> str:
    for number in range(MESSAGES):
        broker.send_test_message(topic, b'{"n": %d, "x": "' % number + b"y" * BODY_BYTES + b'"}', keys=(f"k{number}",))
    return topic


@pytest.mark.parametrize(
    "wanted", ["", "body LIKE '%yyy%'", "body('$.n') = 3", "NOT (body('$.n') = 3) AND body LIKE '%z%'", "key = 'k3'"]
)
@pytest.mark.parametrize("of", ["/messages/", "/api/v1/topics/{}/messages"])
def test_looks_at_messages_leave_none_of_them(ask, messages, wanted, of):
    address = of.format(messages) + "?" + urlencode({"topic": messages} | ({"filter": wanted} if wanted else {}))
    if "{" in of:
        address = address.replace(f"topic={messages}&", "").replace(f"topic={messages}", "")
    assert ask(address) == 200
    assert left_by(lambda: ask(address)) < MOST_LEFT


def test_one_message_and_its_content_leave_nothing(ask, broker, messages):
    ref = broker.send_test_message(messages, b"y" * BODY_BYTES).offset_id
    for what in ("", "content/", "raw/", "download/"):
        address = f"/messages/{quote(ref)}/{what}"
        assert ask(address) == 200
        assert left_by(lambda address=address: ask(address)) < MOST_LEFT, address


def test_no_page_leaves_anything_large(ask, engine):
    left = {}
    for name, route in PAGES:
        if name not in ("overview_live", "message_tail"):
            address = address_of(route)
            left[name] = left_by(lambda address=address: ask(address))
    assert not {name: count for name, count in left.items() if count >= MOST_LEFT}
