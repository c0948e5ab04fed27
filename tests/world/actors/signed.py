"""Users of the wire: how they sign, and how they get their accounts.

They come by a port of their own, where requests are signed; all other clients of the world use one without users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from appliance.engine.access.book import Account, BookRefusal
from appliance.engine.access.policies import checked_entry
from appliance.engine.access.quotas import Quotas
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from tests.world.actors.kind import Act
from tests.world.actors.producers import answered, new_message, request_of, sure, unsure
from tests.world.machine import Answers, Peer
from tests.world.oracle import Message

if TYPE_CHECKING:
    from tests.world.world import World

GREEDY, OTHER = "greedy", "other"
#: Longest that a quota delays a request, and how much later an answer may be there.
LONGEST_S, SLACK_S = 1.0, 1.0
#: Burst after a pause, in seconds of the quota.
BURST_S = 1.0
#: The broker's next turn goes by a changed account; what arrives in the present one may go by the old one.
TAKEN_S = 0.01


class Asked:
    """A request of a user, and when its answer came. user: "" for a client that does not sign."""

    def __init__(self, world: World, peer: Peer, user: str, code: int, fields: dict[str, Any], body: bytes) -> None:
        self.at = world.now
        self.came = -1.0
        text = {name: str(value) for name, value in fields.items()}
        if user:
            text[ACCESS_KEY] = user
            text[SIGNATURE] = SigningKey(secret_of(user)).sign(signed_content(text, body))
        world.requests += 1
        self.answers: Answers = peer.ask(code, text, body, lambda answer: self._note(world))

    def _note(self, world: World) -> None:
        self.came = world.now

    @property
    def took_s(self) -> float:
        return self.came - self.at

    @property
    def code(self) -> int:
        """The answer's; -1 without one."""
        return -1 if self.answers.command is None else self.answers.command.code

    @property
    def is_over_quota(self) -> bool:
        """True if it was refused because of a quota."""
        answer = self.answers.command
        return answer is not None and answer.code == 2 and (answer.remark or "").startswith("[QUOTA]")


def secret_of(user: str) -> str:
    return f"the secret of {user}"


def give(world: World, quotas: Quotas) -> bool:
    """Have two users who may send and pull, GREEDY with these quotas and OTHER. False if that cannot be saved."""
    entries = tuple(
        checked_entry(resource, actions, [], "Allow")
        for resource, actions in (("Topic:*", ["Pub", "Sub", "Get"]), ("Group:*", ["Sub"]))
    )
    accounts = [
        Account(user, (secret_of(user),), custom=entries, quotas=own)
        for user, own in ((GREEDY, quotas), (OTHER, Quotas()))
    ]
    return bool(change(world, *accounts)) and not world.machine.killed


def change(world: World, *accounts: Account) -> bool | None:
    """Have these accounts, whatever there was. False if one is refused, None if it is unknown what became of them."""
    machine = world.machine

    def work() -> bool:
        try:
            access = machine.open_users()
            for wanted in accounts:
                access.book.change(wanted.name, lambda account, wanted=wanted: replace(wanted))  # type: ignore[misc]
        except (OSError, BookRefusal):
            return False
        return True

    found: bool | None = world.act_on(work)
    return found


def send(world: World, act: Act, peer: Peer, user: str, index: int, said: dict[str, Any]) -> tuple[Message, Asked]:
    """A message of a user; `take` judges its answer."""
    message, text = new_message(world, act, said, index)
    world.oracle.sent(message)
    unsure(world, message.topic)
    return message, Asked(world, peer, user, *request_of(message, said, text))


def take(world: World, message: Message, asked: Asked) -> None:
    sure(world, message.topic, asked.answers.command)
    answered(world, message, asked.answers.command)


def is_well(world: World) -> bool:
    """True if nothing but a quota may make an answer late."""
    return not world.has_faults and not world.waits_for_slave and world.machine.disk.slow_s < 0.1
