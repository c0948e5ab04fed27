"""The start page and the headers of every page."""

import pytest
from django.urls import reverse

from appliance import runtime
from appliance.console.views.start import in_words


def test_the_page_tells_addresses_version_and_uptime(client, serve):
    serve(up_s=3 * 3600 + 125)
    page = client.get("/").content.decode()
    for part in ("10.0.0.5:10911", "10.0.0.5:9876", "10.0.0.5:8080", "version 0.1.0", "up 3 h 2 min", "healthy"):
        assert part in page
    assert "needs attention" not in page


def test_a_role_that_does_not_run_is_said_so(client, engine):
    engine.namesrv_address = None
    page = client.get("/").content.decode()
    assert page.count("does not run here") == 1


def test_a_failing_check_is_shown_with_what_was_seen(client, engine):
    engine.checks["store"] = {"ok": False, "detail": "write failed: <no space>"}
    page = client.get("/").content.decode()
    assert "needs attention" in page
    assert "write failed: &lt;no space&gt;" in page


def test_on_an_open_address_the_page_warns_and_keeps_details_to_itself(client, serve):
    serve(bind="0.0.0.0")
    page = client.get("/").content.decode()
    assert "there is no access control yet" in page
    assert "/var/lib" not in page


def test_without_an_engine_the_page_says_so(client):
    response = client.get("/")
    assert response.status_code == 503
    assert "No engine runs in this process" in response.content.decode()


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/static/console.css", "/absent"])
def test_every_answer_carries_the_security_headers(client, engine, path):
    headers = client.get(path).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


def test_the_page_holds_nothing_that_the_policy_forbids(client, engine):
    page = client.get("/").content.decode()
    for forbidden in ("<script", "<style", " style=", "onclick", "javascript:", "http://", "https://"):
        assert forbidden not in page


def test_the_stylesheet_is_sent_once(client):
    response = client.get(reverse("console_css"))
    assert response.headers["Content-Type"] == "text/css; charset=utf-8"
    again = client.get(reverse("console_css"), headers={"if-none-match": response.headers["ETag"]})
    assert again.status_code == 304


def test_another_sites_name_is_refused_on_a_loopback_address(serve):
    serve(bind="127.0.0.1")
    assert "*" not in runtime.allowed_hosts()
    serve(bind="0.0.0.0")
    assert runtime.allowed_hosts() == ["*"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (250, "4 min 10 s"),
        (7260, "2 h 1 min"),
        (86_400, "1 day 0 h"),
        (200_000, "2 days 7 h"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds, words):
    assert in_words(seconds) == words
