"""Users survive crashes and damage to their file; the last super user cannot be removed."""

import json
import os
import stat
import sys
from contextlib import closing

import pytest

from appliance.engine.access.acts import entry_put, with_quotas
from appliance.engine.access.book import Book, BookRefusal, of_known
from appliance.engine.access.policies import CUSTOM, Entry, checked_entry
from appliance.engine.access.sealing import sealer_of
from appliance.engine.config import Secret
from appliance.engine.crc_lines import line_of
from appliance.engine.errors import RefusedRequest, StartError
from tests.support.engine import RunningEngine

SECRET = "correct horse battery"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rocketbox" / "access.journal"


def book_of(path) -> Book:
    return Book(path)


def entries(*resources: str):
    return tuple(checked_entry(resource, ["Pub"], [], "Allow") for resource in resources)


def filled(path) -> Book:
    book = book_of(path)
    book.create("root", SECRET, is_super=True)
    book.create("orders", SECRET + "1")
    book.set_entries("orders", entries("Topic:orders"), entries("Topic:*"))
    book.create("old", SECRET + "2", is_enabled=False)
    book.update("orders", secret=SECRET + "3")
    book.delete("old")
    return book


def test_a_second_process_reads_what_the_first_was_answered(path):
    book = filled(path)
    assert list(book_of(path)) == list(book)
    orders = book_of(path).get("orders").account
    assert orders.secrets == (SECRET + "3",)
    assert (orders.custom, orders.default) == (entries("Topic:orders"), entries("Topic:*"))
    assert book_of(path).get("old") is None


def test_others_cannot_read_the_file(path):
    old = os.umask(0)
    try:
        filled(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_cut_at_any_byte_holds_what_was_answered_before(path, tmp_path):
    filled(path)
    raw = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(raw) if byte == 10]
    before: list[list] = [[]]
    for end in ends:
        copy = tmp_path / "whole" / str(end) / "access.journal"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(raw[:end])
        before.append(list(book_of(copy)))
    for cut in range(len(raw)):
        copy = tmp_path / "cut" / "access.journal"
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(raw[:cut])
        book = book_of(copy)
        assert list(book) == before[sum(end <= cut for end in ends)], cut
        book.close()


def test_a_last_line_whose_beginning_never_came_to_the_disk_was_not_answered(path):
    """Power went while it was written, and its end was on the disk first."""
    filled(path)
    raw = path.read_bytes()
    begin = raw.rindex(b"\n", 0, -1) + 1
    path.write_bytes(raw[:begin])
    book = book_of(path)
    before = list(book)
    book.close()
    for zeros in (1, 12, len(raw) - begin - 1):
        path.write_bytes(raw[:begin] + bytes(zeros) + raw[begin + zeros :])
        book = book_of(path)
        assert list(book) == before
        book.close()
        assert b"\0" not in path.read_bytes()


def test_damage_in_the_middle_refuses_the_start_since_it_may_have_taken_a_right_away(path):
    filled(path)
    raw = bytearray(path.read_bytes())
    for at in (0, 12, len(raw) // 2):
        damaged = bytes(raw[:at]) + bytes((raw[at] ^ 1,)) + bytes(raw[at + 1 :])
        path.write_bytes(damaged)
        with pytest.raises(StartError, match="damaged"):
            book_of(path)


@pytest.mark.parametrize(
    "said",
    [
        {"expires": 5},
        {"quotas": {"topics": 5}},
        {"custom": [{"resource": "Topic:a", "actions": ["Pub"], "until": {"unknown": "5"}}]},
        {"unknown": "topics"},
    ],
)
def test_what_a_newer_version_says_of_a_user_is_kept_and_told(path, said, caplog):
    """Left out of an account, it would be lost with the next change, and the newer version would heed it no more."""
    filled(path).close()
    line = {"name": "later", "secrets": [SECRET]} | said
    with path.open("ab") as file:
        file.write(line_of(json.dumps(line).encode()))
    book = book_of(path)
    [told] = [one for one in caplog.messages if "does not heed" in one]
    assert "of ['later']" in told
    assert any(name in told for name in ("expires", "topics", "until", "unknown"))
    book.change("later", of_known("later", lambda account: with_quotas(account, {"requests": 5})))
    entry = Entry("Topic:b", ("Sub",))
    book.change("later", of_known("later", lambda account: entry_put(account, CUSTOM, entry)))
    [*_, last] = path.read_bytes().splitlines()
    wanted = line | {"quotas": {"requests": 5} | said.get("quotas", {})}
    wanted["custom"] = [*said.get("custom", []), {"resource": "Topic:b", "actions": ["Sub"]}]
    assert json.loads(last[9:]) == wanted
    book.close()
    assert book_of(path).get("later").account == book.get("later").account


@pytest.mark.parametrize(
    "act",
    [
        lambda book: book.delete("root"),
        lambda book: book.update("root", is_super=False),
        lambda book: book.update("root", is_enabled=False),
    ],
)
def test_the_last_super_user_stays(path, act):
    book = filled(path)
    with pytest.raises(RefusedRequest, match="last Super"):
        act(book)
    assert book.has_super()
    book.create("second", SECRET, is_super=True)
    act(book)
    assert book.has_super()


@pytest.mark.parametrize("name", ["", " ", "a b", "a\0", "ü", "a/b", "x" * 65, "User:x"])
def test_a_name_that_is_none(path, name):
    with pytest.raises(RefusedRequest, match="name"):
        book_of(path).create(name, SECRET)


@pytest.mark.parametrize("secret", ["12345678", "RocketMQ", "short", " " + SECRET, SECRET + "\n", "x" * 257, ""])
def test_a_secret_that_is_none_and_is_not_repeated(path, secret):
    with pytest.raises(RefusedRequest) as caught:
        book_of(path).create("u", secret)
    assert not secret or secret not in str(caught.value)


def test_who_may_less_is_told_of_and_who_may_more_is_not(path):
    book = filled(path)
    told: list[str] = []
    book.on_less = told.append
    book.create("new", SECRET)
    book.update("new", is_enabled=True)
    assert told == []
    book.update("new", is_enabled=False)
    book.update("orders", secret=SECRET)
    book.set_entries("orders", (), ())
    book.update("new", is_super=True, is_enabled=True)
    book.update("new", is_super=True, is_enabled=True)
    assert told == ["new", "orders", "orders"]
    book.update("new", is_super=False)
    book.delete("new")
    assert told == ["new", "orders", "orders", "new", "new"]


def test_an_entry_that_only_gives_takes_nothing(path):
    book = filled(path)
    book.create("new", SECRET)
    told: list[str] = []
    book.on_less = told.append
    allowed, denied = (checked_entry("Topic:a", ["Pub"], [], decision) for decision in ("Allow", "Deny"))
    wider = checked_entry("Topic:*", ["All"], [], "Allow")
    for custom, default, takes in (
        ((allowed,), (), False),
        ((wider, allowed), (wider,), False),
        ((wider,), (wider,), True),
        ((wider, denied), (wider,), True),
        ((wider,), (wider,), False),
        ((wider,), (), True),
        ((wider,), (denied,), True),
    ):
        told.clear()
        book.set_entries("new", custom, default)
        assert told == ["new"] * takes, (custom, default)


@pytest.mark.parametrize(
    ("before", "after", "takes"),
    [
        ("Pub", "Pub,Sub", False),
        ("Pub,Sub", "Sub", True),
        ("Pub,Sub", "All", False),
        ("All", "Pub,Sub", True),
        ("Pub 10.0.0.0/8", "Pub,Sub", False),
        ("Pub", "Pub,Sub 10.0.0.0/8", True),
        ("Pub 10.0.0.1", "Pub ::1 10.0.0.1", False),
        ("Pub 10.0.0.1", "Pub,Sub ::1", True),
    ],
)
def test_an_entry_that_is_replaced_by_a_wider_one_takes_nothing(path, before, after, takes):
    """Nobody is hung up on for being given more."""
    book = filled(path)
    book.create("new", SECRET)

    def of(text: str) -> Entry:
        actions, *sources = text.split(" ")
        return checked_entry("Topic:a", actions.split(","), sources, "Allow")

    for place in (lambda entry: ((entry,), ()), lambda entry: ((), (entry,))):
        book.set_entries("new", *place(of(before)))
        told: list[str] = []
        book.on_less = told.append
        book.set_entries("new", *place(of(after)))
        assert told == ["new"] * takes


def test_a_change_the_disk_does_not_take_does_not_count(path, monkeypatch):
    book = filled(path)
    monkeypatch.setattr(book._file, "append", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
    generation = book.generation
    with pytest.raises(OSError, match="full"):
        book.update("orders", is_enabled=False)
    assert book.get("orders").account.is_enabled
    assert book.generation == generation


def test_many_changes_leave_a_short_file(path, monkeypatch):
    book = filled(path)
    book._anew_at = 2000
    for number in range(300):
        book.set_entries("orders", entries(f"Topic:t{number}"), ())
    assert list(book_of(path)) == list(book)
    assert path.stat().st_size < 400 * 1024


def test_a_user_that_was_copied_is_made_again_without_a_complaint_where_users_are_copies(path):
    """`mqadmin createUser -c` has the leader make it, then each follower, to which it has come meanwhile."""
    with closing(book_of(path)) as book:
        book.create("ann", "ann's own secret")

        def elsewhere():
            raise BookRefusal("wire_users_elsewhere", "users are changed at the leader")

        with pytest.raises(BookRefusal, match="existed"):
            book.create("ann", "ann's own secret")
        book.begin_change = elsewhere
        book.create("ann", "ann's own secret")
        for other in (("ann", "another secret"), ("ann", "ann's own secret", True)):
            with pytest.raises(BookRefusal, match="existed"):
                book.create(*other)
        with pytest.raises(BookRefusal, match="at the leader"):
            book.create("bob", "bob's own secret")


def key_file(tmp_path, *keys: bytes, name: str = "key"):
    path = tmp_path / name
    path.touch(0o600)
    path.write_text("".join(f"{key.hex()}\n" for key in keys))
    return str(path)


ONE, TWO = bytes(range(32)), bytes(32)


def test_secrets_are_sealed_at_rest_and_read_again(path, tmp_path):
    filled(path).close()
    assert SECRET.encode() in path.read_bytes()
    file = key_file(tmp_path, ONE)
    book = Book(path, sealer=sealer_of(file))  # those that lay there in clear text, too
    book.create("later", SECRET + "4")
    expected = list(book)
    book.close()
    assert SECRET.encode() not in path.read_bytes()
    assert list(Book(path, sealer=sealer_of(file))) == expected
    assert {account.name: account.secrets for account in expected}["later"] == (SECRET + "4",)


def test_a_journal_that_cannot_be_unsealed_refuses_the_start(path, tmp_path):
    Book(path, sealer=sealer_of(key_file(tmp_path, ONE))).create("root", SECRET)
    with pytest.raises(StartError, match="accessKeyFile"):
        Book(path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StartError, match="none of the keys opens it"):
        Book(path, sealer=sealer_of(key_file(tmp_path, TWO)))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_new_key_seals_all_of_the_journal_anew(path, tmp_path):
    Book(path, sealer=sealer_of(key_file(tmp_path, ONE))).create("root", SECRET)
    Book(path, sealer=sealer_of(key_file(tmp_path, TWO, ONE))).close()
    assert Book(path, sealer=sealer_of(key_file(tmp_path, TWO))).get("root").account.secrets == (SECRET,)


def test_the_sealed_secrets_of_one_user_are_not_taken_for_those_of_another(tmp_path):
    sealer = sealer_of(key_file(tmp_path, ONE))
    sealed = sealer.seal("ann", b"[]")
    assert sealer.unseal("ann", sealed) == (b"[]", True)
    for name, text in (("bob", sealed), ("ann", "no base64!"), ("ann", ""), ("ann", "AAAA" + sealed[4:])):
        with pytest.raises(ValueError):
            sealer.unseal(name, text)


@pytest.mark.parametrize(
    "text", ["", "ab" * 31, "xy" * 32, ("ab" * 32 + "\n") * 9], ids=["empty", "short", "hex", "many"]
)
def test_a_key_file_that_is_none_refuses_the_start(tmp_path, text):
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(StartError, match="64 hexadecimal digits"):
        sealer_of(str(path))


def test_a_key_file_that_others_may_read_refuses_the_start(tmp_path):
    file = key_file(tmp_path, ONE)
    os.chmod(file, 0o640)
    with pytest.raises(StartError, match="chmod 600"):
        sealer_of(file)


@pytest.mark.parametrize("place", ["data/rocketbox", "elsewhere"])
def test_a_key_that_lies_in_the_data_directory_is_told(tmp_path, caplog, place):
    (tmp_path / place).mkdir(parents=True)
    first = Secret(json.dumps({"username": "root", "password": SECRET}))
    broker = {"access_control": "enforce", "init_authentication_user": first}
    running = RunningEngine(tmp_path / "data", broker=broker | {"access_key_file": key_file(tmp_path / place, ONE)})
    running.stop()
    assert ("lies in the data directory" in caplog.text) == (place != "elsewhere")
    assert SECRET.encode() not in (tmp_path / "data" / "rocketbox" / "access.journal").read_bytes()


def test_an_engine_without_cryptography_says_so_and_keeps_the_secrets_in_clear_text(tmp_path, monkeypatch, caplog):
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    first = Secret(json.dumps({"username": "root", "password": SECRET}))
    broker = {"access_control": "enforce", "init_authentication_user": first}
    running = RunningEngine(tmp_path / "data", broker=broker | {"access_key_file": key_file(tmp_path, ONE)})
    running.stop()
    assert "cryptography is not installed" in caplog.text
    journal = tmp_path / "data" / "rocketbox" / "access.journal"
    assert SECRET.encode() in journal.read_bytes()
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
