"""Administrators of users of the wire: accounts with entries, which are copied to all members."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.access.book import Account, BookRefusal
from appliance.engine.access.policies import checked_entry
from tests.world.oracle import Violation
from tests.world.sets.clients import then
from tests.world.sets.kind import TOPICS, Act, Kind

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.world import SetWorld

NAMES = ("ann", "bob")
#: The refusal of a change that is at the leader, and not known to be at all others.
_PERHAPS = "wire_users_unconfirmed"


def _account(act: Act) -> Account:
    name = act["user"]
    if act.get("gone"):
        return Account(name, gone=True)
    entries = tuple(checked_entry(f"Topic:{topic}", ["Pub"], [], "Allow") for topic in act["topics"])
    return Account(name, (f"the secret of {name}",), is_enabled=act["enabled"], custom=entries)


def _user(world: SetWorld, act: Act) -> str:
    """An account becomes what the act says, whatever it was."""
    leader, oracle = world.leader(), world.oracle
    if leader is None or leader.access is None:
        return "nobody leads, or has users"
    wanted, book = _account(act), leader.access.book
    before = oracle.users.setdefault(wanted.name, {Account(wanted.name, gone=True)})
    oracle.users[wanted.name] = before | {wanted}

    def change() -> str:
        try:
            book.change(wanted.name, lambda account: wanted)
        except BookRefusal as refusal:
            return refusal.key
        except OSError as error:
            return str(error)
        return ""

    refused = world.act_on(leader, change)
    if refused == "":
        oracle.users[wanted.name] = {wanted}
        then(world, leader, act)
        return f"{leader.name} took it"
    if refused is not None and refused != _PERHAPS:
        oracle.users[wanted.name] = before
    return "no answer" if refused is None else f"{leader.name} refused: {refused}"


def compare(world: SetWorld, leader: Member) -> None:
    """When the set is together: all have the users of the leader, as they were acknowledged."""
    if leader.access is None:
        return
    found = {account.name: account for account in leader.access.book}
    for name, allowed in world.oracle.users.items():
        account = found.get(name, Account(name, gone=True))
        if account not in allowed and not world.oracle.is_async:
            raise Violation("a user is another one than was acknowledged", f"{account} at {leader.name}, not {allowed}")
        allowed.clear()
        allowed.add(account)
    if found.keys() - world.oracle.users.keys():
        raise Violation("there is a user that was never made", f"{found} at {leader.name}")
    for member in world.members:
        theirs = {account.name: account for account in member.access.book} if member.access is not None else found
        if theirs != found:
            raise Violation("a member has other users", f"{member.name}: {theirs}, not {found}")


def _new_user(chance: random.Random) -> Act:
    act: Act = {"user": chance.choice(NAMES), "pick": chance.randrange(2)}
    if chance.random() < 0.25:
        act["gone"] = True
    else:
        act |= {
            "enabled": chance.random() < 0.7, "topics": sorted(chance.sample(TOPICS, chance.randrange(len(TOPICS) + 1)))
        }  # fmt: skip
    return act | {"then": chance.choice(("", "", "all", "none"))}


KINDS = [Kind("user", 3, _new_user, _user)]
