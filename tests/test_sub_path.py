"""The console below a path of a reverse proxy, which may remove that path or pass it on."""

import http.client
import re
from urllib.parse import urlencode

import pytest

from tests.support.directories import shared_directory
from tests.support.server import Server

PUBLIC = "https://mq.example.org"
BASE = "/rocketbox"


@pytest.fixture(scope="module")
def server(request):
    directory = shared_directory(request, "server")
    options = ("--http-port", "0", "--public-url", PUBLIC + BASE)
    with Server(directory / "data", *options, roles="broker,namesrv,console") as running:
        yield running


@pytest.fixture(params=["cut off", "handed on"])
def ask(request, server):
    """`ask(method, path below the base)`: send the request as the proxy would; return status, headers and body."""
    prefix = "" if request.param == "cut off" else BASE

    def send(method: str, path: str, body: str | None = None, **headers: str):
        connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
        sent = {"Host": "mq.example.org", "X-Forwarded-For": "192.0.2.9"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, prefix + path, body, sent)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, response.headers, text

    return send


def test_the_set_up_link_is_the_public_one(server):
    assert server.ready["setup_url"].startswith(f"{PUBLIC}{BASE}/setup/")


def test_every_address_of_a_page_begins_with_the_base(ask, server):
    path = server.ready["setup_url"].removeprefix(PUBLIC + BASE)
    status, _, page = ask("GET", path)
    assert status == 200
    addresses = re.findall(r'(?:href|src|action|hx-get)="([^"#]*)"', page)
    assert addresses
    assert all(address.startswith(f"{BASE}/") for address in addresses), addresses
    style = next(address for address in addresses if "console.css" in address)
    assert ask("GET", style.removeprefix(BASE))[0] == 200


def test_redirects_and_cookies_stay_below_the_base(ask):
    status, headers, _ = ask("GET", "/account/")
    assert (status, headers["Location"]) == (302, f"{BASE}/login/?next=%2Frocketbox%2Faccount%2F")
    _, headers, page = ask("GET", "/login/")
    cookie = headers["Set-Cookie"]
    assert f"Path={BASE}/" in cookie
    assert "Secure" in cookie
    assert f'name="next" value="{BASE}/login/"' in page


def test_a_form_of_ours_is_taken_and_one_from_elsewhere_is_not(ask):
    _, headers, page = ask("GET", "/login/")
    cookie = headers["Set-Cookie"].split(";")[0]
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    form = urlencode({"csrfmiddlewaretoken": token, "language": "zh-hans", "next": f"{BASE}/login/"})
    kind = {"Cookie": cookie, "Content_Type": "application/x-www-form-urlencoded"}
    status, headers, _ = ask("POST", "/language/", form, Origin=PUBLIC, **kind)
    assert (status, headers["Location"]) == (302, f"{BASE}/login/")
    assert ask("POST", "/language/", form, Origin="https://evil.example", **kind)[0] == 403


def test_another_host_name_is_refused_on_loopback_and_a_proxied_stranger_gets_no_figures(ask):
    assert ask("GET", "/login/", Host="evil.example")[0] == 400
    assert ask("GET", "/metrics")[0] == 401
