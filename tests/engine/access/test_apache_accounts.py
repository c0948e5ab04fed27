"""Accounts of Apache's ACL 1.0 as users, with a report of what becomes another thing."""

import time

import pytest
import yaml

from appliance.engine.access.apache_accounts import accounts_of
from appliance.engine.access.book import Account, Book
from appliance.engine.access.policies import Entry
from appliance.engine.errors import Conflict, InvalidInput
from appliance.engine.window.access.users import WireUsers

FILE = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*
accounts:
- accessKey: shop
  secretKey: 4815162342
  whiteRemoteAddress: 10.0.0.5
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=DENY
  - bills=PUB|SUB
  - ' stock = SUB|PUB '
  - "%RETRY%shop=SUB"
  - all*=PUB
  - nothing
  - typo=PUBLISH
  groupPerms:
  - shop=SUB
- accessKey: chief
  secretKey: chief's own secret
  admin: true
  topicPerms: [orders=PUB]
- accessKey: RocketMQ
  secretKey: 12345678
- accessKey: shop
  secretKey: another secret
  admin: true
- just a text
"""
SECRETS = ("4815162342", "chief's own secret")


def test_an_account_is_a_user_as_apaches_own_migration_makes_it():
    read, notes = accounts_of(yaml.safe_load(FILE))
    shop, chief, example, text = read
    assert shop.account == Account(
        "shop",
        ("4815162342",),
        custom=(
            Entry("Topic:orders", ("All",), (), "Deny"),
            Entry("Topic:bills", ("Pub", "Sub")),
            Entry("Topic:stock", ("Pub", "Sub")),
            Entry("Group:shop", ("Sub",)),
            Entry("Topic:typo", ("All",), (), "Deny"),
        ),
        default=(Entry("Topic:*", ("All",), (), "Deny"), Entry("Group:*", ("Sub",))),
    )
    assert [(key, args.get("text")) for key, args in shop.notes] == [
        ("import_line", "all*=PUB"), ("import_line", "nothing"), ("import_permission", "PUBLISH"),
        ("import_again", "Group:shop"), ("import_address", None),
    ]  # fmt: skip
    assert (chief.account.is_super, [key for key, _ in chief.notes]) == (True, ["import_limited"])
    assert (example.account, "examples" in example.refusal) == (Account("RocketMQ"), True)
    assert "name has" in text.refusal
    assert notes == [("import_stricter", {}), ("import_global", {"addresses": "10.10.103.*, 192.168.0.*"})]


def test_an_account_of_more_lines_than_a_user_has_entries_is_refused_at_once():
    lines = [f"topic{n}=SUB" for n in range(200_000)]
    begin = time.thread_time()
    read, _ = accounts_of({"accounts": [{"accessKey": "shop", "secretKey": "4815162342", "topicPerms": lines}]})
    assert time.thread_time() - begin < 5
    assert (read[0].account, "1000 entries" in read[0].refusal) == (Account("shop"), True)


@pytest.mark.parametrize(
    "content",
    [
        None, 5, "accounts", [], {}, {"accounts": None}, {"accounts": []}, {"accounts": {"a": 1}},
        {"accounts": [{"accessKey": f"user{n}", "secretKey": f"secret {n} of it"} for n in range(1001)]},
    ],
)  # fmt: skip
def test_what_is_no_file_of_accounts_is_refused(content):
    with pytest.raises(ValueError, match="accounts"):
        accounts_of(content)


@pytest.mark.parametrize(
    "account",
    [
        {"accessKey": "a", "secretKey": ["a list of it"]},
        {"accessKey": {"a": 1}, "secretKey": "a good secret"},
        {"accessKey": "a", "secretKey": "short"},
        {"accessKey": "a b", "secretKey": "a good secret"},
        {"accessKey": "a", "secretKey": 1.5},
        {"accessKey": "a", "secretKey": "x" * 257},
    ],
)
def test_an_account_that_can_be_no_user_is_told_without_its_secret(account):
    [read], _ = accounts_of({"accounts": [account]})
    assert (read.account.secrets, bool(read.refusal)) == ((), True)
    assert "secret" not in read.account.name
    assert str(account["secretKey"]) not in repr(read)


@pytest.fixture
def book(tmp_path):
    made = Book(tmp_path / "access.journal")
    yield made
    made.close()


def test_users_are_made_once_and_those_that_exist_stay(book, tmp_path):
    users = WireUsers(book, lambda: "report", list)
    content = yaml.safe_load(FILE)
    preview = users.import_accounts(content, dry_run=True)
    assert [user.outcome for user in preview.users] == ["new", "new", "refused", "refused"]
    assert (preview.applied, list(book)) == (False, [])
    told = []
    book.on_change = told.append
    book.create("chief", "the one who was here")
    report = users.import_accounts(content)
    assert [(user.name, user.user_type, user.outcome) for user in report.users[:3]] == [
        ("shop", "Normal", "made"), ("chief", "Super", "exists"), ("RocketMQ", "Normal", "refused")
    ]  # fmt: skip
    assert told == ["chief", "shop"]
    assert book.get("chief").account.secrets == ("the one who was here",)
    assert not any(secret in repr((preview, report)) for secret in SECRETS)
    assert [user.outcome for user in users.import_accounts(content).users][:2] == ["exists", "exists"]
    book.close()
    assert Book(tmp_path / "access.journal").get("shop").account.secrets == ("4815162342",)


def test_all_are_made_or_none(book, monkeypatch):
    monkeypatch.setattr("appliance.engine.access.book.MOST_USERS", 1)
    users = WireUsers(book, lambda: "report", list)
    for dry_run in (True, False):
        with pytest.raises(Conflict, match="1 wire users, which is the most"):
            users.import_accounts(yaml.safe_load(FILE), dry_run=dry_run)
    with pytest.raises(InvalidInput, match="no list of accounts"):
        users.import_accounts({})
    assert not list(book)


def test_a_power_cut_leaves_all_of_an_import_or_none(book, tmp_path, monkeypatch):
    users, path = WireUsers(book, lambda: "report", list), tmp_path / "access.journal"
    book.create("first", "the one who was here")
    before, kept = path.read_bytes(), []
    write_all = book._file.disk.write_all

    def written(fd: int, data: bytes, *at: int) -> None:
        write_all(fd, data[: len(data) // 2], *at)
        kept.append(path.read_bytes())  # what a cut leaves here
        write_all(fd, data, *at)

    monkeypatch.setattr(book._file.disk, "write_all", written)
    users.import_accounts({"accounts": [{"accessKey": f"u{n}", "secretKey": f"secret {n} of it"} for n in range(9)]})
    assert kept == [before]
    book.close()
    assert len(list(Book(path))) == 10


def test_the_report_says_where_5_3_3_would_decide_otherwise(book):
    content = {"accounts": [{"accessKey": "a", "secretKey": "a good secret", "topicPerms": ["x=PUB", "x=DENY", "y=?"]}]}
    [user] = WireUsers(book, lambda: "report", list).import_accounts(content).users
    assert [(entry.resource, entry.decision) for entry in user.entries] == [("Topic:x", "Deny"), ("Topic:y", "Deny")]
    twice, wrong, _ = map(str, user.notes)
    assert "in RocketMQ 5.3.3 the one that allows" in twice
    assert "RocketMQ 5.3.3 makes an entry of it that allows everything" in wrong
