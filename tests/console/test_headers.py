"""Headers that every answer carries, and contents that no page holds."""

import hashlib
import json
import re
import subprocess
import sys

import pytest
from django.conf import settings
from django.urls import reverse

from appliance.console.serving import static_files

STATIC = settings.STATIC_DIR


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/login/", "/static/console.css", "/absent"])
def test_every_answer_carries_the_security_headers(client, engine, db, path):
    headers = client.get(path).headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["X-Request-Id"]


@pytest.mark.parametrize("path", ["/", "/account/", "/system/users/", "/system/users/new/", "/login/", "/absent"])
def test_no_page_holds_what_the_policy_forbids(client_as, engine, path):
    page = client_as("admin").get(path, follow=True).content.decode()
    for forbidden in ("<style", " style=", "javascript:", "hx-on"):
        assert forbidden not in page
    assert not re.search(r"""(?:=|url\()["']?(?:https?:)?//""", page), "it loads from, or leads to, another server"
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert not re.search(r"\son[a-z]+=", page)


def test_the_stylesheet_is_kept_for_ever_under_the_address_of_its_content(client):
    address = static_files.address("console.css")
    response = client.get(address)
    assert response.headers["Content-Type"] == "text/css; charset=utf-8"
    assert "immutable" in response.headers["Cache-Control"]
    bare = client.get(reverse("static_file", args=["console.css"]))
    assert bare.headers["Cache-Control"] == "no-cache"
    again = client.get(bare.request["PATH_INFO"], headers={"if-none-match": bare.headers["ETag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("name", ["../settings.py", "..%2Fsettings.py", "/etc/passwd", "vendor", "vendor/htmx/"])
def test_only_listed_files_are_served(client, name):
    assert client.get(f"/static/{name}").status_code == 404


def test_the_vendored_files_are_those_of_the_lock():
    lock = json.loads((STATIC / "vendor" / "vendor.lock").read_text())
    locked = {name: digest for package in lock["packages"] for name, digest in package["files"].items()}
    found = {
        path.relative_to(STATIC / "vendor").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (STATIC / "vendor").rglob("*")
        if path.is_file() and path.name != "vendor.lock"
    }
    assert found == locked
    for package in lock["packages"]:
        assert package["licence"]
        assert any(name.endswith("LICENSE.txt") for name in package["files"])


def test_stylesheets_load_nothing_from_elsewhere():
    for path in STATIC.rglob("*.css"):
        assert not re.search(r"@import|url\((?!['\"]?data:)", path.read_text())


@pytest.mark.parametrize(("public_url", "secure", "cookie_path"), [
    ("https://mq.example.org/box", True, "/box/"), ("http://mq.example.org", False, "/"), (None, False, "/"),
])  # fmt: skip
def test_cookies_are_bound_to_the_address_people_type(tmp_path, public_url, secure, cookie_path):
    """Settings are read once a process, so in one of its own."""
    program = (
        "import sys, pathlib; from appliance import runtime; url = sys.argv[2] or None;"
        "runtime.set_place(runtime.Place(pathlib.Path(sys.argv[1]), public_url=url));"
        "from appliance import settings as s; names = ('SESSION', 'CSRF', 'LANGUAGE');"
        "print([s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, {getattr(s, n + '_COOKIE_PATH') for n in names},"
        "s.SESSION_COOKIE_HTTPONLY and s.CSRF_COOKIE_HTTPONLY and s.LANGUAGE_COOKIE_HTTPONLY])"
    )
    (tmp_path / "rocketbox").mkdir()
    said = subprocess.check_output([sys.executable, "-c", program, tmp_path, public_url or ""], text=True)
    assert said.strip() == str([secure, secure, {cookie_path}, True])
