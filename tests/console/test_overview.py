"""The overview, and what every page has in common."""

import pytest

from appliance import runtime
from appliance.console.template_tags import as_duration


def test_the_page_tells_addresses_version_and_uptime(client_as, serve):
    serve(up_s=3 * 3600 + 125)
    page = client_as("viewer").get("/").content.decode()
    for part in ("10.0.0.5:10911", "10.0.0.5:9876", "v0.1.0"):
        assert part in page


def test_without_an_engine_the_page_says_so(client_as):
    response = client_as("viewer").get("/")
    assert response.status_code == 503
    assert "No engine runs in this process" in response.content.decode()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (250, "4 min 10 s"),
        (7260, "2 h 1 min"),
        (86_400, "1 day 0 h"),
        (200_000, "2 days 7 h"),
        (None, "not known"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds, words):
    assert as_duration(seconds) == words


def test_another_sites_name_is_refused_on_a_loopback_address(tmp_path):
    assert "*" not in runtime.Place(tmp_path, "127.0.0.1").allowed_hosts()
    assert runtime.Place(tmp_path, "0.0.0.0").allowed_hosts() == ["*"]
    behind_a_proxy = runtime.Place(tmp_path, "127.0.0.1", "https://mq.example.org/rocketbox")
    assert "mq.example.org" in behind_a_proxy.allowed_hosts()
    assert "*" not in behind_a_proxy.allowed_hosts()
