"""An import says what its accounts' clients, seen in report mode, would be refused."""

from __future__ import annotations

import json

from tests.engine.access.test_enforced import BOB, CODE, pull, send, start

__all__ = ["start"]

SHOP = ("shop", "the shop's own secret")
CONTENT = {"accounts": [
    {"accessKey": SHOP[0], "secretKey": SHOP[1],
     "topicPerms": ["orders=PUB|SUB", "odd=PUBLISH"], "groupPerms": ["g=SUB"]},
    {"accessKey": "quiet", "secretKey": "a quiet one's secret"},
    {"accessKey": "chief", "secretKey": "the chief's own secret", "admin": True},
]}  # fmt: skip
REFUSED = "Its clients have asked in the last day for what the entries do not allow"


def notes_of(site, name: str) -> list[str]:
    report = site.running.window.users.import_accounts(CONTENT, dry_run=True)
    return [str(note) for user in report.users if user.name == name for note in user.notes]


def test_what_clients_asked_before_their_account_was_imported_is_compared(start):
    site = start(access_control="report")
    shop, chief = site.peer(SHOP), site.peer(("chief", "the chief's own secret"))
    assert send(shop, "orders").code == 0
    assert pull(shop, "g", "orders").code == 0
    assert "The entries allow all that its clients have asked for in the last day." in notes_of(site, "shop")
    assert [send(shop, topic).code for topic in ("invoices", "odd", "odd")] == [0, 0, 0]
    assert chief.ask(CODE.GET_BROKER_CONFIG).code == 0
    told = notes_of(site, "shop")
    assert f"{REFUSED} (SEND_MESSAGE_V2 Topic:invoices, SEND_MESSAGE_V2 Topic:odd)." in told
    assert "RocketMQ 5.3.3 would decide this otherwise by the same account (SEND_MESSAGE_V2 Topic:odd)." in told
    assert "as far as this broker has seen" in notes_of(site, "quiet")[-1]
    assert notes_of(site, "chief") == ["The entries allow all that its clients have asked for in the last day."]
    # A day later it is forgotten.
    access = site.running.engine._access
    assert access is not None
    wall_ms = access.gate._clock.wall_ms
    access.gate._clock.wall_ms = lambda: wall_ms() + 86_400_001  # type: ignore[method-assign]
    try:
        assert access.gate.claims() == []
    finally:
        access.gate._clock.wall_ms = wall_ms  # type: ignore[method-assign]


def test_what_strangers_name_is_bounded_and_is_not_kept_where_it_is_refused(start):
    site = start(access_control="report")
    gate = site.running.engine._access.gate
    topics = [{"topic": f"t{number}", "subString": "*"} for number in range(90)]
    beat = json.dumps(
        {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": topics}]}
    ).encode()
    site.peer(("\n" + "x" * 500, "a stranger's secret")).ask(CODE.HEART_BEAT, {}, beat)
    site.peer(BOB).ask(CODE.HEART_BEAT, {}, b"{")
    rows = gate.claims()
    assert len(rows) == 20
    assert {len(row.user) <= 70 and "\n" not in row.user for row in rows} == {True}
    site.running.window.option_commands.change({"accessControl": "enforce"})
    assert send(site.peer(BOB), "orders").code == 16
    assert {row.user for row in gate.claims()} == {rows[0].user}
