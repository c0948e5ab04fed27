"""A topic gets a Protobuf schema, with a real browser; its message is then readable."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from appliance.client import Client
from tests.support.golden import GOLDEN
from tests.support.server import Server

pytestmark = pytest.mark.nightly


def test_a_protobuf_body_becomes_readable(ada: Page, server: Server, tmp_path: Path) -> None:
    page = ada
    recorded = json.loads((GOLDEN / "bodies" / "protobuf.json").read_text())
    described, body = base64.b64decode(recorded["shop"]), bytes.fromhex(recorded["cases"][0]["body"])
    (tmp_path / "shop.desc").write_bytes(described)
    with Client(server.namesrv) as client:
        sent = client.producer().send("readable", body)
    page.goto("/topics/readable/")
    page.click("text=Schema")
    page.check("input[value=protobuf]")
    page.set_input_files("#id_schema", tmp_path / "shop.desc")
    page.fill("#id_message", "shop.v1.Nothing")
    page.click("text=Set the schema")
    expect(page.locator("main")).to_contain_text("name a message in it")
    page.set_input_files("#id_schema", tmp_path / "shop.desc")
    page.fill("#id_message", "shop.v1.Order")
    page.click("text=Set the schema")
    expect(page.locator("dl.facts")).to_contain_text("shop.v1.Order")
    page.goto(f"/messages/{sent.offset_id}/content/")
    expect(page.locator("pre")).to_contain_text('"state": "PAID"')
    page.click("a:text('Hex')")
    expect(page.locator("pre")).to_contain_text("00000000")
    page.goto("/topics/readable/schema/")
    page.click("text=Remove the schema")
    expect(page.locator("main")).to_contain_text("The schema of readable was removed.")
