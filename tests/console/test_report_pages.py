"""Pages of the reports over days and runs as the runner leaves them."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import shutil
import time

import pytest
from django.urls import reverse

from appliance import runtime
from appliance.console import reports
from appliance.console.alerts.models import AlertChannel
from appliance.console.models import AuditEntry, User, now_ms
from appliance.console.reports import acts, plots, records
from appliance.console.reports.needs import report_needs
from appliance.console.reports.runner import ReportRunner
from spark_reports.reports.document import REPORTS
from tests.support import report_days
from tests.support.report_days import DAY, FAILED_RUN, RUN

pytestmark = pytest.mark.django_db
ODD = ("<img src=x onerror=alert(1)>", "=cmd|' /C calc'!A0", "%RETRY%a/b", "g" * 200)


@pytest.fixture(autouse=True)
def runner():
    """A report runner that does not start any report."""
    acts.use(ReportRunner())
    yield
    acts.use(None)


@pytest.fixture
def data_dir():
    return runtime.place().directory.parent


def text_of(response) -> str:
    """Return the page's text as a reader sees it."""
    page = re.sub(r"<(script|style).*?</\1>", "", response.content.decode(), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split()).replace("\u202f", " ")


def whole(response) -> bytes:
    """Return all that a stream sends."""

    async def pieces() -> list[bytes]:
        return [piece async for piece in response.streaming_content]

    return b"".join(asyncio.run(pieces()))


def shown(client, name: str, *args, **query) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200, response.content
    return text_of(response)


# --- the first page


def test_before_the_first_run_the_page_says_what_reports_are_and_what_is_missing(client_as, broker, monkeypatch):
    from spark_reports import machine

    lacking = (machine.Missing("java_missing", "java"),)
    monkeypatch.setattr(machine, "what_is_missing", lambda *_: lacking)
    text = shown(client_as("operator"), "reports")
    assert "No report was made yet" in text
    assert "There is no Java on this machine" in text
    assert "script/server --reports" in text
    assert "All reports are made without Spark" in text
    assert "Run now" in text
    monkeypatch.setattr(machine, "what_is_missing", lambda *_: ())
    assert "There is no Java" not in shown(client_as("operator"), "reports")


def test_the_newest_day_is_seen_at_a_glance(client_as, broker, data_dir):
    report_days.put(data_dir, "2026-03-19")
    report_days.put(data_dir)
    report_days.put_run(data_dir, report_days.record())
    response = client_as("viewer").get(reverse("reports"))
    text = text_of(response)
    assert "Fri 2026-03-20" in text
    assert "41 200 000" in text
    assert "the day before: 40 000 000" in text
    assert "Thu 2026-03-19" in text
    for report in REPORTS:
        assert reverse("report", args=[DAY, report]) in response.content.decode()
    assert "Run now" not in text  # a viewer only reads


def test_a_failed_run_is_told_above_the_last_good_reports(client_as, broker, data_dir):
    report_days.put(data_dir)
    report_days.put_runs(data_dir)
    text = shown(client_as("viewer"), "reports")
    assert "The last run, for Sat 2026-03-21, failed" in text
    assert "was not done after 60 minutes" in text
    assert "Below are the last good reports, of Fri 2026-03-20." in text
    assert "ended: time is over" in text
    later = report_days.record(id="20260322-000000-0123abcd", started_ms=now_ms() - 1000, ended_ms=now_ms())
    report_days.put_run(data_dir, later)
    assert "The last run, for" not in shown(client_as("viewer"), "reports")


def test_why_a_run_failed_is_said_in_the_readers_language(client_as, broker, data_dir, monkeypatch):
    monkeypatch.setattr("appliance.console.reports.sentences._", lambda text: f"[{text}]")
    report_days.put_run(data_dir, report_days.failed_record())
    assert "[The run was not done after 60 minutes, and was ended.]" in shown(client_as("viewer"), "reports")


# --- a report


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_shows_plot_table_acts_and_where_its_figures_come_from(client_as, broker, data_dir, report):
    report_days.put(data_dir)
    report_days.put_run(data_dir, report_days.record())
    response = client_as("operator").get(reverse("report", args=[DAY, report]))
    page, text = response.content.decode(), text_of(response)
    assert page.index('<svg class="plot report"') < page.index("4 812 007".replace(" ", "\u202f"))
    assert 'aria-label="' in page[page.index('<svg class="plot report"') :][:200]
    assert "hours of Europe/Berlin" in text
    assert "2 rows shown, the worst first; 2 left out" in text
    assert "41 200 000 messages" in text
    assert "took 2 min 14 s on Spark local[2]" in text
    assert "10:20" in text  # of the reports' zone, in which the reader is not
    assert "41 min" in text
    assert "it begins in the log file 00000000000000000000 and has 4.0 KiB." in text
    assert reverse("group", args=["shipping"]) in page
    assert reverse("replay_create", args=["shipping"]) in page
    assert f"{reverse('alert_rule_create')}?figure=lag_minutes&amp;pattern=shipping" in page


def test_who_may_not_do_it_is_offered_no_act(client_as, broker, data_dir):
    report_days.put(data_dir)
    page = client_as("viewer").get(reverse("report", args=[DAY, "digest"])).content.decode()
    assert reverse("replay_create", args=["shipping"]) not in page
    assert reverse("group", args=["shipping"]) in page


def test_a_long_table_below_its_plot_is_folded_unless_something_can_be_done_in_it(client_as, broker, data_dir):
    report_days.put(data_dir, groups=tuple(f"group-{number}" for number in range(13)))
    address = reverse("report", args=[DAY, "digest"])
    assert "As a table" not in text_of(client_as("admin").get(address))
    path = data_dir / "rocketbox/reports/days" / DAY / "digest.json"
    found = json.loads(path.read_text())
    found["tables"][0]["acts"] = []
    path.write_text(json.dumps(found))
    assert "As a table" in text_of(client_as("admin").get(address))


def test_a_later_run_that_failed_is_told_above_the_figures_with_what_counted_and_why(client_as, broker, data_dir):
    report_days.put(data_dir)
    report_days.put_run(data_dir, report_days.record())
    assert "A later run for this day failed" not in shown(client_as("viewer"), "report", DAY, "digest")
    report_days.put_run(data_dir, report_days.failed_record(day=DAY, inputs={"why": "no_room"}))
    said = (
        "The run was not done after 60 minutes, and was ended. It was counted by Spark local[2], since the day has 4 "
        "GiB of log or more, but there is too little memory or disk for Spark."
    )
    text = shown(client_as("viewer"), "report", DAY, "digest")
    assert "A later run for this day failed at" in text
    assert said in text
    assert said in shown(client_as("viewer"), "reports")
    run = client_as("viewer").get(f"/api/v1/reports/runs/{FAILED_RUN}").json()
    assert run["engine_why"].startswith("the day has 4 GiB of log or more, but there is too little")


def test_a_plot_and_its_table_do_not_have_the_same_title(client_as, broker, data_dir):
    path = report_days.put(data_dir) / "group-health.json"
    found = json.loads(path.read_text())
    found["tables"][0]["key"] = found["plots"][0]["table"] = "hours"
    path.write_text(json.dumps(found))
    text = shown(client_as("viewer"), "report", DAY, "group-health")
    assert text.count("How far behind in each hour, 95th percentile") == 1
    assert "As a table" in text


def test_the_days_before_and_behind_are_a_click_away(client_as, broker, data_dir):
    for day in ("2026-03-18", DAY, "2026-03-22"):
        report_days.put(data_dir, day)
    page = client_as("viewer").get(reverse("report", args=[DAY, "digest"])).content.decode()
    assert f'rel="prev" href="{reverse("report", args=["2026-03-18", "digest"])}"' in page
    assert f'rel="next" href="{reverse("report", args=["2026-03-22", "digest"])}"' in page


def test_a_day_on_which_nothing_was_is_no_mistake(client_as, broker, data_dir):
    report_days.put(data_dir, groups=())
    text = shown(client_as("viewer"), "report", DAY, "group-health")
    assert "not known" in text
    assert "Nothing to show." in text


def test_names_are_shown_as_they_are_and_run_nowhere(client_as, broker, data_dir):
    report_days.put(data_dir, groups=ODD)
    client = client_as("admin")
    page = client.get(reverse("report", args=[DAY, "digest"])).content.decode()
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
    answer = client.get(reverse("report", args=[DAY, "digest"]), {"format": "csv", "table": "groups"})
    header, *rows = csv.reader(io.StringIO(answer.content.decode()))
    assert header == ["group", "worst_ms", "worst_at", "messages"]
    assert [row[0] for row in rows] == [ODD[0], "'" + ODD[1], ODD[2], ODD[3]]
    assert rows[0][1:] == ["2460000", "2026-03-20T09:20:00.000Z", "4812007"]


@pytest.mark.parametrize(
    ("day", "report"),
    [(DAY, "no-such"), ("2026-03-21", "digest"), ("..", "digest"), (DAY, "..%2fdigest"), ("x" * 99, "digest")],
)  # fmt: skip
def test_what_is_not_there_is_not_found(client_as, broker, data_dir, day, report):
    report_days.put(data_dir)
    assert client_as("viewer").get(f"/reports/{day}/{report}/").status_code == 404


@pytest.mark.parametrize(
    "damage", [lambda d: d.pop("tiles"), lambda d: d["tables"][0]["rows"].append([1]), lambda d: d.update(t0_ms="x"),
               lambda d: d["tiles"][0].update(value="many")]
)  # fmt: skip
def test_a_damaged_document_is_said_to_be_one(client_as, broker, data_dir, damage):
    path = report_days.put(data_dir) / "digest.json"
    found = json.loads(path.read_text())
    damage(found)
    path.write_text(json.dumps(found))
    response = client_as("viewer").get(reverse("report", args=[DAY, "digest"]))
    assert response.status_code == 503
    assert "damaged" in text_of(response)
    assert client_as("viewer").get(reverse("reports")).status_code == 200
    assert client_as("viewer").get(reverse("overview")).status_code == 200


def changed(**values):
    return lambda text: json.dumps({**json.loads(text), **values})


HARM = {
    "cut off": lambda text: text[: len(text) // 2],
    "as deep as a parser goes": lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "empty": lambda text: "{}",
    "no rows": changed(tables=[{"key": "groups"}]),
    "no columns": changed(tables=[{"key": "groups", "columns": [["a"]], "rows": 5}]),
    "no plots": changed(plots=[5]),
    "a later format": changed(format=2),
    "another day": changed(day="../x"),
}


@pytest.mark.parametrize("harm", HARM)
def test_no_damage_of_a_file_is_more_than_a_sentence(client_as, broker, data_dir, harm):
    path = report_days.put(data_dir) / "digest.json"
    path.write_text(HARM[harm](path.read_text()))
    api = f"/api/v1/reports/days/{DAY}/digest"
    for address in (f"/reports/{DAY}/digest/", f"/reports/{DAY}/digest/?format=csv&table=groups", api,
                    f"{api}/plots/behind", f"{api}/tables/groups"):  # fmt: skip
        response = client_as("viewer").get(address)
        assert (response.status_code, "damaged" in response.content.decode()) == (503, True), address
    assert client_as("viewer").get("/reports/").status_code == 200
    assert client_as("viewer").get("/").status_code == 200


def test_a_file_of_gigabytes_is_not_read_and_what_is_no_file_waits_for_nobody(client_as, broker, data_dir):
    path = report_days.put(data_dir) / "digest.json"
    with open(path, "wb") as file:
        file.truncate(64 << 30)
    assert client_as("viewer").get(f"/reports/{DAY}/digest/").status_code == 503
    assert client_as("viewer").get("/").status_code == 200
    for make in (os.mkfifo, os.mkdir, lambda place: os.symlink("/nowhere", place)):
        path.unlink() if not path.is_dir() else path.rmdir()
        make(path)
        assert client_as("viewer").get(f"/reports/{DAY}/digest/").status_code == 404
        assert client_as("viewer").get("/").status_code == 200


def test_halves_of_characters_in_names_are_shown_as_such(client_as, broker, data_dir):
    report_days.put(data_dir, groups=("ship\ud800ping",))
    assert "ship\ufffdping" in shown(client_as("viewer"), "report", DAY, "digest")
    response = client_as("viewer").get(f"/reports/{DAY}/digest/", {"format": "csv", "table": "groups"})
    assert "ship\ufffdping" in response.content.decode()


def test_what_is_no_day_is_not_listed(client_as, broker, data_dir):
    days = report_days.put(data_dir).parent
    (days / "2026-13-40").mkdir()
    (days / "2026-12-31").write_text("")
    assert reports.days() == [DAY]


@pytest.mark.parametrize("wrong", [{"started_ms": None}, {"ended_ms": "x"}, {"inputs": [1]}, {"versions": []}])
def test_a_record_of_another_shape_is_none(client_as, broker, data_dir, wrong):
    report_days.put_run(data_dir, report_days.record())
    report_days.put_run(data_dir, report_days.failed_record(**wrong))
    assert [one.id for one in reports.runs()] == [RUN]
    for address in ("/", "/reports/", "/reports/runs/", "/reports/runs/?format=csv", "/api/v1/reports/runs"):
        assert client_as("viewer").get(address).status_code == 200, address


# --- plots


def test_names_are_escaped_in_a_plot(client_as, broker, data_dir):
    report_days.put(data_dir, groups=("<script>alert(1)</script>", '"><a href="javascript:x">'))
    page = client_as("viewer").get(reverse("report", args=[DAY, "digest"])).content.decode()
    plot = page[page.index('<svg class="plot report"') :].partition("</svg>")[0]
    assert "&lt;script&gt;" in plot
    assert "<script" not in plot
    assert "<a " not in plot


def _plot(rows, **values):
    """A document's data with one plot."""
    plot = {"key": "behind", "table": "hours", "legend": [], **values}
    return {"zone": "UTC", "figures": {}, "tables": [{"key": "hours", "rows": rows}], "plots": [plot]}


def test_a_plot_says_its_name_to_screen_readers():
    found = _plot([["g", 0, 5]])
    drawn = plots.markup(plots.draw(found, found["plots"][0]), 'a "title"')
    assert ' role="img" aria-label="a &quot;title&quot;">' in drawn


@pytest.mark.parametrize(
    "found",
    [
        _plot([]),
        _plot([["g"]]),
        _plot([["g", "x", 5]]),
        _plot([["g", 10**400, 5]]),
        _plot([["g", 0, 5]], key="of a later version"),
        _plot([["g", 0, 5]], table="no such"),
        _plot([["g", 0, 5]]) | {"zone": "Nowhere/Land"},
        _plot([["g", at, 5] for at in range(plots.MOST_MARKS + 1)]),
        _plot([[str(at), at, 5] for at in range(200)]),
        _plot([["g", "t", 5]], key="where"),
        _plot([["g", "first", 1, 2, 3]], key="shares"),
    ],
)
def test_numbers_that_cannot_be_drawn_make_no_plot(found):
    assert plots.draw(found, found["plots"][0]) is None


def test_a_report_without_its_plot_still_has_its_numbers(client_as, broker, data_dir):
    path = report_days.put(data_dir) / "digest.json"
    path.write_text(path.read_text().replace('"key": "behind"', '"key": "of-a-later-version"'))
    response = client_as("viewer").get(reverse("report", args=[DAY, "digest"]))
    assert "The plot is not there any more" in text_of(response)
    assert "4 812 007" in text_of(response)


# --- runs


def test_a_run_tells_what_it_read_and_did(client_as, broker, data_dir):
    report_days.put(data_dir)
    report_days.put_runs(data_dir)
    text = shown(client_as("viewer"), "report_run", RUN)
    for said in ("started by schedule", "Messages read 41 200 000", "44.0 GiB", "Gaps 1", "counting 2 min ", "4.3.0",
                 "17.0.15", "Queues 64", "1 420 MiB", "Running Spark version"):  # fmt: skip
        assert said in text, said
    text = shown(client_as("viewer"), "report_run", FAILED_RUN)
    assert "was not done after 60 minutes" in text
    assert client_as("viewer").get("/reports/runs/20990101-000000-00000000/").status_code == 404
    assert client_as("viewer").get("/reports/runs/..%2f..%2fx/").status_code == 404


def test_the_progress_is_told_as_soon_as_it_is_another_one(client_as, broker, data_dir, monkeypatch):
    monkeypatch.setattr("appliance.console.reports.views.WAIT_S", 3600.0)
    running = report_days.record(state="running", ended_ms=None, steps=[], rows=0)
    directory = report_days.put_run(
        data_dir, running, progress={"step": "counting", "done": 3, "total": 12, "at_ms": 1}
    )
    client = client_as("viewer")
    page = client.get(reverse("report_run", args=[RUN])).content.decode()
    assert 'aria-valuenow="25"' in page
    seen = re.search(r"progress/\?seen=([^\"]*)\"", page).group(1)
    (directory / "progress.json").write_text(json.dumps({"step": "counting", "done": 6, "total": 12, "at_ms": 2}))
    answer = whole(client.get(f"{reverse('report_run_progress', args=[RUN])}?seen={seen}"))
    assert b'aria-valuenow="50"' in answer


def test_who_waits_for_progress_reads_the_run_only_when_it_is_another_one(client_as, broker, data_dir, monkeypatch):
    """Many browsers may hold this answer for as long as a run takes."""
    running = report_days.record(state="running", ended_ms=None, steps=[], rows=0)
    told = {"step": "counting", "done": 3, "total": 12, "at_ms": 1}
    report_days.put_run(data_dir, running, progress=told)
    client = client_as("viewer")
    page = client.get(reverse("report_run", args=[RUN])).content.decode()
    seen = re.search(r"progress/\?seen=([^\"]*)\"", page).group(1)
    monkeypatch.setattr("appliance.console.reports.views.WAIT_S", 3.0)
    read = []
    monkeypatch.setattr(reports, "progress", lambda run: read.append(run) or records.progress(run))
    begin = time.monotonic()
    assert b'aria-valuenow="25"' in whole(client.get(f"{reverse('report_run_progress', args=[RUN])}?seen={seen}"))
    assert time.monotonic() - begin >= 3
    assert len(read) <= 2, "at the begin and at the end"
    report_days.put_run(data_dir, report_days.record())
    assert client.get(reverse("report_run_progress", args=[RUN])).headers["HX-Refresh"] == "true"


def test_reports_are_made_now_and_the_run_is_cancelled(client_as, broker, data_dir):
    client = client_as("operator")
    response = client.post(reverse("report_run_create"), {"day": "yesterday"})
    found = reports.runs()[0]
    assert response.headers["Location"] == reverse("report_run", args=[found.id])
    assert (found.state, found.who) == ("waiting", "the-operator")
    again = client.post(reverse("report_run_create"), {"day": "today"}, follow=True)
    assert "being made already" in text_of(again)
    assert "Reports are being made." in text_of(again)
    assert "Run now" not in text_of(again)
    client.post(reverse("report_run_cancel", args=[found.id]))
    assert reports.run(found.id).state == "cancelled"
    assert [one.action for one in AuditEntry.objects.order_by("id")] == ["reports.run", "reports.cancel"]
    assert "Cancel the run" not in shown(client, "report_run", found.id)


def test_a_day_that_is_none_starts_nothing(client_as, broker):
    for day in ("2999-01-01", "no-day", ""):
        client_as("operator").post(reverse("report_run_create"), {"day": day})
    assert all(run.day <= time.strftime("%Y-%m-%d") for run in reports.runs())


# --- settings


FORM = {
    "on": "on", "at": "03:30", "zone": "Asia/Shanghai", "engine": "python", "master": "local[2]", "driver_mib": 1024,
    "memory_mib": 2048, "timeout_min": 30, "keep_days": 14, "limit_minutes": 5, "limits": "shipping = 15\na=b = 7",
}  # fmt: skip


def test_settings_are_changed_behind_a_look_at_the_difference(client_as, broker, data_dir):
    AlertChannel.objects.create(name="ops", kind="webhook", address="http://127.0.0.1:1/")
    for day in range(1, 21):
        report_days.put(data_dir, f"2026-02-{day:02d}")
    client = client_as("admin")
    form = FORM | {"digest_channels": ["ops"]}
    preview = client.post(reverse("report_settings_change"), form | {"step": "preview"})
    text = text_of(preview)
    assert "Nothing is changed yet." in text
    assert "After the next run the reports of 6 days are deleted." in text
    assert "a=b = 7, shipping = 15" in text
    assert not reports.settings().on
    client.post(reverse("report_settings_change"), form | {"step": "apply"})
    found = reports.settings()
    assert found.limits == {"shipping": 15, "a=b": 7}
    assert (found.on, found.at, found.zone, found.digest_channels) == (True, "03:30", "Asia/Shanghai", ("ops",))
    assert AuditEntry.objects.get().action == "reports.settings"
    assert "Made every night at 03:30 (Asia/Shanghai)" in shown(client, "reports")


def test_what_the_preview_shows_is_what_is_applied(client_as, broker):
    AlertChannel.objects.create(name="ops", kind="webhook", address="http://127.0.0.1:1/")
    client = client_as("admin")
    wanted = FORM | {"digest_channels": ["ops"], "step": "preview"}
    page = client.post(reverse("report_settings_change"), wanted).content.decode()
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    sent = {name: value.replace("&#x27;", "'") for name, value in hidden if name != "csrfmiddlewaretoken"}
    assert {"limits", "digest_channels", "zone", "on"} <= set(sent)
    client.post(reverse("report_settings_change"), sent)
    assert reports.settings().limits == {"shipping": 15, "a=b": 7}
    assert reports.settings().on


@pytest.mark.parametrize(
    ("field", "value"),
    [("at", "25:00"), ("zone", "Mars/Olympus"), ("limits", "no minutes"), ("keep_days", "0"), ("master", "mesos://x"),
     ("memory_mib", "512"), ("engine", "duckdb"), ("digest_channels", "nobody")],
)  # fmt: skip
def test_a_wrong_setting_is_said_at_its_field(client_as, broker, field, value):
    form = FORM | {"engine": "spark", "step": "preview"} | {field: value}
    response = client_as("admin").post(reverse("report_settings_change"), form)
    assert response.status_code == 422
    assert f'id="id_{field}_error"' in response.content.decode()


def test_who_may_read_reports_sees_how_they_are_made(client_as, broker):
    text = shown(client_as("viewer"), "report_settings")
    assert "local[2] uses two cores of this machine" in text
    assert client_as("operator").get(reverse("report_settings_change")).status_code == 403


# --- who


def test_users_kept_to_some_names_get_no_reports_and_are_told(client_as, broker, data_dir):
    report_days.put(data_dir)
    client = client_as("admin")
    User.objects.filter(username="the-admin").update(group_pattern="ship*")
    for address in ("/reports/", f"/reports/{DAY}/digest/", "/reports/settings/", "/reports/runs/"):
        response = client.get(address)
        assert response.status_code == 403
        assert "ship*" in response.content.decode()
    assert "Reports" not in text_of(client.get(reverse("groups"))).split("Consumer groups")[0]


# --- overview and needs


def test_the_overview_has_the_newest_digest(client_as, broker, data_dir):
    client = client_as("viewer")
    assert "Morning digest" not in shown(client, "overview")
    report_days.put(data_dir)
    text = shown(client, "overview")
    assert "Morning digest" in text
    assert "41 200 000" in text


def test_the_overview_has_the_digests_first_line(client_as, broker, data_dir):
    path = report_days.put(data_dir) / "digest.json"
    found = json.loads(path.read_text())
    found["notes"] = [
        {"key": "worst_dead_letters", "values": [["count", 5000], ["group", "<b>ship"]]},
        {"key": "fewer_messages", "values": [["count", 1], ["topic", "t"], ["before", 9]]},
    ]
    path.write_text(json.dumps(found))
    markup = client_as("viewer").get(reverse("overview")).content.decode()
    assert '<p class="note">5\u202f000 messages of group &lt;b&gt;ship became dead letters.</p>' in markup
    assert "the day before." not in markup, "the page of the report has the others"
    found["notes"] = [{"key": "nothing_wrong", "values": []}]
    path.write_text(json.dumps(found))
    assert "No message was deleted unread" in text_of(client_as("viewer").get(reverse("overview")))


def test_a_failed_run_and_nights_without_one_need_somebody(client_as, broker, data_dir, db):
    assert report_needs() == []
    report_days.put_runs(data_dir)
    assert "The reports of 2026-03-21 failed: The run was not done" in shown(client_as("operator"), "needs")
    shutil.rmtree(data_dir / "rocketbox/reports/runs" / FAILED_RUN)
    assert report_needs() == []
    client_as("admin").post(reverse("report_settings_change"), FORM | {"step": "apply"})
    assert "No reports were made since those of 2026-03-20" in shown(client_as("operator"), "overview")
    report_days.put_run(data_dir, report_days.record(ended_ms=now_ms() - 3_600_000))
    assert report_needs() == []


def test_the_need_is_muted_like_others(client_as, broker, data_dir):
    report_days.put_runs(data_dir)
    client = client_as("operator")
    key = "reports:reports:nightly"
    response = client.post(f"{reverse('need_mute')}?key={key}", {"hours": 4, "reason": "known"})
    assert response.status_code == 302
    assert "The reports of 2026-03-21 failed" not in shown(client, "overview")


def test_a_day_of_an_older_version_links_only_to_the_reports_that_it_has(client_as, broker, data_dir):
    laid = report_days.put(data_dir)
    for report in ("week", "sizes"):
        (laid / f"{report}.json").unlink()
    client = client_as("viewer")
    pages = [client.get(reverse("reports")), client.get(reverse("report", args=[DAY, "digest"]))]
    for page in pages:
        text = page.content.decode()
        assert reverse("report", args=[DAY, "queues"]) in text
        assert reverse("report", args=[DAY, "week"]) not in text
        assert reverse("report", args=[DAY, "sizes"]) not in text
