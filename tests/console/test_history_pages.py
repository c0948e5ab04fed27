"""The pages of what was measured: over any span, without a script, with values on hover and as a table."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from appliance.console.history import charts, series
from appliance.console.models import now_ms

pytestmark = pytest.mark.django_db


def test_a_topics_history_is_drawn_with_its_values_and_the_same_as_a_table_and_as_csv(
    client_as, broker, topic, recorded
):
    broker.sender.send(topic, b"one")
    broker.sender.send(topic, b"two")
    for _ in range(2):
        broker._parts.sampler.sample()
    while broker.look_ahead.step():  # sizes of queues
        pass
    recorded()
    viewer = client_as("viewer")
    for span in charts.SPANS:
        page = viewer.get(f"/topics/{topic}/history/?span={span}")
        assert page.status_code == 200
        plots = re.findall(r'<svg class="plot" viewBox.*?</svg>', page.content.decode(), re.S)
        assert len(plots) == 3
        drawn = [ElementTree.fromstring(plot) for plot in plots]
        assert [len(plot.findall("polyline")) for plot in drawn] == [2, 1, 1]
        said = [title.text or "" for title in drawn[1].iter("title")]
        assert len(said) <= charts.POINTS + 1
        assert any(one.endswith(" · kept 2") for one in said[-2:]), said[-2:]  # the next step may have begun
        assert said[0].endswith(" · kept not measured")
    rows = list(csv.reader(io.StringIO(viewer.get(f"/topics/{topic}/history/?span=1h&format=csv").content.decode())))
    assert rows[0] == ["from_ms", "topic_in_rate", "topic_out_rate", "topic_messages", "topic_bytes"]
    assert "2" in {row[3].removesuffix(".0") for row in rows[-2:]}, rows[-2:]  # as above
    assert rows[1][3] == ""


def test_a_span_by_hand_and_what_is_no_span(client_as, broker, topic):
    viewer = client_as("viewer")
    assert (
        "Nothing was measured in this time." in viewer.get("/history/?from=2020-01-01&to=2020-01-02").content.decode()
    )
    assert viewer.get("/history/?from=2020-01-02&to=2020-01-01").status_code == 400
    assert viewer.get("/history/?span=love").status_code == 400
    assert viewer.get("/topics/no-such/history/").status_code == 404
    assert viewer.get("/groups/no-such/history/").status_code == 404
    assert client_as("").get("/history/").status_code == 302


@pytest.mark.parametrize(("age_min", "span"), [(None, "1h"), (20, "1h"), (61, "6h"), (1441, "24h"), (90_000, "24h")])
def test_the_usual_span_is_as_long_as_there_are_figures(client_as, broker, monkeypatch, age_min, span):
    begin = None if age_min is None else now_ms() - age_min * 60_000
    monkeypatch.setattr(series, "begin_ms", lambda: begin)
    page = client_as("viewer").get("/history/").content.decode()
    assert re.findall(r'href="\?span=(\w+)" aria-current="true"', page) == [span]


@pytest.mark.parametrize(
    ("most", "unit", "ticks"),
    [
        (0, "messages", [0, 1]),
        (3, "messages", [0, 1, 2, 3]),
        (9.6, "messages/s", [0, 2.5, 5, 7.5, 10]),
        (1 << 20, "bytes", [0, 262_144, 524_288, 786_432, 1_048_576]),
        (240_000, "ms", [0, 60_000, 120_000, 180_000, 240_000]),
    ],
)
def test_the_marks_of_an_axis_are_easy_to_read(most, unit, ticks):
    assert charts.nice_ticks(most, unit) == pytest.approx(ticks)
