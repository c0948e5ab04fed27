"""Every served code, asked by every kind of user, in both encodings: who is refused, beside a text that people have
read, tests/golden/wire-access.txt.

A line has a port, a code, and each action that is enough by itself when it is allowed on everything; "nobody signs"
means that no signature is needed, "any user" that no action is, "-" that no single action is enough. Each request is
made twice: the compiled twin has learned from the first one.
"""

from __future__ import annotations

import socket
from difflib import unified_diff
from pathlib import Path

import pytest

from appliance.engine.protocol.command import RemotingCommand
from tests.engine.access.test_enforced import CODE, FIRST, ROOT, Site, send
from tests.engine.test_junk_names import BROKER, NAMESRV, T, encoded
from tests.support.engine import Peer, RunningEngine

GOLDEN = Path(__file__).parents[2] / "golden" / "wire-access.txt"
ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
USER, ACL = {"username": "eve"}, {"subject": "User:eve"}
ACCOUNT = {"username": "eve", "password": "eve's own secret", "userType": "Normal"}
ENTRIES = {"policies": [{"entries": [{"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow"}]}]}
#: The same as `BROKER`, of the codes that are there only with access control.
OURS = {
    3001: (USER, ACCOUNT), 3002: (USER, ACCOUNT), 3003: (USER, None), 3004: (USER, None), 3005: ({}, None),
    3006: (ACL, ENTRIES), 3007: (ACL, ENTRIES), 3008: (ACL, None), 3009: (ACL, None), 3010: ({}, None),
}  # fmt: skip
NAMES = {code: name for name, code in vars(CODE).items() if isinstance(code, int)}


@pytest.fixture
def site(tmp_path):
    # No unsigned routes, and no brokers without a signature but those of 127.0.0.1, where the engine itself is.
    options = {"access_control": "enforce", "init_authentication_user": FIRST}
    options |= {"namesrv_anonymous_routes": False, "namesrv_broker_addresses": ""}
    site = Site(RunningEngine(tmp_path / "data", broker=options))
    yield site
    site.stop()


def from_elsewhere(peer: Peer, address: str) -> Peer:
    """Have a peer come from another address of this machine."""
    host, _, port = address.rpartition(":")
    peer.sock.close()
    peer.sock = socket.create_connection((host, int(port)), timeout=60, source_address=("127.0.0.2", 0))
    return peer


def test_who_may_ask_for_what(site):
    root = site.root
    for name in ("nil", *(action.lower() for action in ACTIONS)):
        site.make((name, f"the secret of {name}"), *([f"* {name.capitalize()}"] if name != "nil" else []))
    half = send(root, T, i="PGROUP\x01PG\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01K1\x02", f=4)
    place = int(send(root, T).ext_fields["msgId"][-16:], 16)
    ends = {"tranStateTableOffset": half.ext_fields["queueOffset"], "msgId": "K1", "producerGroup": "PG"}
    ends |= {"commitLogOffset": str(int(half.ext_fields["msgId"][-16:], 16)), "transactionId": "K1"}
    by_place = {37: ends, 33: {"offset": place}, 36: {"offset": place}}
    assert root.ask(34, {}, encoded(BROKER[34][1])).code == 0
    users = {
        "": None, "nil": "nil", **{action: action.lower() for action in ACTIONS if action != "Pub"}, "Pub": "pub",
        "root": "root",
    }  # fmt: skip
    lines = []
    engine = site.running.engine
    host, _, port = site.address.rpartition(":")
    addresses = (site.address, f"{host}:{int(port) - 2}", str(engine.namesrv_address))
    for title, address, listener in zip(("broker", "vip", "namesrv"), addresses, engine.server._listeners, strict=True):
        known = {**(NAMESRV if title == "namesrv" else BROKER), **OURS}
        peers = {}
        for title_of, name in users.items():
            secret = ROOT[1] if name == "root" else f"the secret of {name}"
            made = site.peer(None if name is None else (name, secret), address)
            peers[title_of] = from_elsewhere(made, address)
        for code in sorted(listener.dispatcher.codes):
            fields, body = known[code]
            fields = fields | by_place.get(code, {})
            found: dict[int, list[str]] = {}
            for codec in (0, 1) if code < 1 << 15 else (0,):
                for user, peer in peers.items():
                    asked = [peer.ask(code, fields, encoded(body), codec=codec) for _ in range(2)]
                    refused = [is_refusal(answer) or (code, answer.code) == (105, 17) for answer in asked]
                    assert len(set(refused)) == 1, (code, user, asked)
                    if not refused[0]:
                        found.setdefault(codec, []).append(user)
            assert len({tuple(may) for may in found.values()}) == 1, (code, found)
            may = found[0]
            assert "root" in may, code
            lines.append(f"{title} {code} {NAMES[code]}: {told(may)}")
    here = [*lines, ""]
    known_lines = GOLDEN.read_text().split("\n") if GOLDEN.exists() else []
    assert known_lines == here, "\n".join(unified_diff(known_lines, here, "golden", "here", n=0, lineterm=""))


def is_refusal(answer: RemotingCommand) -> bool:
    """True for a refusal of the gate: 3001 to 3010 answer 16 to other mistakes, too."""
    words = ("has no permission to access", "username cannot be null", "only a Super user may")
    return answer.code == 16 and any(word in str(answer.remark) for word in words)


def told(may: list[str]) -> str:
    """Return the kinds of users who may, as a text."""
    if "" in may:
        return "nobody signs"
    if "nil" in may:
        return "any user"
    return ", ".join(action for action in ACTIONS if action in may) or "-"
