"""/metrics: Prometheus text."""

import pytest

from appliance.console.views.metrics import prometheus_text


def test_every_number_of_the_engine_is_a_sample(client, serve):
    serve(up_s=100)
    response = client.get("/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.content.decode().splitlines()
    assert "rocketbox_messages_in_total 12" in lines
    assert "rocketbox_disk_used_ratio 0.25" in lines
    assert 'rocketbox_build_info{version="0.1.0"} 1' in lines
    uptime = next(float(line.split()[1]) for line in lines if line.startswith("rocketbox_uptime_seconds "))
    assert 100 <= uptime < 110


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"a_total": 1}, "# TYPE rocketbox_a_total counter\nrocketbox_a_total 1\n"),
        ({"a": 1.5}, "# TYPE rocketbox_a gauge\nrocketbox_a 1.5\n"),
        ({"a.b-c": True}, "# TYPE rocketbox_a_b_c gauge\nrocketbox_a_b_c 1\n"),
        ({"big": 2**60}, f"# TYPE rocketbox_big gauge\nrocketbox_big {2**60}\n"),
        (
            {'d{k="x"}': 1, "e": 2, 'd{k="y"}': 3},
            '# TYPE rocketbox_d gauge\nrocketbox_d{k="x"} 1\nrocketbox_d{k="y"} 3\n'
            "# TYPE rocketbox_e gauge\nrocketbox_e 2\n",
        ),
    ],
)
def test_text_follows_the_exposition_format(numbers, text):
    assert prometheus_text(numbers) == text


def test_without_an_engine_there_are_no_numbers(client):
    response = client.get("/metrics")
    assert response.status_code == 503
    assert b"rocketbox_" not in response.content
