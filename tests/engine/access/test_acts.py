"""Acts on users, by people and over the wire: one rule for both, and an explanation that agrees with the gate."""

import ipaddress
import random
import threading

import pytest

from appliance.engine.access.acts import USER_ACTS, entry_put, entry_states, new_secret, user_states
from appliance.engine.access.book import Account, Book, BookRefusal, of_known
from appliance.engine.access.policies import (
    ACTIONS,
    ALLOW,
    CUSTOM,
    DECIDES,
    DEFAULT,
    OTHER_ACTIONS,
    OTHER_ADDRESS,
    OUTRANKED,
    Policies,
    checked_entry,
)
from appliance.engine.errors import Conflict, InvalidInput, NotFound
from appliance.engine.window.access.users import WireUsers

HERE = ipaddress.ip_address("127.0.0.1")


@pytest.fixture
def book(tmp_path):
    made = Book(tmp_path / "access.journal")
    yield made
    made.close()


@pytest.fixture
def users(book):
    found = WireUsers(book, lambda: "enforce", list)
    found.create("root", user_type="Super", by="a test")
    found.create("shop", by="a test")
    return found


def act(users: WireUsers, name: str, what: str, revision: str | None = None, dry_run: bool = False):
    return users.act(name, what, revision=revision, dry_run=dry_run, by="a test")


def put(users: WireUsers, name: str, resource: str, policy: str = CUSTOM, dry_run: bool = False, **how):
    return users.put_entry(
        name, resource, how.pop("actions", ("Pub",)), policy=policy, dry_run=dry_run, by="a test", **how
    )


def test_a_rotated_user_has_two_secrets_until_the_old_one_is_ended(book, users):
    [first] = book.get("shop").account.secrets
    less = []
    book.on_less = less.append
    second = act(users, "shop", "rotate").secret
    assert book.get("shop").account.secrets == (second, first)
    assert len(second) == 40
    assert less == [], "nobody lost anything"
    with pytest.raises(Conflict, match="two secrets already"):
        act(users, "shop", "rotate")
    ended = act(users, "shop", "end-old-secret")
    assert (book.get("shop").account.secrets, ended.secret) == ((second,), None)
    assert less == ["shop"]
    with pytest.raises(Conflict, match="only one secret"):
        act(users, "shop", "end-old-secret")


def test_no_change_is_made_by_a_dry_run_and_no_secret(book, users):
    before = list(book)
    generation = book.generation
    made = users.create("other", dry_run=True, by="a test")
    assert (made.applied, made.secret) == (False, None)
    for what in USER_ACTS:
        if what != "end-old-secret":
            assert act(users, "shop", what, dry_run=True).secret is None
    put(users, "shop", "Topic:a", dry_run=True)
    users.delete("shop", dry_run=True, by="a test")
    assert (list(book), book.generation) == (before, generation)


def test_what_is_shown_of_a_user_and_of_its_changes_has_no_secret(book, users):
    change = act(users, "shop", "rotate")
    put(users, "shop", "Topic:a", sources=("10.0.0.0/8",))
    account = book.get("shop").account
    shown = repr((users.one("shop"), users.page(), change, user_states(account), entry_states(account)))
    assert not [secret for secret in account.secrets if secret in shown]
    assert "secrets=2" in shown


def test_the_last_super_user_stays_whatever_is_tried(book, users):
    for what in ("disable", "make-normal"):
        with pytest.raises(Conflict, match="last Super user"):
            act(users, "root", what)
        with pytest.raises(Conflict, match="last Super user"):
            act(users, "root", what, dry_run=True)
    with pytest.raises(Conflict, match="last Super user"):
        users.delete("root", by="a test")
    act(users, "shop", "make-super")
    act(users, "root", "disable")
    assert book.has_super(but="root")


def test_a_change_of_what_was_changed_since_is_refused(users):
    read = users.one("shop").revision
    put(users, "shop", "Topic:a")
    with pytest.raises(Conflict, match="changed in the meantime"):
        act(users, "shop", "disable", revision=read)
    assert users.one("shop").enabled
    act(users, "shop", "disable", revision=users.one("shop").revision)


def test_mistakes_name_the_field(users):
    for field, entry in (
        ("resource", ("orders", ("Pub",), (), "Allow")),
        ("actions", ("Topic:orders", ("Publish",), (), "Allow")),
        ("sources", ("Topic:orders", ("Pub",), ("10.0.0.300",), "Allow")),
        ("decision", ("Topic:orders", ("Pub",), (), "Perhaps")),
    ):
        with pytest.raises(InvalidInput) as caught:
            users.put_entry("shop", *entry)
        assert caught.value.field == field
    for name in ("", "..", "a b", "a" * 65, "-_."):
        with pytest.raises(InvalidInput, match="1 to 64 letters"):
            users.create(name)
    with pytest.raises(InvalidInput, match="must be one of"):
        act(users, "shop", "bless")
    with pytest.raises(NotFound):
        act(users, "nobody", "disable")
    with pytest.raises(NotFound):
        users.remove_entry("shop", "Topic:orders")


def test_an_entry_is_known_by_policy_and_resource_whatever_the_case_of_its_type(users):
    put(users, "shop", "Topic:orders")
    put(users, "shop", "topic:orders", decision="Deny")
    put(users, "shop", "TOPIC:orders", policy=DEFAULT)
    assert [(row.policy, row.resource, row.decision) for row in users.one("shop").entries] == [
        ("Custom", "Topic:orders", "Deny"),
        ("Default", "Topic:orders", "Allow"),
    ]
    change = users.remove_entry("shop", "topic:orders")
    assert [(one.field, one.before, one.after) for one in change.differences] == [("Topic:orders", "Deny Pub", None)]
    assert [row.policy for row in users.one("shop").entries] == ["Default"]


def test_two_who_change_one_user_at_once_lose_nothing(book, users):
    """Each change is made from the account as it is, and not from one that was read before."""

    def add(part: str) -> None:
        for number in range(30):
            entry = checked_entry(f"Topic:{part}-{number}", ["Pub"], [], ALLOW)
            book.change("shop", of_known("shop", lambda account, entry=entry: entry_put(account, CUSTOM, entry)))

    threads = [threading.Thread(target=add, args=(part,)) for part in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(book.get("shop").account.custom) == 60


def test_a_change_sees_no_older_account_than_the_one_it_replaces(book, users):
    def change(account: Account) -> Account:
        assert not book._writing.acquire(blocking=False), "no other call can change it meanwhile"
        return entry_put(account, CUSTOM, checked_entry("Topic:a", ["Pub"], [], ALLOW))

    book.change("shop", of_known("shop", change))
    with pytest.raises(BookRefusal):
        book.change("nobody", of_known("nobody", change))


def test_the_explanation_agrees_with_the_gate():
    chance = random.Random(7)
    resources = ["*", "Topic:*", "Topic:o*", "Topic:or*", "Topic:orders", "Topic:other", "Group:*", "Group:orders"]
    sources = [[], ["10.0.0.0/8"], ["127.0.0.1"]]

    def some() -> tuple:
        return tuple(
            checked_entry(
                chance.choice(resources), chance.sample(ACTIONS, 2), chance.choice(sources),
                chance.choice(["Allow", "Deny"]),
            )
            for _ in range(chance.randrange(5))
        )  # fmt: skip

    seen = set()
    for _ in range(2000):
        policies = Policies(some(), some())
        asked = chance.choice(["Topic", "Group"]), "orders", frozenset([chance.choice(ACTIONS[:-1])])
        found = policies.explain(*asked, HERE)
        decides = [judged.entry for judged in found if judged.why == DECIDES]
        verdict = policies.decide(*asked, HERE)
        assert decides == ([] if verdict.entry is None else [verdict.entry])
        seen |= {judged.why for judged in found}
    assert seen == {DECIDES, OUTRANKED, OTHER_ACTIONS, OTHER_ADDRESS}


def test_a_question_is_answered_with_the_entry_that_decides_and_those_that_lost(users):
    put(users, "shop", "Topic:*", actions=("All",))
    put(users, "shop", "Topic:orders*", actions=("Pub",), decision="Deny")
    put(users, "shop", "Topic:orders", actions=("Pub",), sources=("10.0.0.0/8",))
    put(users, "shop", "Topic:orders-eu", actions=("Sub",))
    found = users.decide("shop", "pub", "topic:orders", "192.0.2.1")
    assert (found.allowed, str(found.sentence)) == (False, "The entry for Topic:orders* decides: it denies.")
    assert [(row.entry.resource, row.why) for row in found.entries] == [
        ("Topic:orders", "other_address"),
        ("Topic:orders*", "decides"),
        ("Topic:*", "outranked"),
    ]
    assert users.decide("shop", "Pub", "Topic:orders", "10.1.2.3").allowed
    assert users.decide("shop", "Pub", "Topic:orders", "::ffff:10.1.2.3").allowed
    nothing = users.decide("shop", "Sub", "Group:g", "10.1.2.3")
    assert (nothing.allowed, nothing.entries) == (False, ())
    put(users, "shop", "Group:g", actions=("Sub",))
    assert users.decide("shop", "Pub", "Topic:%RETRY%g", "10.1.2.3").allowed, "a group's retries come with the group"
    assert users.decide("root", "Delete", "Cluster:c", "10.1.2.3").allowed
    act(users, "shop", "disable")
    assert not users.decide("shop", "Pub", "Topic:orders", "10.1.2.3").allowed
    for field, question in (
        ("action", ("Publish", "Topic:a", "10.0.0.1")),
        ("action", ("All", "Topic:a", "10.0.0.1")),
        ("resource", ("Pub", "Topic:a*", "10.0.0.1")),
        ("resource", ("Pub", "a", "10.0.0.1")),
        ("address", ("Pub", "Topic:a", "here")),
    ):
        with pytest.raises(InvalidInput) as caught:
            users.decide("shop", *question)
        assert caught.value.field == field


@pytest.mark.parametrize("serves_tls", [True, False])
def test_who_has_to_come_over_tls_is_told_what_that_means_here(book, users, serves_tls):
    put(users, "shop", "Topic:orders")
    users = WireUsers(book, lambda: "enforce", list, serves_tls=serves_tls)
    asked = ("Pub", "Topic:orders", "10.0.0.1")
    shut_out = [] if serves_tls else ["wire_user_shut_out"]
    for dry_run in (True, False):
        change = act(users, "shop", "require-tls", dry_run=dry_run)
        assert [one.code for one in change.warnings] == ["wire_user_hung_up", *shut_out]
        assert users.decide("shop", *asked).over_tls is None or not dry_run
    assert act(users, "shop", "rotate").warnings == ()
    found = users.decide("shop", *asked)
    assert (found.allowed, found.passes) == (serves_tls, serves_tls)
    if serves_tls:
        assert (found.sentence.code, found.over_tls.code) == ("decided_allow", "decided_over_tls")
        assert users.decide("shop", "Sub", *asked[1:]).over_tls is None, "it is refused anyway"
    else:
        assert [found.sentence.code] == shut_out
        assert (found.over_tls, found.apache_allowed, found.apache.code) == (None, None, "apache_no_tls")
    act(users, "root", "require-tls")
    assert users.decide("root", *asked).allowed == serves_tls


def test_new_secrets_are_long_and_never_the_same():
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {40}
