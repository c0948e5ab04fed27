"""Users of the wire on pages; and their secrets, which are shown once and found nowhere afterwards."""

from __future__ import annotations

import html
import io
import json
import logging
import re
import zipfile
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from appliance import runtime
from appliance.api.api import operations
from appliance.console.models import AuditEntry
from appliance.console.users import tokens
from appliance.engine.access.book import BookRefusal
from appliance.engine.config import Secret
from appliance.engine.protocol.codes import RequestCode
from tests.console.conftest import age_login, pretend_running
from tests.console.test_access import PAGES, address_of
from tests.console.test_asked import NOTICE, asked_by
from tests.engine.access.test_enforced import SignedPeer
from tests.support.directories import shared_directory
from tests.support.engine import Peer, send_fields, start_engine

pytestmark = pytest.mark.django_db
ROOT = ("root", "the first one's Zq11 secret")


@pytest.fixture(scope="module")
def site(request):
    """A broker that checks every request."""
    first = Secret(json.dumps({"username": ROOT[0], "password": ROOT[1]}))
    options = {"access_control": "enforce", "init_authentication_user": first}
    engine = start_engine(shared_directory(request, "controlled"), broker=options)
    yield engine
    engine.stop()


@pytest.fixture
def window(site):
    """The window of a broker that checks every request, with no users but the first."""
    pretend_running(site)
    yield site.window
    for row in site.window.users.page(page_size=500).rows:
        if row.name != ROOT[0]:
            site.window.users.delete(row.name)
    runtime.set_running(None)


@pytest.fixture
def admin(window, client_as) -> Client:
    return client_as("admin", "may_read_bodies", "may_export")


def made(client: Client, name: str, **fields: str) -> str:
    """Make a user by the page; return its secret, from the page that shows it once."""
    done = client.post(reverse("wire_user_create"), {"name": name, "user_type": "Normal"} | fields)
    return shown_once(client, done)


def shown_once(client: Client, done: Any) -> str:
    assert done.status_code == 302, done.content
    assert client.head(done.headers["Location"]).status_code == 200  # shows nothing, so the page has it still
    page = client.get(done.headers["Location"]).content.decode()
    assert "was shown once" in client.get(done.headers["Location"]).content.decode()
    return re.search(r'<pre class="secret"[^>]*>(.*?)</pre>', page).group(1)


def act(client: Client, name: str, what: str) -> Any:
    return client.post(reverse("wire_user_act", args=[name]), {"act": what})


def entry(client: Client, name: str, resource: str, **fields: Any) -> Any:
    given = {"resource": resource, "actions": ["Pub"], "decision": "Allow", "policy": "Custom"} | fields
    return client.post(reverse("wire_user_entry", args=[name]), given)


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def test_a_user_from_the_first_secret_to_the_end(admin, window):
    secret = made(admin, "shop")
    assert len(secret) == 40
    assert entry(admin, "shop", "Topic:orders*", sources="10.0.0.0/8, 127.0.0.1").status_code == 302
    [row] = window.users.one("shop").entries
    assert (row.resource, row.actions, row.sources) == ("Topic:orders*", ("Pub",), ("10.0.0.0/8", "127.0.0.1"))
    page = text_of(admin.get(reverse("wire_user", args=["shop"])))
    assert "New secret" in page
    assert "End the old secret" not in page
    assert shown_once(admin, act(admin, "shop", "rotate")) != secret
    page = text_of(admin.get(reverse("wire_user", args=["shop"])))
    assert "2 secrets are good" in page
    assert "End the old secret" in page
    act(admin, "shop", "end-old-secret")
    act(admin, "shop", "disable")
    assert not window.users.one("shop").enabled
    assert "disabled" in text_of(admin.get(reverse("wire_users")))
    admin.post(reverse("wire_user_entry_remove", args=["shop"]), {"resource": "Topic:orders*"})
    assert window.users.one("shop").entries == ()
    page = text_of(admin.get(reverse("wire_user_delete", args=["shop"])))
    assert "This cannot be undone" in page
    admin.post(reverse("wire_user_delete", args=["shop"]), {"name": "shop"})
    assert [row.name for row in window.users.page().rows] == ["root"]
    assert [one.action for one in AuditEntry.objects.order_by("id")] == [
        "wire-user.set", "wire-acl.set", "wire-user.set", "wire-user.set", "wire-user.set", "wire-acl.delete",
        "wire-user.delete",
    ]  # fmt: skip


def test_the_page_says_that_over_tls_only_is_not_at_all_where_no_tls_is_served(admin, window, monkeypatch):
    made(admin, "shop")
    page, asked = reverse("wire_user", args=["shop"]), {"action": "Pub", "resource": "Topic:a", "address": "10.0.0.1"}
    entry(admin, "shop", "Topic:a")
    text = "This server serves no TLS (tlsMode is disabled)"
    assert text_of(admin.get(page)).count(text) == 1, "beside the button"
    act(admin, "shop", "require-tls")
    assert text_of(admin.get(page, asked)).count(text) == 2, "as its state, and as the answer"
    monkeypatch.setattr(window.users, "_serves_tls", True)
    shown = text_of(admin.get(page, asked))
    assert text not in shown
    assert "shop has to come over TLS: what it asks in clear is refused." in shown
    assert text not in text_of(admin.get(page))


def test_quotas_are_set_and_a_user_at_a_limit_is_shown_everywhere(admin, window, site, client_as):
    secret = made(admin, "shop")
    entry(admin, "shop", "Topic:orders")
    page = reverse("wire_user_quotas", args=["shop"])
    for wrong in ("-1", "1" + "0" * 30, "NaN", "1e3", "seven"):
        refused = admin.post(page, {"send_bytes": wrong})
        assert refused.status_code == 422, wrong
    assert all(row.own is None for row in window.users.one("shop").quotas)
    assert admin.post(page, {"send_bytes": "1000", "connections": "0"}).status_code == 302
    assert [row.own for row in window.users.one("shop").quotas] == [1000, None, None, 0]
    shown = admin.get(reverse("wire_user", args=["shop"])).content.decode()
    assert 'value="1000"' in shown
    assert "at its limit" not in shown
    metrics = window.metrics()
    assert (metrics["wire_users_at_quota"], metrics["quota_sends_refused_total"]) == (0, 0)
    peer = SignedPeer(str(site.broker_address), ("shop", secret))
    codes = [peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x" * 5000).code for _ in range(2)]
    peer.close()
    assert codes == [0, 2]
    limited = window.users.one("shop").limited
    assert (limited.lately, limited.sends_refused) == (True, 1)
    for address in (reverse("wire_user", args=["shop"]), reverse("wire_users")):
        assert "at its limit" in admin.get(address).content.decode()
    metrics = window.metrics()
    assert (metrics["wire_users_at_quota"], metrics["quota_sends_refused_total"]) == (1, 1)
    [need] = [one for one in window.overview.snapshot().needs if one.sentence.code == "users_at_quota"]
    assert (need.level, "shop" in str(need.sentence)) == ("watch", True)
    assert admin.post(page, {}).status_code == 302
    assert all(row.own is None for row in window.users.one("shop").quotas)


def test_what_is_refused_is_told_and_written_down(admin, window):
    made(admin, "shop")
    again = admin.post(reverse("wire_user_create"), {"name": "shop", "user_type": "Normal"})
    assert (again.status_code, "There is already a wire user shop" in text_of(again)) == (422, True)
    assert AuditEntry.objects.latest("id").result == "refused"
    for name in ("a b", "..", ""):
        assert admin.post(reverse("wire_user_create"), {"name": name, "user_type": "Normal"}).status_code == 422
    wrong = entry(admin, "shop", "orders")
    assert wrong.status_code == 422
    assert "must be * or begin with Topic:" in text_of(wrong)
    assert "no address and no network" in text_of(entry(admin, "shop", "Topic:a", sources="here"))
    assert entry(admin, "shop", "Topic:a", actions=[]).status_code == 422
    last = admin.post(reverse("wire_user_act", args=["root"]), {"act": "disable"}, follow=True)
    assert "last Super user" in text_of(last)
    last = admin.get(reverse("wire_user_delete", args=["root"]), follow=True)
    assert "last Super user" in text_of(last)
    assert act(admin, "nobody", "disable").status_code == 404
    assert window.users.one("root").enabled


def test_a_question_shows_the_entry_that_decides_and_those_that_lost(admin, window):
    made(admin, "shop")
    entry(admin, "shop", "Topic:*", actions=["All"])
    entry(admin, "shop", "Topic:orders", decision="Deny")
    asked = {"action": "Pub", "resource": "Topic:orders", "address": "10.0.0.1"}
    page = text_of(admin.get(reverse("wire_user", args=["shop"]), asked))
    assert "refused The entry for Topic:orders decides: it denies." in page
    assert "Topic:* allow fits, but another one decides" in page
    page = text_of(admin.get(reverse("wire_user", args=["shop"]), asked | {"resource": "Topic:other"}))
    assert "allowed The entry for Topic:* decides: it allows." in page
    wrong = admin.get(reverse("wire_user", args=["shop"]), asked | {"resource": "Topic:*"})
    assert (wrong.status_code, "Name one topic" in text_of(wrong)) == (422, True)


def test_a_question_and_a_page_say_what_rocketmq_would_decide_otherwise(admin, window):
    made(admin, "shop")
    address = reverse("wire_user_compare", args=["shop"])
    assert "Nothing: it would decide the same." in text_of(admin.get(address))
    entry(admin, "shop", "Topic:orders", decision="Deny")
    asked = {"action": "Pub", "resource": "Topic:orders", "address": "10.0.0.1"}
    assert "RocketMQ 5.3.3 would say the same." in text_of(admin.get(reverse("wire_user", args=["shop"]), asked))
    entry(admin, "shop", "Topic:*", actions=["All"])
    page = text_of(admin.get(reverse("wire_user", args=["shop"]), asked))
    assert "RocketMQ 5.3.3 would allow it, by the entry for Topic:*." in page
    assert "Topic:orders Pub 203.0.113.250 refused Topic:orders allowed Topic:*" in text_of(admin.get(address))


ACCOUNTS = """
accounts:
- {accessKey: shop, secretKey: secret of Zq12 shop, topicPerms: [orders=PUB], whiteRemoteAddress: 10.0.0.5}
- {accessKey: RocketMQ, secretKey: 12345678}
"""


def test_accounts_of_apaches_acl_are_imported_after_a_preview(admin, window):
    address = reverse("wire_import")
    assert "plain_acl.yml" in text_of(admin.get(address))
    preview = admin.post(address, {"text": ACCOUNTS, "step": "preview"})
    page = text_of(preview)
    assert "shop would be made Normal Topic:orders allow Pub whiteRemoteAddress is not taken over" in page
    assert "RocketMQ refused It is not taken over (this secret stands in public examples)." in page
    assert not [row for row in window.users.page().rows if row.name == "shop"]
    ticket = re.search(r'name="ticket" value="([^"]+)"', preview.content.decode()).group(1)
    done = admin.post(address, {"ticket": ticket, "step": "apply"})
    assert "shop made Normal Topic:orders allow Pub" in text_of(done)
    assert [entry.resource for entry in window.users.one("shop").entries] == ["Topic:orders"]
    assert AuditEntry.objects.filter(action="wire-user.import", target="shop", result="done").count() == 1
    assert admin.post(address, {"ticket": ticket, "step": "apply"}).status_code == 422, "it counts once"
    texts = (
        "a: [", "secretKey: &x\n- Zq12 *x", "a: 1", "secretKey: !Zq12", "secretKey: !Zq12!x y", 'secretKey: !"\'Zq12',
        "secretKey: !!int Zq12", "secretKey: !!bool Zq12",
    )  # fmt: skip
    wrong = [admin.post(address, {"text": text}) for text in texts]
    assert {answer.status_code for answer in wrong} == {422}
    assert not any("Zq12" in answer.content.decode() for answer in (preview, done, *wrong))


def test_a_secret_of_ones_own_is_taken_and_never_shown(admin, window, site):
    own, next_one = "my own Zq13 secret", "my next Zq14 secret"
    for wrong in ("short", "12345678", "RocketMQ", " blanks around "):
        form = {"name": "shop", "user_type": "Normal", "secret": wrong}
        refused = admin.post(reverse("wire_user_create"), form)
        assert (refused.status_code, f'value="{wrong}"' in refused.content.decode()) == (422, False)
    made = admin.post(reverse("wire_user_create"), {"name": "shop", "user_type": "Normal", "secret": own}, follow=True)
    entry(admin, "shop", "Topic:own")

    def code_of(secret: str) -> int:
        return SignedPeer(site.broker_address, ("shop", secret)).ask(310, send_fields("own"), b"x").code

    assert code_of(own) == 0
    same = admin.post(reverse("wire_user_act", args=["shop"]), {"act": "rotate", "secret": own}, follow=True)
    assert "This is the secret that the user has." in text_of(same)
    form = {"act": "rotate", "secret": next_one}
    rotated = admin.post(reverse("wire_user_act", args=["shop"]), form, follow=True)
    assert "2 secrets are good" in text_of(rotated)
    assert (code_of(own), code_of(next_one)) == (0, 0)
    told = [answer.content.decode() for answer in (made, same, rotated)]
    told += [str((one.before, one.after)) for one in AuditEntry.objects.all()]
    assert not [text for text in told if "Zq13" in text or "Zq14" in text]


def test_who_may_do_something_is_a_page(admin, window):
    made(admin, "shop")
    entry(admin, "shop", "Topic:orders", actions=["Pub", "Get"])
    entry(admin, "shop", "Topic:bills", sources="10.0.0.0/8")
    address = reverse("wire_access")
    assert "Wire users who may do something" in text_of(admin.get(address))
    page = text_of(admin.get(address, {"resource": "Topic:orders"}))
    assert "shop Normal Get, Pub —" in page
    assert "root Super" in page
    assert "shop Normal — Pub" in text_of(admin.get(address, {"resource": "Topic:bills"}))
    wrong = admin.get(address, {"resource": "orders"})
    assert (wrong.status_code, "Name one topic" in text_of(wrong)) == (422, True)


def test_what_was_refused_leads_to_the_entry_that_allows_it(admin, window, site):
    peer = SignedPeer(site.broker_address, ("shop", made(admin, "shop")))
    assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("refused <b>"), b"x").code == 16
    assert "What was refused" in text_of(admin.get(reverse("wire_refusals")))
    page = admin.get(reverse("wire_refusals"), {"q": "Topic:refused"}).content.decode()
    assert "refused &lt;b&gt;" in page
    told = admin.get(reverse("wire_refusals"), {"q": "Topic:refused", "format": "csv"}).content.decode().splitlines()
    assert told[0] == "user,resource,actions,reason,request,address,count,first_at,last_at"
    [at] = re.findall(r"^shop,Topic:refused <b>,Pub,no_entry,SEND_MESSAGE_V2,127.0.0.1,1,(.*),\1$", told[1])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", at)
    [address] = re.findall(r'href="([^"]+)#entry"', page)
    form = admin.get(html.unescape(address)).content.decode()
    assert re.search(r'name="actions" value="Pub"[^>]* checked', form)
    assert 'value="Topic:refused &lt;b&gt;"' in form
    assert entry(admin, "shop", "Topic:refused <b>").status_code == 302
    page = text_of(admin.get(reverse("wire_refusals"), {"q": "Topic:refused"}))
    assert "Nothing, for this filter." in page, "the entry allows it by now"
    peer.close()


def test_an_entry_that_begins_from_a_refusal_keeps_what_the_one_that_it_replaces_allows(admin, window):
    made(admin, "shop")
    entry(admin, "shop", "Topic:orders", actions=["Sub", "Get"], sources="10.0.0.0/8, 192.0.2.7")
    entry(admin, "shop", "Topic:orders", actions=["All"], policy="Default")
    form = admin.get(reverse("wire_user", args=["shop"]), {"for": "Topic:orders", "give": "Pub"}).content.decode()
    assert re.findall(r'name="actions" value="(\w+)"[^>]* checked', form) == ["Pub", "Sub", "Get"]
    assert 'value="10.0.0.0/8, 192.0.2.7"' in form


def test_an_entry_that_begins_from_a_refusal_takes_the_place_of_none_that_denies(admin, window):
    made(admin, "shop")
    entry(admin, "shop", "Topic:orders", actions=["Pub"], decision="Deny")

    def begun() -> tuple[list[str], list[str]]:
        form = admin.get(reverse("wire_user", args=["shop"]), {"for": "Topic:orders", "give": "Sub"}).content.decode()
        [policy] = re.findall(r'<option value="(\w+)" selected', form) or [""]
        return policy, re.findall(r'name="actions" value="(\w+)"[^>]* checked', form)

    assert begun() == ("Default", ["Sub"])
    entry(admin, "shop", "Topic:orders", actions=["Get"], policy="Default")
    assert begun() == ("Default", ["Sub", "Get"])
    entry(admin, "shop", "Topic:orders", actions=["Get"], policy="Default", decision="Deny")
    assert begun() == ("Custom", []), "both deny: nothing is begun"


def test_what_was_refused_of_a_name_with_a_star_leads_to_no_entry(admin, window, site):
    """A client chooses the name, and the entry for it would allow all that begins so."""
    peer = SignedPeer(site.broker_address, ("shop", made(admin, "shop")))
    for name in ("*", "starred*"):
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(name), b"x").code == 16
    peer.close()
    page = admin.get(reverse("wire_refusals")).content.decode()
    for name in ("*", "starred*"):
        assert f"<code>Topic:{name}</code>" in page
        assert f"for={quote('Topic:' + name, safe='')}" not in page


def test_no_form_of_a_page_sends_what_its_page_does_not_know(admin, window):
    for page in (
        reverse("wire_users"),
        reverse("wire_access"),
        reverse("wire_refusals"),
        reverse("wire_user", args=["root"]),
    ):
        addresses = list(asked_by(admin.get(page).content.decode(), page))
        assert addresses, page
        for address in addresses:
            shown = admin.get(address, follow=True)
            assert shown.status_code in (200, 422), address
            assert NOTICE not in shown.content.decode(), address


def test_pages_say_that_users_of_the_wire_and_of_the_console_are_two_things(admin, window):
    for name, arguments in (("wire_users", []), ("wire_user_create", []), ("wire_user", ["root"])):
        assert "two things" in text_of(admin.get(reverse(name, args=arguments)))
    assert "Programs that send and consume are wire users" in text_of(admin.get(reverse("users")))


def test_what_another_administrator_changed_meanwhile_is_looked_at_first(admin, window):
    made(admin, "shop")
    act(admin, "shop", "rotate")
    page = admin.get(reverse("wire_user", args=["shop"])).content.decode()
    [revision] = set(re.findall(r'name="revision" value="([^"]+)"', page))
    [preview] = re.findall(
        r'name="revision" value="([^"]+)"', admin.get(reverse("wire_user_delete", args=["shop"])).content.decode()
    )
    window.users.act("shop", "end-old-secret")
    window.users.act("shop", "rotate")  # looks as before, but the old secret is another one
    seen = {"revision": revision}
    for view, given in (
        ("wire_user_act", {"act": "end-old-secret"}),
        ("wire_user_entry", {"resource": "Topic:a", "actions": ["Pub"], "decision": "Allow", "policy": "Custom"}),
        ("wire_user_entry_remove", {"resource": "Topic:a"}),
    ):
        answer = admin.post(reverse(view, args=["shop"]), given | seen, follow=True)
        assert "shop was changed in the meantime; look again." in text_of(answer)
    answer = admin.post(reverse("wire_user_delete", args=["shop"]), {"name": "shop", "revision": preview})
    assert answer.status_code == 409
    user = window.users.one("shop")
    assert (user.secrets, user.entries) == (2, ())
    assert admin.post(reverse("wire_user_act", args=["shop"]), {"act": "end-old-secret", "revision": user.revision})
    assert window.users.one("shop").secrets == 1


def test_looking_needs_no_password_and_changing_does(admin, window):
    made(admin, "shop")
    age_login(admin)
    assert admin.get(reverse("wire_user", args=["shop"])).status_code == 200
    for response in (
        act(admin, "shop", "disable"),
        entry(admin, "shop", "Topic:a"),
        admin.post(reverse("wire_user_delete", args=["shop"]), {"name": "shop"}),
        admin.get(reverse("wire_user_create")),
    ):
        assert response.headers["Location"].startswith(reverse("confirm_password"))
    assert window.users.one("shop").enabled


def test_without_access_control_the_page_says_how_to_switch_it_on(broker, client_as):
    admin = client_as("admin")
    assert "accessControl=report" in text_of(admin.get(reverse("wire_users")))
    for name in ("wire_user", "wire_user_delete"):
        assert admin.get(reverse(name, args=["shop"])).headers["Location"] == reverse("wire_users")
    assert act(admin, "shop", "disable").headers["Location"] == reverse("wire_users")


def test_no_secret_comes_back_anywhere(admin, window, site, people, caplog, tmp_path):
    """Secrets of all origins; then every page, operation, answer of the wire, log line, bundle and file is searched."""
    caplog.set_level(logging.DEBUG, logger="appliance")
    people["admin"].refresh_from_db()
    _, token = tokens.create(people["admin"], "all", "admin", may_read_bodies=True, may_export=True)
    bearer = {"headers": {"authorization": f"Bearer {token}"}}
    secrets = {ROOT[1], made(admin, "shop"), shown_once(admin, act(admin, "shop", "rotate"))}
    entry(admin, "shop", "Topic:orders")
    body = {"data": json.dumps({"name": "by-api"}), "content_type": "application/json"}
    secrets.add(Client().post("/api/v1/wire-users", **body, **bearer).json()["secret"])
    rotate = "/api/v1/wire-users/by-api/acts/rotate"
    secrets.add(Client().generic("POST", rotate, **bearer).json()["secret"])
    own = "an own Zq15 secret"
    act(admin, "shop", "end-old-secret")
    secrets.add(own)
    assert admin.post(reverse("wire_user_act", args=["shop"]), {"act": "rotate", "secret": own}).status_code == 302
    root = SignedPeer(site.broker_address, ROOT)
    given = "given-Zq12-over-the-wire"
    told = json.dumps({"username": "by-wire", "password": given, "userType": "Normal"}).encode()
    answers = [root.ask(RequestCode.AUTH_CREATE_USER, {"username": "by-wire"}, told)]
    secrets.add(given)
    again = "again-Zq13-over-the-wire"
    told = json.dumps({"username": "by-wire", "password": again}).encode()
    answers.append(root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "by-wire"}, told))
    secrets.add(again)
    assert len(secrets) == 8, "as many as there were made"
    assert all(len(secret) > 12 for secret in secrets)

    stranger = Peer(site.broker_address)
    answers.append(stranger.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x"))
    for code, fields in (
        (RequestCode.AUTH_GET_USER, {"username": "shop"}),
        (RequestCode.AUTH_LIST_USER, {"filter": ""}),
        (RequestCode.AUTH_GET_ACL, {"subject": "User:shop"}),
        (RequestCode.AUTH_LIST_ACL, {}),
        (RequestCode.GET_BROKER_CONFIG, {}),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}),
    ):
        answers.append(root.ask(code, fields))
    searched = {f"answer {at}": repr((one.remark, one.ext_fields, one.body)) for at, one in enumerate(answers)}
    for peer in (root, stranger):
        peer.close()

    for name in ("shop", "by-api", "by-wire", "root"):
        for _, route in PAGES:
            address = address_of(route).replace("some-name", name)
            if (name == "shop" or "wire" in address) and not address.startswith(("/logout/", "/static/")):
                searched[address] = everything(admin.get(address))
        for one in operations():
            if one.method == "GET" and (name == "shop" or "wire" in one.route):
                address = address_of(one.route).replace("some-name", name)
                searched["token " + address] = everything(Client().get(address, **bearer))
    assert "shop" in searched[reverse("wire_users")]
    assert "Topic:orders" in searched["token /api/v1/wire-users/shop"]
    with zipfile.ZipFile(io.BytesIO(admin.get(reverse("support_bundle_file")).content)) as bundle:
        searched |= {f"bundle {name}": bundle.read(name).decode() for name in bundle.namelist()}
    assert "bundle log.txt" in searched
    searched["log"] = caplog.text
    assert "access: changed user=shop" in searched["log"]
    searched["settings database"] = "\n".join(connection.connection.iterdump())
    assert "by-wire" in str([act.target for act in site.wire_audit.after("", 0)[1]])
    directories = (site.config.data_dir, tmp_path)
    searched |= {
        str(path): path.read_bytes().decode(errors="replace")
        for directory in directories
        for path in directory.rglob("*")
        if path.is_file() and path.name != "access.journal"
    }
    found = [(where, secret) for where, text in searched.items() for secret in secrets if secret in text]
    assert not found
    journal = (site.config.data_dir / "rocketbox" / "access.journal").read_text()
    assert all(secret in journal for secret in secrets), "the search would find them"


def everything(response: Any) -> str:
    """Return the headers and the body of an answer; of a stream, which does not end, its headers."""
    return str(response.headers) + ("" if response.streaming else response.content.decode(errors="replace"))


def test_where_users_are_copies_the_page_says_where_they_are_changed(admin, site, monkeypatch):
    def begin_change() -> Any:
        raise BookRefusal("wire_users_elsewhere", "changed there", where="10.0.0.7:10911")

    monkeypatch.setattr(site._access.book, "begin_change", begin_change)
    said = "changed at another broker (10.0.0.7:10911)"
    assert said in admin.get(reverse("wire_users")).content.decode()
    refused = admin.post(reverse("wire_user_create"), {"name": "shop", "user_type": "Normal"})
    assert said in refused.content.decode()
    assert site._access.book.get("shop") is None
    monkeypatch.undo()
    assert said not in admin.get(reverse("wire_users")).content.decode()
