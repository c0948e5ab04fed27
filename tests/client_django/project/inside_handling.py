"""Handlers of a Django project, called as `consume` does, and what `manage.py check` says of them."""

import io

import pytest
from django.core.management import call_command
from django.db import connection
from shop.models import Bill

from appliance.client import InvalidOption, Message, Reject
from appliance.client_django import checks, consumer_group, handlers
from appliance.client_django.models import HandledMessage
from appliance.client_django.testing import deliver


@pytest.mark.django_db
def test_a_handler_gets_a_message_as_a_broker_has_it():
    deliver("billing", Message("orders", "17", tags="paid", keys=["order-17"]), attempt=3)
    bill = Bill.objects.get()
    assert (bill.name, bill.attempt) == ("17", 3)
    with pytest.raises(Reject):
        deliver("billing", Message("orders", "nothing"))
    with pytest.raises(InvalidOption, match=r"No consumers\.py declares a handler of other"):
        deliver("billing", Message("other", "x"))


@pytest.mark.django_db(transaction=True)
def test_connections_are_closed_between_messages_as_between_requests():
    connection.ensure_connection()
    connection.settings_dict["CONN_MAX_AGE"] = 0
    connection.close_at = 0.0
    seen = []
    group = consumer_group("connections")
    try:
        group.subscribe("t")(lambda message: seen.append(connection.connection))
        deliver("connections", Message("t", "x"))
    finally:
        del handlers._groups["connections"]
    assert seen == [None], "an old connection is not used again"


@pytest.mark.django_db(transaction=True)
def test_a_message_that_comes_twice_changes_the_database_once():
    message = Message("orders-once", "17", properties={"OUTBOX_ID": "a"})
    deliver("billing", message)
    deliver("billing", message, attempt=2)
    deliver("billing", Message("orders-once", "17", properties={"OUTBOX_ID": "b"}))
    assert Bill.objects.count() == 2
    assert HandledMessage.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_message_that_was_sent_on_with_its_properties_is_handled_too():
    found = []
    group = consumer_group("two-topics")
    try:
        for topic in ("first", "second"):
            group.subscribe(topic, once=True)(lambda message: found.append(message.topic))
        for topic in ("first", "second", "second"):
            deliver("two-topics", Message(topic, "17", properties={"OUTBOX_ID": "a"}))
    finally:
        del handlers._groups["two-topics"]
    assert found == ["first", "second"]


@pytest.mark.django_db(transaction=True)
def test_a_handler_that_failed_is_not_done():
    message = Message("orders-once", "fails first", properties={"OUTBOX_ID": "a"})
    with pytest.raises(RuntimeError):
        deliver("billing", message)
    assert not Bill.objects.exists()
    deliver("billing", message, attempt=2)
    assert Bill.objects.get().attempt == 2


@pytest.mark.django_db
def test_old_notes_are_deleted():
    HandledMessage.objects.create(group="g", message="a")
    call_command("forget_handled", days=1, stdout=io.StringIO())
    assert HandledMessage.objects.count() == 1
    call_command("forget_handled", days=0, stdout=io.StringIO())
    assert not HandledMessage.objects.exists()


@pytest.mark.parametrize(
    ("options", "id"),
    [
        ({"NAMESERVERS": "127.0.0.1:9876"}, None),
        ({}, "rocketbox.W001"),
        ([], "rocketbox.E001"),
        ({"NAMESERVER": "x:1"}, "rocketbox.E001"),
        ({"NAMESERVERS": "no port"}, "rocketbox.E001"),
        ({"CLIENT": {"timeouts": 1}}, "rocketbox.E001"),
        ({"CLIENT": []}, "rocketbox.E001"),
        ({"PRODUCER": {"grop": 1}}, "rocketbox.E001"),
    ],
)
def test_the_setting_is_checked(settings, monkeypatch, options, id):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    settings.ROCKETBOX = options
    assert [message.id for message in checks.check()] == ([id] if id else [])


def test_a_broken_environment_is_said_and_ends_no_command(settings, monkeypatch):
    settings.ROCKETBOX = {"NAMESERVERS": "127.0.0.1:9876"}
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "u")
    monkeypatch.delenv("ROCKETMQ_SECRET_KEY", raising=False)
    assert [message.id for message in checks.check()] == ["rocketbox.E001"]


def test_a_coroutine_function_is_no_handler():
    async def handle(message):
        pass

    try:
        consumer_group("wrong").subscribe("orders")(handle)
        assert [(message.id, message.obj) for message in checks.check()][-1] == ("rocketbox.E002", "wrong")
    finally:
        del handlers._groups["wrong"]


@pytest.mark.parametrize(
    ("group", "topic", "more", "id"),
    [
        ({"workers": 0}, "orders", {}, "rocketbox.E002"),
        ({"worker": 1}, "orders", {}, "rocketbox.E002"),
        ({}, "no topic", {}, "rocketbox.E002"),
        ({"batch": 2}, "orders", {"once": True}, "rocketbox.E002"),
        ({}, "orders", {"once": "elsewhere"}, "rocketbox.E003"),
    ],
)
def test_handlers_are_checked(monkeypatch, group, topic, more, id):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    try:
        consumer_group("wrong", **group).subscribe(topic, **more)(print)
        (message,) = checks.check()
    finally:
        del handlers._groups["wrong"]
    assert (message.id, message.obj) == (id, "wrong")


def test_a_groups_options_are_said_once():
    try:
        first = consumer_group("shared", workers=2)
        assert consumer_group("shared") is first
        assert consumer_group("shared", workers=2) is first
        with pytest.raises(InvalidOption, match="said twice"):
            consumer_group("shared", workers=3)
    finally:
        del handlers._groups["shared"]
