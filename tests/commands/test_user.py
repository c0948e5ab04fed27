"""`rocketbox user reset-password`, as a process on a data directory whose server runs."""

import http.client
import os
import sqlite3
import subprocess
import sys
from urllib.parse import urlencode

import pytest

from tests.support.server import ROOT, Server


def rocketbox(*arguments: str, given: str = "") -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    return subprocess.run(
        [sys.executable, "-m", "appliance.main", *arguments],
        cwd=ROOT, env=environment, input=given, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def sign_in(address: str, username: str, password: str) -> tuple[int, str]:
    """Fetch the form and send it as a browser does; return status and Location."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/login/")
    response = connection.getresponse()
    page = response.read().decode()
    cookie = response.getheader("Set-Cookie").split(";")[0]
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    body = urlencode({"username": username, "password": password, "csrfmiddlewaretoken": token})
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login/", body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.getheader("Location") or ""


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("ADMIN_USER", "root")
    monkeypatch.setenv("ADMIN_PASSWORD", "the first password")
    with Server(tmp_path / "data", "--http-port", "0", roles="broker,namesrv,console") as running:
        yield running


def test_the_environment_makes_an_administrator_and_a_reset_replaces_the_password(server):
    assert server.ready["setup_url"] is None
    assert sign_in(server.ready["http"], "root", "the first password") == (302, "/")
    done = rocketbox("user", "reset-password", "ROOT", "--data-dir", str(server.data_dir))
    assert done.returncode == 0, done.stderr
    password = done.stdout.strip().rpartition(" ")[2]
    assert sign_in(server.ready["http"], "root", "the first password")[0] == 422
    assert sign_in(server.ready["http"], "root", password)[0] == 302
    given = rocketbox(
        "user", "reset-password", "root", "--password-stdin", "--data-dir", str(server.data_dir), given="from a pipe\n"
    )
    assert given.returncode == 0, given.stderr
    assert sign_in(server.ready["http"], "root", "from a pipe") == (302, "/")
    unknown = rocketbox("user", "reset-password", "eve", "--data-dir", str(server.data_dir))
    assert (unknown.returncode, unknown.stderr) == (2, "rocketbox: There is no user 'eve'; the users are: root.\n")


def test_a_reset_ends_the_tokens_and_names_them(server):
    database = sqlite3.connect(server.data_dir / "rocketbox/console.sqlite3")
    with database:
        database.execute(
            "INSERT INTO console_apitoken (role, may_read_bodies, may_export, name, prefix, digest, topic_pattern, "
            "group_pattern, created_at_ms, owner_id) "
            "SELECT 'admin', 0, 0, 'ci', 'rbx_', 'x', '*', '*', 1, id FROM console_user"
        )
    done = rocketbox("user", "reset-password", "root", "--data-dir", str(server.data_dir))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["Revoked API tokens: ci"]
    (ended,) = database.execute("SELECT revoked_at_ms FROM console_apitoken").fetchone()
    assert ended
    noted = database.execute("SELECT action, target, actor_kind FROM console_auditentry ORDER BY id").fetchall()
    assert noted[-2:] == [
        ("user.reset_password", "root", "command line"), ("token.revoke", "root/ci", "command line"),
    ]  # fmt: skip
    database.close()


def test_a_wrong_directory_is_refused(tmp_path):
    refused = rocketbox("user", "reset-password", "root", "--data-dir", str(tmp_path))
    assert refused.returncode == 2
    assert refused.stderr.startswith("rocketbox: There is no console database in ")
    assert not (tmp_path / "rocketbox").exists()
