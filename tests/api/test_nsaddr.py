"""Addresses of the name servers, for clients that are configured with this server's URL only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from appliance import runtime

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("address", ["nsaddr", "nsaddr-unit1?nofix=1", "nsaddr-a%25b?nofix=1"])
def test_a_stranger_is_told_the_name_servers_in_one_line(running, people, address):
    response = Client().get(f"/rocketmq/{address}")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.content.decode() == running.engine.namesrv_address


@pytest.mark.parametrize(
    ("bind", "own", "known", "told"),
    [
        ("0.0.0.0", "10.1.2.3:9876", {"127.0.0.1:9876": True}, "10.1.2.3:9876"),
        ("0.0.0.0", "10.1.2.3:9876", {"10.1.2.3:9876": True, "10.1.2.4:9876": False}, "10.1.2.3:9876;10.1.2.4:9876"),
        ("127.0.0.1", "mq.example.org:9876", {"127.0.0.1:9876": True}, "mq.example.org:9876"),
        ("127.0.0.1", None, {"127.0.0.1:9876": True}, "127.0.0.1:9876"),
        ("127.0.0.1", "127.0.0.1:9876", {}, "127.0.0.1:9876"),
        ("::1", "[::1]:9876", {"[::1]:9876": True}, "[::1]:9876"),
    ],
)
def test_the_own_one_by_the_address_that_clients_can_reach(running, monkeypatch, bind, own, known, told):
    found = replace(running.window.system(), bind=bind, namesrv_address=own, namesrvs=known)
    monkeypatch.setattr(type(running.window), "system", lambda _self: found)
    assert Client().get("/rocketmq/nsaddr").content.decode() == told


def test_nothing_to_name_and_nothing_running_is_no_answer(running, monkeypatch):
    found = replace(running.window.system(), bind="127.0.0.1", namesrv_address=None, namesrvs={})
    monkeypatch.setattr(type(running.window), "system", lambda _self: found)
    response = Client().get("/rocketmq/nsaddr")
    assert (response.status_code, response.content) == (503, b"")
    runtime.set_running(None)
    assert Client().get("/rocketmq/nsaddr").status_code == 503


def test_it_only_answers_questions(running, people):
    assert Client().post("/rocketmq/nsaddr").status_code == 405
