"""A user of the wire with quotas, who sends and pulls more than these allow, beside others who do not.

They come by a port of their own, where requests are signed; all other clients of the world use one without users.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from appliance.engine.access.book import Account, BookRefusal
from appliance.engine.access.policies import checked_entry
from appliance.engine.access.quotas import Quotas
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from tests.support.peer import pull_fields, records
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.actors.producers import answered, new_message, request_of, sure, unsure
from tests.world.machine import Answers, Peer
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

PULL = 11
GREEDY, OTHER = "greedy", "other"
#: Longest that a quota delays a send, and how much later an answer may be there.
LONGEST_S, SLACK_S = 1.0, 1.0
#: A pull is held for so long at most.
HELD_MS = 3000
#: Burst after a pause, in seconds of the quota.
BURST_S = 1.0
#: The broker's next turn goes by a changed quota; what arrives in the present one may go by the old one.
TAKEN_S = 0.01


class _Asked:
    """A request of a user, and when its answer came."""

    def __init__(self, world: World, peer: Peer, user: str, code: int, fields: dict[str, Any], body: bytes) -> None:
        self.at = world.now
        self.came = -1.0
        text = {name: str(value) for name, value in fields.items()}
        if user:
            text[ACCESS_KEY] = user
            text[SIGNATURE] = SigningKey(_secret(user)).sign(signed_content(text, body))
        world.requests += 1
        self.answers: Answers = peer.ask(code, text, body, lambda answer: self._note(world))

    def _note(self, world: World) -> None:
        self.came = world.now

    @property
    def took_s(self) -> float:
        return self.came - self.at


def _secret(user: str) -> str:
    return f"the secret of {user}"


def _give(world: World, act: Act) -> bool:
    """Have both users, the one with these quotas. False if that cannot be saved."""
    machine = world.machine

    def work() -> bool:
        try:
            access = machine.open_users()
            for user, quotas in (
                (GREEDY, Quotas(send_bytes=act["send"], pull_bytes=act["pull"])),
                (OTHER, Quotas()),
            ):
                entries = tuple(
                    checked_entry(resource, actions, [], "Allow")
                    for resource, actions in (("Topic:*", ["Pub", "Sub"]), ("Group:*", ["Sub"]))
                )
                wanted = Account(user, (_secret(user),), custom=entries, quotas=quotas)
                access.book.change(user, lambda account, wanted=wanted: replace(wanted))  # type: ignore[misc]
        except (OSError, BookRefusal):
            return False
        return True

    return bool(world.act_on(work)) and not machine.killed


def _quota(world: World, act: Act) -> str:
    if not _give(world, act):
        return "no users"
    machine = world.machine
    world.pass_time(TAKEN_S)
    if machine.killed:
        return ""
    greedy, other, plain = (machine.connect(signs=signs) for signs in (True, True, False))
    begun, can_save = world.now, not world.has_faults
    mine: list[tuple[Message, _Asked]] = []
    others: list[tuple[Message, _Asked]] = []
    for index, size in enumerate(act["sizes"]):
        mine.append(_send(world, act, greedy, GREEDY, index, size))
        if index < act["others"]:
            for number, (peer, user) in enumerate(((other, OTHER), (plain, ""))):
                others.append(_send(world, act, peer, user, 1000 * (number + 1) + index, 10))
    world.sent[act["n"]] = [message for message, _ in (*mine, *others)]
    every = [asked.answers for _, asked in (*mine, *others)]
    if not machine.run(lambda: all(one.ended for one in every), 30.0) and not machine.killed:
        raise Violation("a request is not answered", "one of a user")
    for message, asked in (*mine, *others):
        sure(world, message.topic, asked.answers.command)
        answered(world, message, asked.answers.command)
    if machine.killed:
        return ""
    well = can_save and not world.has_faults and not world.waits_for_slave and machine.disk.slow_s < 0.1
    _judge(act, begun, mine, others, well)
    told = _pull(world, act, greedy)
    for peer in (greedy, other, plain):
        if not machine.killed and not peer.closed:
            machine.hang_up(peer)
    codes = [asked.answers.command.code for _, asked in mine if asked.answers.command is not None]
    return f"{codes.count(0)} of {len(mine)} taken, {told}"


def _send(world: World, act: Act, peer: Peer, user: str, index: int, size: int) -> tuple[Message, _Asked]:
    said = {"topic": act["topic"], "queue": act["queue"], "size": size}
    message, text = new_message(world, act, said, index)
    world.oracle.sent(message)
    unsure(world, message.topic)
    return message, _Asked(world, peer, user, *request_of(message, said, text))


def _judge(
    act: Act,
    begun: float,
    mine: list[tuple[Message, _Asked]],
    others: list[tuple[Message, _Asked]],
    well: bool,
) -> None:
    taken = [(message, asked) for message, asked in mine if asked.answers.command and asked.answers.command.code == 0]
    sizes = [len(message.body) for message, _ in taken]
    last = max((asked.came for _, asked in taken), default=begun)
    if sum(sizes) - max(sizes, default=0) > act["send"] * (last - begun + BURST_S):
        raise Violation("a user sends more than its quota", f"{sizes} in {last - begun:.1f} s, of {act['send']}")
    offsets = [asked.answers.command.ext_fields["queueOffset"] for _, asked in taken]  # type: ignore[union-attr]
    if sorted(map(int, offsets)) != list(map(int, offsets)):
        raise Violation("the sends of one connection lose their order", f"{offsets}")
    if not well:
        return
    for _, asked in mine:
        if asked.took_s > LONGEST_S + SLACK_S:
            raise Violation("who is over a quota waits too long", f"{asked.took_s:.1f} s")
    for message, asked in others:
        answer = asked.answers.command
        if answer is None or answer.code == 2 or asked.took_s > SLACK_S:
            raise Violation("another's quota harms a client", f"{message.body[:20]!r}, {asked.took_s:.1f} s: {answer}")


def _pull(world: World, act: Act, peer: Peer) -> str:
    """Read the queue with the quota of pulls: held, never refused, and nothing is missing or twice."""
    topic, queue, machine = act["topic"], act["queue"], world.machine
    store = machine.broker.store
    if topic not in world.oracle.topics or queue >= world.oracle.topics[topic]:
        return "no queue"
    begun, total, largest, held = world.now, 0, 0, 0
    at, end = store.offset_range(topic, queue)
    for _ in range(act["pulls"]):
        fields = pull_fields(topic, queue, at, consumerGroup="CG", sysFlag=6, suspendTimeoutMillis=HELD_MS)
        asked = _Asked(world, peer, GREEDY, PULL, fields, b"")
        if not machine.run(lambda: asked.answers.ended, 30.0) and not machine.killed:  # noqa: B023
            raise Violation("a request is not answered", "a pull of a user")
        answer = asked.answers.command
        if answer is None or machine.killed:
            return "killed"
        if answer.code not in (0, 19, 20, 21):
            raise Violation("a pull over its quota is refused", f"{answer.code} {answer.remark}")
        if asked.took_s > HELD_MS / 1000 + SLACK_S and not world.has_faults:
            raise Violation("a pull over its quota is held for too long", f"{asked.took_s:.1f} s")
        if answer.code == 0:
            for record in records(answer.body):
                world.oracle.record(topic, queue, record, world.now)
            total, largest = total + len(answer.body), max(largest, len(answer.body))
            if total - largest > act["pull"] * (world.now - begun + BURST_S):
                raise Violation("a user pulls more than its quota", f"{total} in {world.now - begun:.1f} s")
        held += answer.code == 20
        after = int(answer.ext_fields["nextBeginOffset"])
        if answer.code == 20 and after != at:
            raise Violation("a held pull moves its offset", f"{at} to {after}")
        at = after
        if at >= end:
            break
    return f"{total} bytes pulled, {held} held to their end"


def _make(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": chance.choice(TOPICS), "queue": chance.randrange(4), "send": chance.choice((500, 2000, 10_000)),
        "pull": chance.choice((500, 2000, 100_000)), "pulls": chance.choice((2, 4)), "others": chance.choice((1, 4)),
        "sizes": [chance.choice((10, 300, 2000)) for _ in range(chance.choice((3, 10, 20)))],
    }  # fmt: skip


KINDS = [Kind("users", "quota", 0.7, _make, _quota)]
