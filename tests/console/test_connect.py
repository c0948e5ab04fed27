"""The page with programs for clients, and what a message's page shows of its body and its times."""

import re

import pytest

from appliance.console.models import AuditEntry
from appliance.console.system.snippets import LANGUAGES

pytestmark = pytest.mark.django_db


def test_the_programs_hold_the_address_and_the_topic(client_as, broker, topic):
    namesrv = broker.addresses().namesrv
    page = client_as("viewer").get("/connect/", {"topic": topic, "language": "go"}).content.decode()
    for key in LANGUAGES:
        shell = page.split(f'id="{key}-shell"')[1].split("</pre>")[0]
        assert shell.count(namesrv) == 2, "a producer and a consumer"
        assert shell.count(topic) >= 2
    assert re.search(r'<details[^>]* id="go" open', page)
    assert page.count("data-copies=") == page.count('class="copyable"')
    assert "works on this machine only" in page, "the address that clients get is not good for others"


def test_a_name_that_is_no_topic_stays_out_of_the_programs(client_as, broker):
    response = client_as("viewer").get("/connect/", {"topic": '");<script>alert(1)</script>'})
    page = response.content.decode()
    assert response.status_code == 422
    assert "Clients cannot send to a topic of this name." in page
    assert "<script>alert" not in page
    assert "DefaultMQProducer" not in page


def test_who_may_read_bodies_sees_it_at_once_and_that_is_written_down(client_as, broker, topic):
    sent = broker.sender.send(topic, b'{"a": [1, 2]}')
    address = f"/messages/{sent.offset_id}/"
    without = client_as("viewer").get(address).content.decode()
    assert "&quot;a&quot;" not in without
    assert not AuditEntry.objects.filter(action="message.read").exists()
    assert "/body" not in without.split('id="curl"')[1].split("</pre>")[0]
    page = client_as("admin", "may_read_bodies").get(address).content.decode()
    assert "&quot;a&quot;" in page
    [entry] = AuditEntry.objects.filter(action="message.read")
    assert entry.target == f"{topic}/{sent.queue_id}/{sent.queue_offset}"
    curl = page.split('id="curl"')[1].split("</pre>")[0]
    assert f"http://testserver/api/v1/messages/{sent.offset_id}/body" in curl


def test_times_are_told_both_ways(client_as, broker, topic):
    sent = broker.sender.send(topic, b"x", delay_level=16)
    page = client_as("viewer").get(f"/messages/{sent.offset_id}/").content.decode()
    assert re.search(r"stored\s+\d+ s ago", page)
    assert re.search(r"· in (30 min|29 min \d+ s)\b", page)


def test_the_programs_of_a_server_without_users_sign_nothing(client_as, broker, topic):
    page = client_as("viewer").get("/connect/", {"topic": topic}).content.decode()
    assert "ROCKETMQ_SECRET_KEY" not in page
    assert "rocketbox.pem" not in page
    for key in LANGUAGES:
        assert f'id="{key}-shell"' in page
    assert page.index('id="python-shell"') < page.index('id="python-cpp-shell"'), "our own comes first"


def test_the_programs_of_a_user_name_it_and_no_secret(client_as, broker, topic):
    page = client_as("viewer").get("/connect/", {"topic": topic, "user": "billing"}).content.decode()
    assert page.count("billing") > 2 * len(LANGUAGES)
    assert "ROCKETMQ_SECRET_KEY" in page
    wrong = client_as("viewer").get("/connect/", {"topic": topic, "user": '"); exit(1); ("'})
    assert wrong.status_code == 422
    assert "No wire user can have this name." in wrong.content.decode()


def test_a_connection_is_tried_and_told_in_words(client_as, broker, topic):
    operator = client_as("operator")
    form = operator.get("/connect/try/").content.decode()
    assert "What was found" not in form
    page = operator.get("/connect/try/", {"client": "go", "topic": topic, "group": "g"}).content.decode()
    assert f"{broker.addresses().namesrv} takes connections." in page
    assert "Access control is off: every client may send and consume." in page
    wrong = operator.get("/connect/try/", {"client": "go", "topic": topic, "group": "g", "host": "a b"})
    assert wrong.status_code == 422
    assert "a b is neither an IP address nor a host name." in wrong.content.decode()


def test_what_users_may_is_asked_by_who_may_see_them(client_as, broker, topic):
    asked = {"client": "go", "topic": topic, "group": "g", "user": "nobody", "address": "10.0.0.5"}
    said = "the client&#x27;s user and secret are not looked at"
    assert said in client_as("admin").get("/connect/try/", asked).content.decode()
    page = client_as("operator").get("/connect/try/", asked).content.decode()
    assert said not in page
    assert 'name="user"' not in page
    assert client_as("viewer").get("/connect/try/").status_code == 403
