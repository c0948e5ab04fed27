"""Messages as files and files as messages: exports, searches and imports, as jobs."""

import base64
import csv
import io
import json
import zlib

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from appliance.console import jobs
from appliance.console.jobs import message_copy, message_export, message_import, message_lines, runner
from appliance.console.models import AuditEntry, User, now_ms
from appliance.engine.errors import Unavailable
from appliance.engine.window.figures.measures import Pace
from tests.support.engine import Peer, send_fields

pytestmark = pytest.mark.django_db

HOSTILE = ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "<script>alert(1)</script>", '"a",b\nc', "{{7*7}}", "订单"]


def new(kind, given=None, **parameters):
    """A job that waits."""
    job = jobs.Job(jobs.new_id(), kind, "somebody", "user", now_ms(), parameters, target=parameters["topic"])
    jobs.board().add(job, given)
    return job


def ran(kind, given=None, **parameters):
    job = new(kind, given, **parameters)
    runner.run_waiting()
    return jobs.board().get(job.id)


def exported(topic, kind=message_export.EXPORT, form="ndjson", **parameters):
    job = ran(kind, topic=topic, format=form, **parameters)
    assert job.state == "done", job.why
    [file] = job.files
    return jobs.board().folder(job.id).file(file.name).read_bytes(), job


def lines(data):
    return [json.loads(line) for line in data.splitlines()]


def problems_of(job):
    return lines(jobs.board().folder(job.id).file("problems.ndjson").read_bytes())


def all_of(broker, topic):
    """The copies of all messages, oldest first."""
    found, cursor = [], None
    while True:  # a page ends early on a slow machine
        page = broker.messages.copies(topic, limit=500, cursor=cursor)
        found += page.rows
        cursor = page.next_cursor
        if cursor is None:
            return found


def grant(name, **grants):
    User.objects.filter(username=f"the-{name}").update(**grants)


def test_an_export_has_all_there_is_and_an_import_makes_it_again(broker, topic):
    for number, text in enumerate(HOSTILE):
        broker.sender.send(
            topic,
            text.encode(),
            tags=f"t{number}",
            keys=(f"k{number}", "all"),
            properties={"p": text, "n": str(number)},
        )
    broker.sender.send(topic, bytes(range(256)), queue_id=3)
    data, job = exported(topic)
    assert job.counts == {"found": 11, "other": 0, "unreadable": 0, "undecided": 0}
    found = lines(data)
    assert [base64.b64decode(row["body"]["data"]) for row in found if row["body"]["encoding"] == "base64"] == [
        bytes(range(256))
    ]
    assert [row["body"]["data"] for row in found[:-1]] == HOSTILE

    broker.topic_commands.create(f"{topic}-again")
    done = ran(message_import.NAME, data, topic=f"{topic}-again", rate=10_000)
    assert (done.state, done.counts) == ("done", {"sent": 11, "failed": 0, "skipped": 0})
    before, after = all_of(broker, topic), all_of(broker, f"{topic}-again")
    for one, two in zip(before, after, strict=True):
        assert (one.body, one.row.tags, one.row.keys, one.row.queue_id, one.flag) == (
            two.body, two.row.tags, two.row.keys, two.row.queue_id, two.flag
        )  # fmt: skip
        assert one.properties.get("p") == two.properties.get("p")
        assert one.row.unique_id != two.row.unique_id
    broker.topic_commands.delete(f"{topic}-again", force=True)


def test_a_csv_runs_nothing(broker, topic):
    for text in HOSTILE:
        broker.sender.send(topic, text.encode(), keys=("k",), tags="=2+2", properties={"p": text})
    data, _ = exported(topic, form="csv")
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert len(rows) == len(HOSTILE)
    for row, text in zip(rows, HOSTILE, strict=True):
        assert row["tags"] == "'=2+2"
        assert row["body"] == ("'" + text if text[0] in "=+-@\t\r" else text)
        assert not any(value[:1] in ("=", "+", "@", "\t", "\r") for value in row.values())


def test_an_export_has_the_bodies_that_the_schema_decodes(broker, topic):
    broker.schemas.put(topic, kind="avro", data=b'{"type": "array", "items": "int"}')
    for body in (b"\x02\x0e\x00", b"no record"):
        broker.sender.send(topic, body, queue_id=0)
    data, _ = exported(topic)
    fits, unfit = lines(data)
    assert (fits["decoded"], fits["body"]["data"]) == ([7], "\x02\x0e\x00")
    assert (unfit["decoded"], unfit["body"]["data"]) == (None, "no record")
    table = list(csv.DictReader(io.StringIO(exported(topic, form="csv")[0].decode())))
    assert [row["decoded"] for row in table] == ["[7]", ""]
    broker.topic_commands.create(f"{topic}-again")
    assert ran(message_import.NAME, data, topic=f"{topic}-again", rate=10_000).counts["sent"] == 2


def test_only_what_the_filter_finds_is_exported_and_the_counts_add_up(broker, topic):
    for number in range(30):
        broker.sender.send(topic, b'{"n": %d}' % number, keys=(f"k{number}",))
    data, job = exported(topic, message_export.BODY_SEARCH, filter="body('$.n') >= 25")
    assert [row["keys"] for row in lines(data)] == [[f"k{number}"] for number in range(25, 30)]
    assert "body" not in lines(data)[0]
    assert job.counts == {"found": 5, "other": 25, "unreadable": 0, "undecided": 0}
    assert job.done == job.total == sum(job.counts.values()) == 30


def test_an_export_rests_after_a_few_messages_when_it_reads_and_when_it_writes(broker, topic, monkeypatch):
    """Sends wait for the interpreter meanwhile."""
    for number in range(64):
        broker.sender.send(topic, b"%d" % number, queue_id=0)
    rests = []
    monkeypatch.setattr(Pace, "rest", lambda self: rests.append("read"))
    monkeypatch.setattr(jobs.Work, "rest", lambda self: rests.append("written"))
    data, _ = exported(topic)
    assert len(lines(data)) == 64
    assert rests.count("read") == 4
    assert rests.count("written") >= 4


@pytest.mark.parametrize("filter_text", ["", "TAGS = 'blue' OR TAGS = 'red'"])
def test_what_expires_while_it_is_exported_is_told_as_that(
    _one_broker,  # noqa: PT019
    broker, topic, monkeypatch, filter_text,
):  # fmt: skip
    """They do not count as messages that the filter excluded."""
    for number in range(60):
        broker.sender.send(topic, b"%d" % number, tags="red", queue_id=0)
    queue = _one_broker.broker.store.find_queue(topic, 0)
    monkeypatch.setattr(message_export, "SLICE_MS", 0.0)
    real, asked = broker.messages.copies, []

    def copies(*arguments, **named):
        asked.append(1)
        if len(asked) == 3:
            queue.min_offset = 40  # as the cleaner does
        return real(*arguments, **named)

    monkeypatch.setattr(type(broker.messages), "copies", lambda self, *arguments, **named: copies(*arguments, **named))
    data, job = exported(topic, filter=filter_text)
    found = len(lines(data))
    assert 20 < found < 60
    assert job.counts == {"found": found, "other": 0, "unreadable": 60 - found, "undecided": 0}
    assert job.done == 60


def test_a_compressed_body_is_exported_without_its_compression(broker, topic):
    peer = Peer(broker.system().broker_address)
    assert peer.ask(310, send_fields(topic, f=1), zlib.compress(b"the body")).code == 0
    assert peer.ask(310, send_fields(topic, f=1), b"not compressed at all").code == 0
    peer.close()
    good, bad = lines(exported(topic)[0])
    assert (good["compression"], good["body"]["data"]) == (None, "the body")
    assert (bad["compression"], bad["body"]["data"]) == ("zlib", "not compressed at all")
    done = ran(message_import.CHECK, exported(topic)[0], topic=topic)
    assert done.counts == {"valid": 1, "failed": 1, "skipped": 0}
    assert "still compressed" in problems_of(done)[0]["problem"]


GOOD = b'{"body": {"encoding": "text", "data": "x"}}'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json", "not JSON"),
        (b"[1]", "one JSON object"),
        (b"{}", "body"),
        (b'{"body": "x"}', "body"),
        (b'{"body": {"encoding": "text", "data": ""}}', "needs a body"),
        (b'{"body": {"encoding": "base64", "data": "?"}}', "base64"),
        (b'{"body": {"encoding": "text", "data": "x"}, "tags": 3}', "tags"),
        (b'{"body": {"encoding": "text", "data": "x"}, "tags": "a||b"}', "one tag"),
        (b'{"body": {"encoding": "text", "data": "x"}, "keys": ["a b"]}', "spaces"),
        (b'{"body": {"encoding": "text", "data": "x"}, "properties": {"a": 1}}', "properties"),
        (b'{"body": {"encoding": "text", "data": "x"}, "properties": {"a": "\\u0001"}}', "control characters"),
        (b'{"body": {"encoding": "text", "data": "x"}, "queue_id": -1}', "queue_id"),
        (b'{"body": {"encoding": "text", "data": "x"}, "flag": 1e9}', "flag"),
        (b'{"body": {"encoding": "text", "data": "x"}, "properties": {"a": "' + b"x" * 40_000 + b'"}}', "32 KB"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ],
    ids=range(16),
)
def test_each_wrong_line_is_named_with_its_reason(broker, topic, line, problem):
    data = b"\n".join([GOOD, b"", line, b"  ", GOOD])
    for kind, good in ((message_import.CHECK, "valid"), (message_import.NAME, "sent")):
        done = ran(kind, data, topic=topic)
        assert done.state == "done", done.why
        assert done.counts == {good: 2, "failed": 1, "skipped": 2}
        assert done.done == done.total == 5
        [found] = problems_of(done)
        assert found["line"] == 3
        assert problem in found["problem"]
    assert broker.messages.page(topic).total == 2  # of the import; the check sent nothing


def test_what_brokers_and_clients_set_is_not_taken_over(broker, topic):
    forged = {
        "UNIQ_KEY": "AAAA", "DELAY": "3", "REAL_TOPIC": "other", "TRAN_MSG": "true", "__transactionId__": "x",
        "RETRY_TOPIC": "y", "ROCKETBOX_REPLAYED": "z", "TIMER_DELIVER_MS": "99", "mine": "kept", "__SHARDINGKEY": "s",
    }  # fmt: skip
    line = {"body": {"encoding": "text", "data": "x"}, "properties": forged | {"TAGS": "t", "KEYS": "a b"}}
    done = ran(message_import.NAME, json.dumps(line).encode(), topic=topic)
    assert done.counts["sent"] == 1
    [copy] = all_of(broker, topic)
    assert (copy.row.tags, copy.row.keys) == ("t", ("a", "b"))
    assert copy.properties["mine"] == "kept"
    assert copy.properties["__SHARDINGKEY"] == "s"
    kept = {name for name in forged if name in copy.properties}
    assert kept == {"mine", "__SHARDINGKEY", "UNIQ_KEY"}
    assert copy.row.unique_id != "AAAA"
    assert "DELAY" in done.result["properties_left_out"]


class Killed(BaseException):
    """Acts like a SIGKILL: no code behind it runs."""


@pytest.mark.parametrize("place", ["before the batch", "behind the batch", "in keep"])
@pytest.mark.parametrize("after", [1, 3, 7])
def test_an_import_that_was_killed_goes_on_and_sends_nothing_twice(broker, topic, monkeypatch, place, after):
    data = b"\n".join(b'{"body": {"encoding": "text", "data": "%d"}}' % n if n % 10 else b"bad" for n in range(200))
    job = new(message_import.NAME, data, topic=topic, rate=250)
    monkeypatch.setattr(message_import, "BATCH_LINES", 25)
    left = [after]

    def counted():
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    with monkeypatch.context() as patched:
        real_send, real_keep = message_import.Import._send, message_import.Import._keep

        def send(self, items, numbers):
            if place == "before the batch":
                counted()
            found = real_send(self, items, numbers)
            if place == "behind the batch":
                counted()
            return found

        def keep(self):
            real_keep(self)
            if place == "in keep":
                counted()

        patched.setattr(message_import.Import, "_send", send)
        patched.setattr(message_import.Import, "_keep", keep)
        with pytest.raises(Killed):
            runner.run_waiting()
    again = jobs.Board(jobs.board().directory)
    assert again.get(job.id).state == "waiting"
    assert runner.run_waiting(again) == 1
    done = again.get(job.id)
    assert done.state == "done", done.why
    assert done.counts == {"sent": 180, "failed": 20, "skipped": 0}
    bodies = [int(copy.body) for copy in all_of(broker, topic)]
    assert sorted(bodies) == [n for n in range(200) if n % 10]
    assert [row["line"] for row in lines(again.folder(job.id).file("problems.ndjson").read_bytes())] == list(
        range(1, 201, 10)
    )


@pytest.mark.parametrize("letters", [False, True], ids=["ids that follow", "letters"])
def test_an_import_that_was_killed_does_not_believe_ids_that_a_stranger_made(broker, topic, monkeypatch, letters):
    """He has read the copies of the first lines, and makes the ids of the next ones like theirs."""
    data = b"\n".join(b'{"body": {"encoding": "text", "data": "%d"}}' % n for n in range(40))
    job = new(message_import.NAME, data, topic=topic, rate=10_000)
    monkeypatch.setattr(message_import, "BATCH_LINES", 10)
    with monkeypatch.context() as patched:
        real = message_import.Import._send

        def send(self, items, numbers):
            if numbers[0] > 20:
                raise Killed
            return real(self, items, numbers)

        patched.setattr(message_import.Import, "_send", send)
        with pytest.raises(Killed):
            runner.run_waiting()
    peer = Peer(broker.system().broker_address)
    for copy in all_of(broker, topic):
        seen = copy.row.unique_id
        for at in (16, 32):  # as the number of a line that is to come, wherever in the id it stands
            wanted = int(copy.body) + 21
            made = (seen[: at - 8] + f"{wanted:08X}" + seen[at:]) if not letters else seen[: at - 1] + "Z" * (33 - at)
            assert peer.ask(310, send_fields(topic, 0, f"UNIQ_KEY\x01{made}\x02"), b"forged").code == 0
    peer.close()
    again = jobs.Board(jobs.board().directory)
    runner.run_waiting(again)
    done = again.get(job.id)
    assert (done.state, done.counts["sent"]) == ("done", 40), done.why
    assert sorted(int(copy.body) for copy in all_of(broker, topic) if copy.body != b"forged") == list(range(40))


def test_an_import_that_is_killed_twice_within_one_batch_sends_nothing_twice(broker, topic, monkeypatch):
    data = b"\n".join(b'{"body": {"encoding": "text", "data": "%d"}}' % n for n in range(60))
    job = new(message_import.NAME, data, topic=topic)
    monkeypatch.setattr(message_import, "BATCH_LINES", 20)
    for part in (7, 5):  # of a batch the log has a part when the process dies
        with monkeypatch.context() as patched:
            real = message_import.Import._send

            def send(self, items, numbers, real=real, part=part):
                real(self, items[:part], numbers[:part])
                raise Killed

            patched.setattr(message_import.Import, "_send", send)
            with pytest.raises(Killed):
                runner.run(jobs.board().take_next(), jobs.board())
        job_now = jobs.Board(jobs.board().directory)
        monkeypatch.setattr("appliance.console.jobs.job_board._made", job_now)
    runner.run_waiting()
    done = jobs.board().get(job.id)
    assert (done.state, done.counts["sent"]) == ("done", 60), done.why
    assert sorted(int(copy.body) for copy in all_of(broker, topic)) == list(range(60))


def test_what_editors_put_before_a_text_and_behind_its_lines_is_no_part_of_a_message(broker, topic):
    data = b"\xef\xbb\xbf" + b"\r\n".join([GOOD, b"", GOOD]) + b"\r\n"
    done = ran(message_import.NAME, data, topic=topic)
    assert done.counts == {"sent": 2, "failed": 0, "skipped": 1}
    assert [copy.body for copy in all_of(broker, topic)] == [b"x", b"x"]


def test_an_import_whose_traces_have_expired_says_what_is_in_doubt(broker, topic, monkeypatch):
    job = new(message_import.NAME, b"\n".join([GOOD] * 20), topic=topic)
    job.kept = {"at": len(GOOD) + 1, "line": 1, "counts": {"sent": 1, "failed": 0, "skipped": 0}, "mark": -1}
    runner.run_waiting()
    assert job.state == "failed"
    assert "Lines up to 1 are done" in str(job.why)
    assert broker.messages.page(topic).total == 0


def test_a_cancelled_import_says_how_far_it_came(broker, topic, monkeypatch):
    monkeypatch.setattr(message_import, "BATCH_LINES", 5)
    job = new(message_import.NAME, b"\n".join([GOOD] * 50), topic=topic)
    real = message_import.Import._handle

    def handle(self, *arguments):
        real(self, *arguments)
        if self._line == 20:
            self._work.job.cancel_asked_by = "somebody"

    monkeypatch.setattr(message_import.Import, "_handle", handle)
    runner.run_waiting()
    assert (job.state, job.counts, job.done) == ("cancelled", {"sent": 20, "failed": 0, "skipped": 0}, 20)
    assert broker.messages.page(topic).total == 20


def test_the_rate_is_held(broker, topic):
    begin = now_ms()
    done = ran(message_import.NAME, b"\n".join([GOOD] * 100), topic=topic, rate=100)
    assert done.counts["sent"] == 100
    assert now_ms() - begin > 800


def test_the_pages_lead_from_a_file_through_its_check_to_the_import(client_as, broker, topic):
    client = client_as("operator")
    assert client.get("/messages/import/", {"topic": topic}).status_code == 200
    wrong = client.post("/messages/import/", {"topic": "no-such", "file": SimpleUploadedFile("a", GOOD)})
    assert wrong.status_code == 422
    assert "There is no topic no-such" in wrong.content.decode()
    answer = client.post("/messages/import/", {"topic": topic, "file": SimpleUploadedFile("a", GOOD + b"\nbad\n")})
    assert answer.status_code == 302
    runner.run_waiting()
    page = client.get(answer.url).content.decode()
    assert "line 2" in page
    check = answer.url.rstrip("/").rsplit("/", 1)[1]
    assert f"/messages/import/?checked={check}" in page
    assert "Will be sent" in client.get(f"/messages/import/?checked={check}").content.decode()
    assert broker.messages.page(topic).total == 0
    answer = client.post(f"/messages/import/?checked={check}", {"rate": 100})
    assert answer.status_code == 302
    runner.run_waiting()
    assert broker.messages.page(topic).total == 1
    started = [entry.after["kind"] for entry in AuditEntry.objects.filter(action="job.start")]
    assert sorted(started[:2]) == ["message-import", "message-import-check"]
    assert client_as("viewer").get("/messages/import/").status_code == 403


def test_bodies_leave_only_with_both_grants(client_as, broker, topic, people):
    broker.sender.send(topic, b"the-secret", keys=("k1",))
    client = client_as("viewer")
    asked = {"topic": topic, "format": "ndjson", "whole": "on"}
    answer = client.post("/messages/export/", asked)
    job = jobs.board().get(answer.url.rstrip("/").rsplit("/", 1)[1])
    assert job.kind == message_export.SEARCH  # without the grants it is a list, whatever was ticked
    refused = client.post("/messages/export/", asked | {"filter": "body CONTAINS 'secret'"})
    assert refused.status_code == 422
    assert "may not read message bodies" in refused.content.decode()
    shown = client.get("/messages/", {"topic": topic, "filter": "body CONTAINS 'secret'"})
    assert shown.status_code == 400
    assert "may not read message bodies" in shown.content.decode()
    grant("viewer", may_read_bodies=True)
    assert "1 found" in client.get("/messages/", {"topic": topic, "filter": "body CONTAINS 'secret'"}).content.decode()
    assert AuditEntry.objects.first().action == "message.filter"
    grant("viewer", may_export=True)
    answer = client.post("/messages/export/", asked)
    runner.run_waiting()
    job = jobs.board().get(answer.url.rstrip("/").rsplit("/", 1)[1])
    assert job.kind == message_export.EXPORT
    assert lines(jobs.board().folder(job.id).file(job.files[0].name).read_bytes())[0]["body"]["data"] == "the-secret"
    grant("viewer", may_export=False)
    assert client.get(f"/jobs/{job.id}/").status_code == 404


def test_the_page_says_how_far_it_has_looked_and_offers_what_it_shows(client_as, broker, topic):
    for number in range(20):
        broker.sender.send(topic, b"x", keys=(f"k{number}", "=1+1"), tags="even" if number % 2 == 0 else "odd")
    client = client_as("viewer")
    asked = {"topic": topic, "filter": "tag = 'even' AND NOT key = 'k4'"}
    page = client.get("/messages/", asked).content.decode()
    assert "9 found on this page" in page
    assert "looked at 20 of 20" in page
    assert "stopped early" not in page
    assert "looked at" not in client.get("/messages/", {"topic": topic}).content.decode()
    text = client.get("/messages/", asked | {"format": "csv"}).content.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 9
    assert rows[0]["stored_at"].endswith("Z")
    assert rows[0]["keys"] == "k18 =1+1"
    found = client.get("/messages/", asked | {"format": "ndjson"})
    assert found.headers["Content-Type"] == "application/x-ndjson"
    assert [row["keys"][0] for row in lines(found.content)] == [row["keys"].split()[0] for row in rows]
    wrong = client.get("/messages/", {"topic": topic, "filter": "tag = "})
    assert wrong.status_code == 400
    assert "column 5" in wrong.content.decode()
    assert 'aria-invalid="true"' in wrong.content.decode()


def test_a_line_of_an_export_is_what_an_import_reads(broker, topic):
    broker.sender.send(topic, b"x", tags="t", keys=("a", "b"), properties={"p": "v"}, queue_id=2)
    [copy] = all_of(broker, topic)
    item = message_lines.item_of(json.dumps(message_lines.line_of(copy)).encode())
    assert (item["body"], item["tags"], item["keys"], item["queue_id"]) == (b"x", "t", ["a", "b"], 2)


# --- copies to another topic


def copied(broker, topic, **more):
    """A job that copies, and its target."""
    to = f"{topic}-to"
    broker.topic_commands.create(to)
    parameters = message_copy.parameters_of(broker, topic, to, None, None, now_ms() + 1, None)
    return new(message_copy.NAME, **(parameters | {"rate": 10_000} | more)), to


def test_messages_are_checked_and_copied_by_a_filter_and_the_originals_stay(broker, topic):
    for number in range(30):
        broker.sender.send(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd", keys=f"k{number}")
    job, to = copied(broker, topic, filter="tag = 'even'")
    checked = ran(message_copy.CHECK, **job.parameters)
    done = jobs.board().get(job.id)
    assert checked.state == done.state == "done", (checked.why, done.why)
    assert (checked.result["valid"], checked.result["failed"], checked.result["found"]) == (15, 0, 15)
    assert (done.counts["sent"], done.result["found"], done.result["other"]) == (15, 15, 15)
    originals = {one.body: one.row for one in all_of(broker, topic)}
    copies = all_of(broker, to)
    assert len(originals) == 30
    assert sorted(int(one.body) for one in copies) == list(range(0, 30, 2))
    for one in copies:
        before = originals[one.body]
        assert (one.row.tags, one.row.keys, one.row.queue_id) == (before.tags, before.keys, before.queue_id)
        assert one.row.unique_id != before.unique_id
    assert not jobs.board().folder(job.id).input.exists()
    assert done.files == []


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("place", ["before the batch", "behind the batch", "while it collects"])
def test_a_copy_that_was_killed_goes_on_and_sends_nothing_twice(broker, topic, monkeypatch, place, after):
    for number in range(80):
        broker.sender.send(topic, b"%d" % number)
    monkeypatch.setattr(message_import, "BATCH_LINES", 20)
    job, to = copied(broker, topic)
    left = [after]

    def counted():
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    with monkeypatch.context() as patched:
        real_send, real_line = message_import.Import._send, message_copy.line_of

        def send(self, items, numbers):
            if place == "before the batch":
                counted()
            found = real_send(self, items, numbers)
            if place == "behind the batch":
                counted()
            return found

        def line(row):
            if place == "while it collects":
                counted()
            return real_line(row)

        patched.setattr(message_import.Import, "_send", send)
        patched.setattr(message_copy, "line_of", line)
        with pytest.raises(Killed):
            runner.run_waiting()
    broker.sender.send(topic, b"later")
    again = jobs.Board(jobs.board().directory)
    if place != "while it collects":  # lines keep their numbers, although some originals may have expired meanwhile
        monkeypatch.setattr(message_copy, "line_of", None)
    assert runner.run_waiting(again) == 1
    done = again.get(job.id)
    assert (done.state, done.counts["sent"], done.result["found"]) == ("done", 80, 80), done.why
    assert sorted(int(one.body) for one in all_of(broker, to)) == list(range(80))


@pytest.mark.parametrize(
    ("error", "stops", "stays"),
    [
        (OSError(28, "No space left on device"), False, False),
        (Unavailable("no"), False, False),
        (Unavailable("no"), True, True),
        (ValueError("a mistake"), False, False),
    ],
)
def test_a_copy_that_fails_leaves_no_messages_behind(broker, topic, monkeypatch, error, stops, stays):
    broker.sender.send(topic, b"secret")
    job, _ = copied(broker, topic)

    def fail(self):
        raise error

    monkeypatch.setattr(message_import.Import, "run", fail)
    board = jobs.board()
    runner.run(board.take_next(), board, lambda: stops)
    assert board.get(job.id).state == ("waiting" if stays else "failed")
    assert board.folder(job.id).input.exists() == stays
    if stays:
        board.cancel(job.id, "somebody")
        assert not board.folder(job.id).input.exists()


def test_the_page_checks_first_and_copies_what_was_checked(client_as, broker, topic):
    broker.sender.send(topic, b"one")
    to = f"{topic}-to"
    broker.topic_commands.create(to)
    client = client_as("operator")
    form = {"topic": topic, "to": to, "since": "", "until": "", "queue": "", "filter": ""}
    for wrong in ({"to": topic}, {"to": "no-such"}, {"topic": "no-such"}, {"queue": "x"}, {"filter": "tag ="}):
        assert client.post("/messages/copy/", form | wrong).status_code == 422, wrong
    assert client.post("/messages/copy/", form | {"filter": "body = 'one'"}).status_code == 422
    address = client.post("/messages/copy/", form).headers["Location"]
    runner.run_waiting()
    check = address.strip("/").rpartition("/")[2]
    assert f"/messages/copy/?checked={check}" in client.get(address).content.decode()
    assert not all_of(broker, to)
    broker.sender.send(topic, b"after the check")
    confirm = f"/messages/copy/?checked={check}"
    assert f"{topic} → {to}" in client.get(confirm).content.decode()
    assert client.post(confirm, {"rate": 0}).status_code == 422
    address = client.post(confirm, {"rate": 100}).headers["Location"]
    runner.run_waiting()
    assert [one.body for one in all_of(broker, to)] == [b"one"]
    page = client_as("admin").get(address).content.decode()
    assert f"/topics/{topic}/purge/?before=" in page
    assert client_as("viewer").get("/messages/copy/").status_code == 403


def test_only_originals_that_were_all_copied_are_offered_for_a_purge(client_as, broker, topic, monkeypatch):
    broker.sender.send(topic, b"one")
    later = now_ms() + 3_600_000
    broker.topic_commands.create(f"{topic}-to")
    parameters = message_copy.parameters_of(broker, topic, f"{topic}-to", None, None, later, None)
    assert parameters["to_ms"] <= now_ms() + 1, "what comes after the copying is not purged"

    def line(row):
        return message_lines.line_of(row) | {"keys": "not a list"}

    monkeypatch.setattr(message_copy, "line_of", line)
    failed = ran(message_copy.NAME, **(parameters | {"rate": 100}))
    assert (failed.state, failed.result["failed"]) == ("done", 1)
    page = client_as("admin").get(f"/jobs/{failed.id}/").content.decode()
    assert f"/topics/{topic}/purge/" not in page
