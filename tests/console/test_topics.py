"""Topics: the list, one topic, and each act on one: allowed, refused, audited."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from appliance.console.models import AuditEntry
from tests.console.conftest import age_login

NEW = {"name": "made", "kind": "FIFO", "read_queues": "3", "write_queues": "3", "readable": "on", "writable": "on"}


@pytest.fixture
def name(request) -> str:
    return "made-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]


def entry() -> AuditEntry:
    return AuditEntry.objects.first()


def test_the_list_is_filtered_and_sorted_by_the_engine(client_as, broker, topic):
    broker.sender.send(topic, b"x")
    client = client_as("viewer")
    page = client.get("/topics/", {"q": topic, "sort": "-messages"}).content.decode()
    assert f'href="/topics/{topic}/"' in page
    assert 'aria-sort="descending"' in page
    assert client.get("/topics/", {"q": "no-such-topic"}).content.decode().count("/topics/t-") == 0
    assert client.get("/topics/", {"sort": "colour"}).status_code == 400


def test_the_csv_has_every_row_of_the_filter_and_no_formulas(client_as, broker, topic):
    text = client_as("viewer").get("/topics/", {"q": topic, "format": "csv"}).content.decode()
    header, row = text.splitlines()
    assert header.startswith("topic,type,read_queues")
    assert row.startswith(f"{topic},NORMAL,4,4")
    from appliance.console.pages.spreadsheet import cell

    assert [cell(value) for value in ("=1+1", "@x", -3, None)] == ["'=1+1", "'@x", "-3", ""]
    assert cell("\uff1d1+1") == "'\uff1d1+1", "so in spreadsheets of countries with wide letters"
    assert cell("\n=1+1") == "'\n=1+1"


def test_one_topic_shows_queues_and_says_what_is_not_known(client_as, broker, topic):
    broker.sender.send(topic, b"x", queue_id=2)
    page = client_as("viewer").get(f"/topics/{topic}/").content.decode()
    for part in ("Queues", "Producers", "No group consumes this topic"):
        assert part in page
    assert client_as("viewer").get("/topics/no-such/").status_code == 404


def test_a_topic_is_shown_before_it_is_made(client_as, broker, name):
    client = client_as("operator")
    preview = client.post("/create/topic/", NEW | {"name": name})
    assert preview.status_code == 200
    assert "in order within one queue only" in preview.content.decode()
    with pytest.raises(Exception, match="There is no topic"):
        broker.topics.settings(name)
    assert client.post("/create/topic/", NEW | {"name": name, "step": "apply"}).status_code == 302
    made = broker.topics.settings(name)
    assert (made.kind, made.read_queues, made.write_queues) == ("FIFO", 3, 3)
    assert (entry().action, entry().target, entry().after["kind"]) == ("topic.create", name, "FIFO")


@pytest.mark.parametrize("bad", ["<script>", "", "a b", "x" * 128])
def test_a_name_that_is_none_is_refused_in_the_form(client_as, broker, bad):
    response = client_as("operator").post("/create/topic/", NEW | {"name": bad, "step": "apply"})
    assert response.status_code == 422
    assert "<script>" not in response.content.decode().replace("<script src=", "")


def test_a_name_that_is_taken_is_refused(client_as, broker, topic):
    response = client_as("operator").post("/create/topic/", NEW | {"name": topic, "step": "apply"})
    assert response.status_code == 422
    assert "There is already a topic with this name." in response.content.decode()


def test_a_viewer_makes_no_topic(client_as, broker, name):
    client = client_as("viewer")
    assert client.get("/create/topic/").status_code == 403
    assert client.post("/create/topic/", NEW | {"name": name, "step": "apply"}).status_code == 403
    assert 'href="/create/topic/"' not in client.get("/topics/").content.decode()


def edit_form(broker, topic, **changes):
    now = broker.topics.settings(topic)
    form = {"kind": now.kind, "read_queues": now.read_queues, "write_queues": now.write_queues, "readable": "on"}
    form["reserve_hours"] = now.attributes.get("reserve.time", "0")
    return form | {"writable": "on", "revision": now.revision} | changes


def test_a_change_shows_its_difference_and_is_audited_with_both_sides(client_as, broker, topic):
    client = client_as("admin")
    form = edit_form(broker, topic, write_queues=2)
    preview = client.post(f"/topics/{topic}/edit/", form).content.decode()
    assert "Write queues" in preview
    assert "Producers stop using queues 2 to 3." in preview
    assert broker.topics.settings(topic).write_queues == 4
    assert client.post(f"/topics/{topic}/edit/", form | {"step": "apply"}).status_code == 302
    assert broker.topics.settings(topic).write_queues == 2
    assert (entry().before, entry().after) == ({"write_queues": "4"}, {"write_queues": "2"})


def test_a_change_of_something_else_meanwhile_is_refused(client_as, broker, topic):
    form = edit_form(broker, topic, write_queues=2, step="apply")
    broker.topic_commands.edit(topic, order=True)
    response = client_as("admin").post(f"/topics/{topic}/edit/", form)
    assert response.status_code == 409
    assert broker.topics.settings(topic).write_queues == 4


def test_queues_with_messages_are_taken_away_only_on_purpose(client_as, broker, topic):
    broker.sender.send(topic, b"x", queue_id=3)
    client = client_as("admin")
    form = edit_form(broker, topic, read_queues=2, step="apply")
    refused = client.post(f"/topics/{topic}/edit/", form)
    assert refused.status_code == 409
    assert "Change it anyway" in refused.content.decode()
    assert entry().result == "refused"
    assert client.post(f"/topics/{topic}/edit/", form | {"force": "yes"}).status_code == 302
    assert broker.topics.settings(topic).read_queues == 2


def test_a_topic_may_be_kept_for_less_time(client_as, broker, topic):
    client = client_as("admin")
    form = edit_form(broker, topic, reserve_hours=12)
    assert "Kept for, in hours" in client.post(f"/topics/{topic}/edit/", form).content.decode()
    assert client.post(f"/topics/{topic}/edit/", form | {"step": "apply"}).status_code == 302
    assert broker.retention.snapshot().topic_hours[topic] == 12
    assert "Kept for, in hours" in client.get(f"/topics/{topic}/").content.decode()
    assert f'href="/topics/{topic}/"' in client.get("/system/").content.decode()
    assert 'value="12"' in client.get(f"/topics/{topic}/edit/").content.decode()
    form = edit_form(broker, topic, reserve_hours=0, step="apply")
    assert client.post(f"/topics/{topic}/edit/", form).status_code == 302
    assert topic not in broker.retention.snapshot().topic_hours
    too_long = client.post(f"/topics/{topic}/edit/", edit_form(broker, topic, reserve_hours=10**9))
    assert too_long.status_code == 422
    assert "Kept for, in hours must be between 0 and 876\u202f000." in too_long.content.decode()


def test_an_operator_changes_and_deletes_no_topic(client_as, broker, topic):
    client = client_as("operator")
    assert client.post(f"/topics/{topic}/edit/", edit_form(broker, topic, step="apply")).status_code == 403
    assert client.post(f"/topics/{topic}/delete/", {"name": topic}).status_code == 403
    page = client.get(f"/topics/{topic}/").content.decode()
    assert "/edit/" not in page
    assert "/delete/" not in page


def test_a_topic_goes_when_its_name_was_typed(client_as, broker, topic):
    client = client_as("admin")
    assert client.post(f"/topics/{topic}/delete/", {"name": topic + "x"}).status_code == 422
    assert broker.topics.settings(topic)
    assert client.post(f"/topics/{topic}/delete/", {"name": topic}).status_code == 302
    with pytest.raises(Exception, match="There is no topic"):
        broker.topics.settings(topic)
    assert (entry().action, entry().result) == ("topic.delete", "done")


def test_the_password_is_asked_for_again_before_a_topic_goes(client_as, broker, topic):
    client = client_as("admin")
    age_login(client)
    response = client.post(f"/topics/{topic}/delete/", {"name": topic})
    assert response.headers["Location"].startswith("/confirm/")
    assert broker.topics.settings(topic)


def test_a_topic_is_purged_when_its_name_was_typed_and_unread_messages_were_accepted(client_as, broker, topic):
    for _ in range(3):
        broker.sender.send(topic, b"x", queue_id=0)
    client, address = client_as("admin"), f"/topics/{topic}/purge/"
    assert client_as("operator").get(address).status_code == 403
    page = client.get(address)
    revision = page.context["change"].revision
    form = {"name": topic, "revision": revision}
    assert "3 messages would no longer be shown." in " ".join(page.content.decode().split())
    assert client.post(address, form | {"name": "other"}).status_code == 422
    assert client.get(address, {"before": "no time"}).status_code == 422
    assert broker.topics.detail(topic).row.messages == 3
    assert client.post(address, form | {"revision": "0-0"}).status_code == 409
    assert client.post(address, form).headers["Location"] == f"/topics/{topic}/"
    assert broker.topics.detail(topic).row.messages == 0
    assert (entry().action, entry().before, entry().after["messages"]) == ("topic.purge", {"messages": "3"}, "0")


def test_a_schema_is_given_replaced_and_removed_and_its_bodies_are_shown(client_as, broker, topic):
    client, address = client_as("operator"), f"/topics/{topic}/schema/"
    reader = client_as("viewer", "may_read_bodies")
    sent = broker.sender.send(topic, b"\x06tea")
    body = f"/messages/{sent.offset_id}/content/"
    assert client_as("viewer").get(address).status_code == 403
    refused = client.post(address, {"kind": "avro", "schema": SimpleUploadedFile("a.avsc", b"{")})
    assert refused.status_code == 422
    assert "This schema cannot be used (it is not JSON" in refused.content.decode()
    for text, shown in (
        (b'"string"', "&quot;tea&quot;"),
        (b'"int"', "The body does not fit the topic&#x27;s schema, Avro int"),
    ):
        done = client.post(address, {"kind": "avro", "schema": SimpleUploadedFile("a.avsc", text)})
        assert (done.status_code, done.headers["Location"]) == (302, address)
        set_ = entry()
        assert set_.action == "topic.schema"
        page = reader.get(body).content.decode()
        assert shown in page
        assert "as=hex" in page, "the raw body is there, too"
    assert (set_.before["name"], set_.after["name"]) == ("string", "int")
    assert "Avro <code>int</code>" in client_as("viewer").get(f"/topics/{topic}/").content.decode()
    assert "&quot;int&quot;" in client.get(address).content.decode()
    assert client.post(address, {"step": "remove"}).headers["Location"] == f"/topics/{topic}/"
    assert (entry().action, entry().before["name"], entry().after) == ("topic.schema", "int", None)
    assert client.post(address, {"step": "remove"}).status_code == 404
    assert "as=decoded" not in reader.get(body).content.decode()


def test_a_long_body_is_shown_as_a_whole_to_those_who_may_export(client_as, broker, topic):
    operator = client_as("operator")
    schema = SimpleUploadedFile("a.avsc", b'"string"')
    reader, exporter = client_as("viewer", "may_read_bodies"), client_as("admin", "may_read_bodies", "may_export")
    operator.post(f"/topics/{topic}/schema/", {"kind": "avro", "schema": schema})
    for body in (b"\x90\x80\x08" + b"x" * 65_541 + b"end", b'{"n": "' + b"x" * 65_541 + b'end"}'):
        sent = broker.sender.send(topic, body)
        for place in ("", "content/"):
            address = f"/messages/{sent.offset_id}/{place}"
            page = reader.get(address).content.decode()
            assert "xend" not in page
            assert "takes the right to export" in page
            assert "xend" in exporter.get(address).content.decode()


def test_a_proto_file_is_a_schema_and_is_shown_as_it_was_given(client_as, broker, topic):
    operator, address = client_as("operator"), f"/topics/{topic}/schema/"
    text = b'syntax = "proto3"; package shop; message Order { string id = 1; }'
    given = {"kind": "protobuf", "schema": SimpleUploadedFile("order.proto", text), "message": ""}
    assert operator.post(address, given).status_code == 302
    sent = broker.sender.send(topic, b"\x0a\x03tea")
    page = client_as("viewer", "may_read_bodies").get(f"/messages/{sent.offset_id}/content/").content.decode()
    assert "&quot;id&quot;: &quot;tea&quot;" in page
    assert "message Order { string id = 1; }" in operator.get(address).content.decode()


def test_the_systems_topics_are_not_deleted(client_as, broker):
    response = client_as("admin").post("/topics/TBW102/delete/", {"name": "TBW102"})
    assert response.status_code == 400


def test_queues_that_nobody_could_read_are_refused_unless_forced_and_told_on_the_topics_page(client_as, broker):
    operator = client_as("operator")
    form = NEW | {"name": "unread", "kind": "NORMAL", "write_queues": "8", "step": "apply"}
    refused = operator.post("/create/topic/", form)
    assert refused.status_code == 409
    assert "Messages that are sent to queues 3 to 7 can be read by nobody." in refused.content.decode()
    assert AuditEntry.objects.filter(action="topic.create", target="unread").get().result == "refused"
    assert operator.post("/create/topic/", form | {"force": "yes"}).headers["Location"] == "/topics/unread/"
    page = operator.get("/topics/unread/").content.decode()
    assert "It has 8 write queues and 3 read queues" in page
    assert 'href="/topics/unread/history/"' in page
