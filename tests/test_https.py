"""The console by HTTPS: what browsers, commands on this machine and hostile peers get."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from appliance.command_line import load
from appliance.engine.errors import StartError
from tests.support.directories import shared_directory
from tests.support.server import ROOT, Server
from tests.support.tls import Authority, client_context, is_closed, make_pair, raw
from tests.support.waiting import wait_for

PASSWORD = "correct horse battery"
PUBLIC = "mq.example.org"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the limits of `serve_impatient`, whose public address is its own."""
    directory = shared_directory(request, "https")
    certificate, key = make_pair(directory)
    environment = {"ADMIN_USER": "root", "ADMIN_PASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}
    prefix = (sys.executable, str(ROOT / "tests/support/serve_impatient.py"))
    options = ["--https-cert", str(certificate), "--https-key", str(key), "--public-url", f"https://{PUBLIC}"]
    with Server(
        directory / "data",
        *("--https-port", "0", *options),
        roles="broker,namesrv,console",
        environment=environment,
        prefix=prefix,
    ) as one:
        yield one


def asked(server: Server, method: str, path: str, headers: dict[str, str], body: str | None = None):
    connection = http.client.HTTPSConnection(server.ready["http"], timeout=60, context=client_context())
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def served(server: Server) -> bytes:
    with client_context().wrap_socket(raw(server.ready["http"])) as peer:
        return peer.getpeercert(binary_form=True)


def command(server: Server, *words: str, certificate: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with the server's own settings. certificate: another file in place of the one it serves."""
    port = server.ready["http"].rpartition(":")[2]
    directory = server.data_dir.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")} | {
        "ROCKETBOX_DATA_DIR": str(server.data_dir),
        "ROCKETBOX_HTTPS_PORT": port,
        "ROCKETBOX_HTTPS_CERT": certificate or str(directory / "server.pem"),
        "ROCKETBOX_HTTPS_KEY": str(directory / "server.key"),
    }
    line = [sys.executable, "-m", "appliance.main", *words]
    return subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_cookies_are_secure_and_the_public_address_is_https_for_a_year(server: Server):
    response, page = asked(server, "GET", "/login/", {"Host": PUBLIC})
    assert response.status == 200
    cookies = response.headers.get_all("Set-Cookie")
    assert cookies
    assert all("; Secure" in cookie for cookie in cookies)
    assert response.headers["Strict-Transport-Security"] == "max-age=31536000"
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    form = urlencode({"username": "root", "password": PASSWORD, "csrfmiddlewaretoken": token})
    headers = {
        "Host": PUBLIC,
        "Referer": f"https://{PUBLIC}/login/",
        "Cookie": "; ".join(cookie.partition(";")[0] for cookie in cookies),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    response, _ = asked(server, "POST", "/login/", headers, form)
    assert response.status == 302
    [session] = [one for one in response.headers.get_all("Set-Cookie") if one.startswith("rocketbox_session")]
    assert "; Secure" in session
    # Other servers on this machine may speak HTTP.
    response, _ = asked(server, "GET", "/login/", {})
    assert "Strict-Transport-Security" not in response.headers


def test_without_the_address_of_a_proxy_no_header_tells_whose_request_it_is(server: Server):
    headers = {"Host": PUBLIC, "X-Forwarded-For": "9.9.9.9", "Content-Type": "application/x-www-form-urlencoded"}
    _, page = asked(server, "GET", "/login/", headers)
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    response, _ = asked(server, "GET", "/login/", headers)
    cookies = "; ".join(cookie.partition(";")[0] for cookie in response.headers.get_all("Set-Cookie"))
    form = urlencode({"username": "root", "password": "wrong", "csrfmiddlewaretoken": token})
    more = {"Cookie": cookies, "Referer": f"https://{PUBLIC}/login/"}
    asked(server, "POST", "/login/", headers | more, form)
    entries = command(server, "audit", "list", "--json").stdout
    assert "127.0.0.1" in entries
    assert "9.9.9.9" not in entries


def test_commands_on_this_machine_trust_the_file_that_is_served_and_no_other(server: Server, tmp_path):
    told = command(server, "topic", "list", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)
    assert command(server, "health").stdout == "ready\n"
    other, _ = make_pair(tmp_path, "other")
    refused = command(server, "topic", "list", certificate=str(other))
    assert refused.returncode != 0
    assert "certificate verify failed" in refused.stderr
    gone = command(server, "topic", "list", certificate=str(tmp_path / "gone.pem"))
    assert "gone.pem cannot be used: No such file" in gone.stderr


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(server: Server):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing)
    with raw(server.ready["http"]) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        tls.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        sock.sendall(outgoing.read())  # the last words of the handshake, and the request
        received = b""
        while b"\r\n\r\n" not in received:
            try:
                received += tls.read(65536)
            except ssl.SSLWantReadError:
                data = sock.recv(65536)
                assert data, received
                incoming.write(data)
    assert received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16" + bytes(300), b"", b"\x16\x03\x01\x02\x00\x01"],
    ids=["http", "garbage", "nothing", "half"],
)
def test_a_peer_that_does_not_shake_hands_is_closed_and_gets_nothing(server: Server, data: bytes):
    with raw(server.ready["http"]) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
        assert is_closed(sock)
    response, _ = asked(server, "GET", "/healthz", {})
    assert response.status == 200


def test_handshakes_that_do_not_go_on_make_room_for_others(server: Server):
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(raw(server.ready["http"])) for _ in range(30)]
        for sock in crowd:
            with contextlib.suppress(OSError):  # it has made room already
                sock.sendall(b"\x16\x03\x01")
        response, _ = asked(server, "GET", "/healthz", {})
        assert response.status == 200
        assert all(is_closed(sock) for sock in crowd)


def test_a_new_pair_is_served_without_a_restart_and_a_bad_one_is_a_need(server: Server, tmp_path):
    directory = server.data_dir.parent
    before = served(server)
    with client_context().wrap_socket(raw(server.ready["http"])) as old:
        make_pair(directory)
        wait_for(lambda: served(server) != before, "the new pair")
        now = served(server)
        old.close()
    key = directory / "server.key"
    shutil.copy(key, tmp_path / "kept")
    key.write_text("x")
    need = "The changed TLS certificate"
    wait_for(lambda: need in command(server, "need", "list", "--json").stdout, "the need", every=0.5)
    assert served(server) == now
    shutil.copy(directory / "server.pem", tmp_path / "kept.pem")
    make_pair(tmp_path, "other")
    shutil.copy(tmp_path / "other.pem", directory / "server.pem")
    # A restart would not succeed now.
    assert command(server, "health").stdout == "ready\n"
    shutil.copy(tmp_path / "kept.pem", directory / "server.pem")
    shutil.copy(tmp_path / "kept", key)
    wait_for(lambda: need not in command(server, "need", "list", "--json").stdout, "its end", every=0.5)


def _loaded(*options: str):
    return load(["--https-port", "0", *options], {})


def test_the_console_has_the_certificate_of_the_broker_unless_it_has_its_own():
    environment = {"ROCKETBOX_BROKER_TLS_CERT_FILE": "/a.pem", "ROCKETBOX_BROKER_TLS_KEY_FILE": "/a.key"}
    assert load(["--https-port", "8443"], environment)[1].https == ("/a.pem", "/a.key")
    _, options = _loaded("--https-cert", "/b.pem", "--https-key", "/b.key")
    assert options.https == ("/b.pem", "/b.key")
    assert load([], environment)[1].https is None


def test_browsers_need_no_certificate_where_the_broker_s_clients_do(tmp_path):
    certificate, key = make_pair(tmp_path)
    environment = {
        "ROCKETBOX_BROKER_TLS_MODE": "permissive",
        "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
        "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        "ROCKETBOX_BROKER_TLS_CLIENT_AUTH": "required",
        "ROCKETBOX_BROKER_TLS_CLIENT_CA_FILE": str(Authority(tmp_path).path),
    }
    with Server(
        tmp_path / "data", "--https-port", "0", roles="broker,namesrv,console", environment=environment
    ) as server:
        response, _ = asked(server, "GET", "/healthz", {})
        assert response.status == 200


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "needs a certificate"),
        (["--http-port", "80"], "do not go together"),
        (["--https-cert", "/b.pem"], "given alone"),
    ],
)
def test_settings_that_do_not_fit_are_a_sentence(options: list[str], reason: str):
    with pytest.raises(StartError, match=reason):
        _loaded(*options)
    with pytest.raises(StartError, match="needs httpsPort"):
        load(["--https-cert", "/b.pem"], {})


def test_a_pair_that_does_not_load_refuses_the_start(tmp_path):
    (tmp_path / "server.pem").write_text("x")
    (tmp_path / "server.key").write_text("x")
    line = [sys.executable, "-m", "appliance.main", "serve", "--data-dir", str(tmp_path / "data"), "--https-port", "0"]
    line += ["--broker-port", "0", "--namesrv-port", "0"]
    line += ["--https-cert", str(tmp_path / "server.pem"), "--https-key", str(tmp_path / "server.key")]
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert "TLS cannot be served" in ended.stderr
