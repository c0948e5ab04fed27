"""Fills a broker with topics, groups, clients and messages of every kind, many of them hostile or long."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lz4.frame
import zstandard

from spark_reports.reports.document import REPORTS
from tests.support import report_days
from tests.support.engine import Peer, send_fields

MARKUP = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
#: Names that only files of another program could hold.
ODD_NAMES = (MARKUP, "a/b", "..", "空格 与 \"quotes'", "{{7*7}}{% debug %}", "%2e%2e%2fetc")
LONG_TOPIC = "a-topic-whose-name-is-as-long-as-a-name-may-be-" + "x" * 80
LONG_GROUP = "a-group-whose-name-nobody-would-want-to-type-twice-" + "y" * 60
PACKED = {"zlib": 0x001, "lz4": 0x101, "zstd": 0x201, "zlib5": 0x301}
DOCUMENT = json.dumps({"order": 4711, "items": [{"sku": "a-1", "count": 2}], "note": MARKUP}, ensure_ascii=False)

SEND, OFFSET, TOPIC, HEARTBEAT = 310, 15, 17, 34


def odd_names(data_dir: Path) -> None:
    """Write tables with odd names before the first start, as some other program could have left them."""
    config = data_dir / "store" / "config"
    config.mkdir(parents=True)
    topics = {name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in ODD_NAMES}
    groups = {name: {"groupName": name, "consumeEnable": True} for name in ODD_NAMES}
    offsets = {f"orders@{name}": {"0": 1} for name in ODD_NAMES}
    for file, document in (
        ("topics.json", {"dataVersion": {"counter": 1}, "topicConfigTable": topics}),
        ("subscriptionGroup.json", {"dataVersion": {"counter": 1}, "subscriptionGroupTable": groups}),
        ("consumerOffset.json", {"offsetTable": offsets}),
    ):
        (config / file).write_text(json.dumps(document))
    report_days.put(data_dir, groups=(*ODD_NAMES, LONG_GROUP))
    report_days.put_runs(data_dir)


def packed(kind: str, body: bytes) -> bytes:
    """Return the body compressed as a client would send it."""
    match kind:
        case "lz4":
            return lz4.frame.compress(body)
        case "zstd":
            return zstandard.ZstdCompressor().compress(body)
        case _:
            return zlib.compress(body)


class Furniture:
    """Fills a broker and keeps its clients connected. ids: name of a sent message -> its offset id."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._peer = Peer(broker)
        self._clients: list[Peer] = []
        self.ids: dict[str, str] = {}
        for name, queues in (("orders", 4), ("payments", 8), ("never-used", 1), (LONG_TOPIC, 2)):
            self._topic(name, queues)
        for number in range(55):
            self._topic(f"filler-{number:02}", 1)
        self._messages()
        self._groups()

    def close(self) -> None:
        for peer in (self._peer, *self._clients):
            peer.close()

    def _topic(self, name: str, queues: int, perm: int = 6) -> None:
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert self._peer.ask(TOPIC, fields).code == 0

    def send(self, name: str, topic: str, body: bytes, queue: int = 0, flag: int = 0, **properties: str) -> None:
        text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
        fields = send_fields(topic, queue, text, f=flag, g=int(time.time() * 1000))
        answer = self._peer.ask(SEND, fields, body)
        assert answer.code == 0, answer.remark
        self.ids[name] = answer.ext_fields["msgId"]

    def _messages(self) -> None:
        for number in range(60):
            unique = f"AC11000100002A9F0000000000{number:06X}"
            own = {"KEYS": f"order-{number}", "TAGS": "created", "UNIQ_KEY": unique}
            self.send(f"order {number}", "orders", DOCUMENT.encode(), number % 4, **own)
        for kind, flag in PACKED.items():
            self.send(kind, "payments", packed(kind, DOCUMENT.encode()), 0, flag, KEYS=kind)
        self.send("gzip", "payments", gzip.compress(DOCUMENT.encode()), 1)
        self.send("broken", "payments", b"this is not lz4", 1, PACKED["lz4"])
        self.send("binary", "payments", bytes(range(256)) * 4, 2)
        self.send("text", "payments", ("A line of text, " + "订单已创建。" * 30 + MARKUP).encode(), 2)
        self.send(
            "hostile", "payments", MARKUP.encode(), 3, TAGS=MARKUP, KEYS=MARKUP.replace(" ", "_"), **{MARKUP: MARKUP}
        )
        odd = {"TAGS": MARKUP, "KEYS": MARKUP.replace(" ", "_"), "UNIQ_KEY": MARKUP}
        self.send("delayed", "payments", b"x", 3, DELAY="18", **odd)
        self.send("half", "payments", b"x", 3, 4, TRAN_MSG="true", PGROUP="tills", **odd)
        self.send("long", LONG_TOPIC, b"x" * 70_000, 0, KEYS="k" * 400, TAGS="t" * 200, UNIQ_KEY="U" * 180)
        self.send(
            "dead", "%DLQ%shipping", DOCUMENT.encode(), 0, ORIGIN_MESSAGE_ID="AC11000100002A9F", RETRY_TOPIC="orders"
        )

    def _groups(self) -> None:
        self.member("billing-1@10.0.0.5", "billing", "orders", "created")
        self.member("billing-2@10.0.0.6", "billing", "orders", "paid || sent")
        self.member("wall@10.0.0.7", "wall", "orders", "*", model="BROADCASTING")
        self.member(MARKUP, LONG_GROUP, "payments", MARKUP)
        self.member("choosy-1@10.0.0.8", "choosy", "payments", MARKUP, kind="SQL92")
        self.member(
            "choosy-2@10.0.0.9", "choosy", "orders", f"KEYS = '{MARKUP.replace(chr(39), chr(39) * 2)}'", kind="SQL92"
        )
        self.member("a-client-with-a-very-long-id-" + "z" * 180, "shipping", "payments", "*").close()
        self._clients.pop()
        for group, offset in (("billing", 3), ("shipping", 1), (LONG_GROUP, 2)):
            for queue in range(4):
                fields = {"consumerGroup": group, "topic": "orders", "queueId": queue, "commitOffset": offset}
                assert self._peer.ask(OFFSET, fields).code == 0

    def member(
        self, client: str, group: str, topic: str, expression: str, model: str = "CLUSTERING", kind: str = "TAG"
    ) -> Peer:
        peer = Peer(self._broker)
        self._clients.append(peer)
        subscription: dict[str, Any] = {
            "topic": topic, "subString": expression, "subVersion": 1, "expressionType": kind, "tagsSet": [],
            "codeSet": [], "classFilterMode": False,
        }  # fmt: skip
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model, "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        beat = {"clientID": client, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": MARKUP}]}
        assert peer.ask(HEARTBEAT, body=json.dumps(beat).encode()).code == 0
        return peer


def pages(ids: dict[str, str]) -> list[str]:
    """Return the address of every page behind the sign-in that shows something, the odd ones first."""
    message = f"/messages/{ids['hostile']}/"
    found = [
        "/", "/topics/", "/topics/?show=all&sort=-bytes", "/topics/?q=no-such", "/topics/orders/",
        "/topics/never-used/",
        f"/topics/{LONG_TOPIC}/", "/create/topic/", "/topics/orders/edit/", "/topics/orders/delete/",
        "/groups/", "/groups/?q=no-such", "/groups/billing/", "/groups/shipping/", "/groups/wall/",
        f"/groups/{LONG_GROUP}/", "/create/group/", "/groups/billing/edit/", "/groups/billing/delete/",
        "/groups/billing/?tab=clients", "/groups/billing/?tab=subscriptions", "/groups/billing/?tab=settings",
        "/groups/billing/?sort=-lag_time", "/groups/billing/?q=no-such", "/groups/billing/diagnosis/",
        "/groups/billing/reset/", "/groups/shipping/reset/?to=latest&step=preview", "/groups/billing/resets/",
        "/groups/billing/pause/", "/groups/billing/clone/", "/clients/billing-1@10.0.0.5/",
        f"/clients/{segment(MARKUP)}/", *(f"/groups/{segment(name)}/diagnosis/" for name in ODD_NAMES),
        *(f"/groups/{segment(name)}/reset/?to=earliest&step=preview&topic=orders" for name in ODD_NAMES),
        "/delayed/", "/delayed/?span=7d&show=retries", "/delayed/?q=no-such", "/delayed/act/?what=drop",
        "/transactions/", "/transactions/?show=discarded", "/transactions/?show=resolved", "/transactions/check/",
        "/system/backups/",
        "/system/definitions/", "/system/bundle/", "/system/bundle/?show=options.json",
        "/dead-letters/", "/dead-letters/?q=no-such", "/dead-letters/shipping/", "/dead-letters/shipping/replay/",
        "/dead-letters/shipping/?replayed=yes&retries=2&key=x", "/dead-letters/shipping/?retries=x",
        "/dead-letters/shipping/archive/?origin=orders", "/groups/shipping/retries/", f"/groups/{LONG_GROUP}/retries/",
        "/groups/shipping/retries/act/?what=drop",
        "/clients/", "/clients/?q=no-such", "/messages/", "/messages/?topic=payments", "/messages/?topic=never-used",
        "/search/", "/search/?q=nothing-is-called-so", "/search/?q=order-7", "/search/?q=x&topic=no-such",
        "/search/?q=" + quote(MARKUP.replace(" ", "_")), "/messages/?topic=no-such", f"/messages/?topic={LONG_TOPIC}",
        message, message + "content/", message + "raw/", f"/messages/{ids['long']}/", f"/messages/{ids['dead']}/",
        *(f"/messages/{ids[kind]}/content/" for kind in ("zlib", "gzip", "broken", "binary", "text")),
        f"/messages/{ids['zstd']}/content/?as=hex", "/messages/send/?topic=orders",
        f"/messages/send/?from={ids['hostile']}", f"/messages/send/?from={ids['binary']}", message + "run/",
        "/messages/tail/", "/messages/tail/?topic=orders", "/messages/tail/?topic=orders&expression=a+%3E", "/connect/",
        "/connect/?topic=" + quote(MARKUP),
        "/messages/?topic=orders&filter=tag+%3D+'nobody'", "/messages/?topic=orders&filter=tag+%3D",
        "/messages/export/?topic=orders", "/messages/import/?topic=orders",
        "/system/", "/system/checks/", "/system/config/", "/system/config/?q=no-such", "/system/config/change/",
        "/system/log/", "/system/log/?q=no-such", "/system/audit/", "/system/audit/?q=no-such",
        "/jobs/", "/jobs/?state=failed",
        "/reports/", *(f"/reports/{report_days.DAY}/{report}/" for report in REPORTS), "/reports/runs/",
        f"/reports/runs/{report_days.RUN}/", f"/reports/runs/{report_days.FAILED_RUN}/", "/reports/settings/",
        "/reports/settings/change/", "/reports/2026-01-01/digest/",
        "/system/users/", "/system/users/new/", "/system/users/1/", "/system/tokens/", "/system/tokens/new/",
        "/account/", "/account/second-factor/", "/account/codes/no-such/", "/system/users/1/made/no-such/",
        "/system/users/?q=no-such", "/system/wire-users/", "/confirm/", "/api/v1/docs", "/no-such-page/",
    ]  # fmt: skip
    return found + [f"/{table}/{segment(name)}/" for name in ODD_NAMES for table in ("topics", "groups")]


def by_day(addresses: list[str]) -> list[str]:
    """Return those that a commit looks at: of the odd names the one that could run as a script, and one vain search."""
    odd = [f"/{segment(name)}/" for name in ODD_NAMES if name != MARKUP]
    in_vain = [one for one in addresses if one.endswith("?q=no-such")][1:]
    return [one for one in addresses if one not in in_vain and not any(name in one for name in odd)]


def segment(name: str) -> str:
    """Return a name as it stands in an address."""
    return quote("~5" if name == ".." else name.replace("~", "~0").replace("/", "~1"), safe="")
