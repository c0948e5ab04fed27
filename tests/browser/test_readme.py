"""The way of a new user through the README: from a fresh copy of the project to a message in the browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import first_run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Time after which the journey counts as hung; it takes some 30 s.
LIMIT_S = 600.0


def commands() -> list[str]:
    """Return the texts of the README's fenced blocks without a language, in their order."""
    return re.findall(r"^```\n(.*?)\n```$", README, re.DOTALL | re.MULTILINE)


def test_the_first_screen_is_one_command_one_link_one_picture() -> None:
    first = README[: README.index("| name server |")]
    assert commands()[0] == "script/server"
    assert re.findall(r"https?://\S+/", first) == ["http://127.0.0.1:8080/setup/kJ3v…/"]
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", first)
    assert (ROOT / picture).stat().st_size > 10_000
    assert len(first.splitlines()) <= 32
    for other in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README):
        assert (ROOT / other).is_file()


@pytest.mark.nightly
def test_a_new_user_sees_their_message(browser: Browser, tmp_path: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("maven is not installed; script/test installs it")
    copy = tmp_path / "rocketbox"
    names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, text=True)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    start, send = commands()[0], next(one for one in commands() if one.startswith("mvn"))
    # The README's own commands, but with free ports, as its section "Options" describes.
    ports = "--broker-port 0 --namesrv-port 0 --http-port 0 --ready-file ready.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETBOX_", "ADMIN_"))}
    begin = time.monotonic()
    with open(tmp_path / "said", "wb") as said:
        server = subprocess.Popen(
            f"exec {start} {ports}", shell=True, cwd=copy, env=environment, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        while not (found := re.search(r"Set up RocketBox here.*\n\s*(http\S+)", (tmp_path / "said").read_text())):
            assert server.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < begin + LIMIT_S, (tmp_path / "said").read_text()
            time.sleep(0.1)
        started = time.monotonic() - begin
        context = browser.new_context(locale="en-GB")
        page = context.new_page()
        first_run(page, found[1])
        expect(page.locator("#count")).to_contain_text("waiting for the first")
        ready = json.loads((copy / "ready.json").read_text())
        sent = subprocess.run(
            f"exec {send} -Dexec.args={ready['namesrv']}",  # so that a time-out ends more than the shell
            shell=True,
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert sent.returncode == 0, sent.stdout + sent.stderr
        expect(page.locator("#count.good")).to_contain_text("It works", timeout=90_000)
        page.click("text=Open the console")
        printed = re.search(r"^sent\s+(\w+)", sent.stdout, re.MULTILINE)
        assert printed is not None
        page.fill("#search", printed[1])
        page.press("#search", "Enter")
        expect(page.locator("h1")).to_have_text(printed[1])
        page.click(".tabs >> text=Content")
        expect(page.locator("pre")).to_have_text("Hello from Java")
        took = time.monotonic() - begin
        print(f"serving after {started:.0f} s, the message seen after {took:.0f} s")
        context.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
    assert server.returncode == 0, (tmp_path / "said").read_text()
    assert (copy / "data" / "store" / "commitlog").is_dir(), "everything it keeps"
