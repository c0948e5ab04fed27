"""Old objects are never collected (D10): what a request leaves in a cycle stays, so nothing large may be in one."""

from __future__ import annotations

import gc
import importlib
import io
import pkgutil
import sys
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from django import forms
from django.core.handlers.base import BaseHandler
from django.test import RequestFactory

from appliance import console
from appliance.console.sign_in.forms import WithoutCycles

from .test_access import PAGES, address_of

pytestmark = pytest.mark.django_db

BODY_BYTES = 60_000
MESSAGES = 40
#: Bytes that one request may leave.
MOST_LEFT = 20_000


@pytest.fixture(autouse=True)
def _look_at_new_objects_only():
    """A collection that visits all the program's objects takes a good part of a second."""
    import_every_view()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def import_every_view() -> None:
    """Forms are known once their module is."""
    for _, name, _ in pkgutil.walk_packages(console.__path__, f"{console.__name__}."):
        if name.endswith("views"):
            importlib.import_module(name)


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
                    # Parts that other objects hold, too, are no leak: names of attributes, templates.
                    found += sys.getsizeof(part) if sys.getsizeof(part) > 512 else 0
        return found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture
def ask(client_as) -> Callable[..., int]:
    """`ask(address, sent)`: the answer's status, and nothing of it is kept. Test clients make a cycle of each answer.
    sent: fields of a form, which makes it a POST."""
    factory, handler = RequestFactory(), BaseHandler()
    factory.cookies = client_as("admin", "may_read_bodies", "may_export").cookies
    handler.load_middleware()

    def answered(address: str, sent: dict[str, object] | None = None, *, multipart: bool = False) -> int:
        if sent is None:
            request = factory.get(address)
        elif multipart:
            request = factory.post(address, sent)
        else:
            request = factory.post(address, urlencode(sent), "application/x-www-form-urlencoded")
        request._dont_enforce_csrf_checks = True
        response = handler.get_response(request)
        status = response.status_code
        response.close()
        return status

    return answered


@pytest.fixture
def messages(broker, topic) -> str:
    for number in range(MESSAGES):
        broker.sender.send(topic, b'{"n": %d, "x": "' % number + b"y" * BODY_BYTES + b'"}', keys=(f"k{number}",))
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
    ref = broker.sender.send(messages, b"y" * BODY_BYTES).offset_id
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


def every_field(of: type = WithoutCycles) -> set[str]:
    """The names of all fields of the console's forms."""
    found = set(getattr(of, "base_fields", ()))
    return found.union(*map(every_field, of.__subclasses__()))


@pytest.mark.parametrize("multipart", [False, True], ids=["form", "multipart"])
def test_no_refused_form_leaves_what_was_sent(ask, engine, multipart):
    # A form that stays keeps all that came, also what it has no field for.
    sent = dict.fromkeys(every_field(), "?") | {"anything": "y" * BODY_BYTES}
    left = {}
    for name, route in PAGES:
        if name in ("overview_live", "message_tail", "logout"):
            continue
        address = address_of(route)

        def send(address: str = address) -> int:
            files = {"file": io.BytesIO(b"y" * BODY_BYTES)} if multipart else {}
            return ask(address, sent | files, multipart=multipart)

        left[name] = left_by(send)
    assert not {name: count for name, count in left.items() if count >= MOST_LEFT}


@pytest.mark.parametrize("wrong", [{}, {"queue_id": "many"}, {"properties": "no equals sign"}, {"topic": "none-such"}])
def test_a_message_sent_from_its_page_leaves_nothing(ask, topic, wrong):
    sent = {"topic": topic, "body": "y" * BODY_BYTES, "kind": "plain"} | wrong
    assert ask("/messages/send/", sent) == (422 if wrong else 302)
    assert left_by(lambda: ask("/messages/send/", sent)) < MOST_LEFT


@pytest.mark.parametrize("text", ["rocketbox: 1\n#", "neither: ["])
def test_definitions_sent_from_their_page_leave_nothing(ask, broker, text):
    sent = {"text": text + "y" * BODY_BYTES}
    assert ask("/system/definitions/", sent) == (200 if "#" in text else 422)
    assert left_by(lambda: ask("/system/definitions/", sent)) < MOST_LEFT


def test_all_forms_of_the_console_are_without_cycles():
    known = [one for base in (forms.Form, forms.ModelForm) for one in base.__subclasses__()]
    ours = [one for one in known if one.__module__.startswith("appliance.")]
    assert ours
    assert not [one for one in ours if not issubclass(one, WithoutCycles)]
