"""The state of a broker set: the value of its one key in the leader store, as JSON.

PREFIX/SET/state          SetState: the only thing that decides who leads
PREFIX/SET/member/UUID    Announcement: for people and for ranks of candidates, never for safety
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from ..errors import CorruptFile

FORMAT = 1
_T = TypeVar("_T", "SetState", "Announcement")
#: A key is a few hundred bytes; RocketBox did not write a longer one.
MAX_BYTES = 64 * 1024
#: Elections that the key keeps, for people.
MAX_ELECTIONS = 10


class EpochStart(NamedTuple):
    """An epoch, and the physical offset at which its leader's log stood when it began."""

    epoch: int
    start: int


class Leader(msgspec.Struct, frozen=True):
    """uuid: of the store. slot: its brokerId while it is a slave. addr, ha: "host:port" of its main and HA port."""

    uuid: str
    slot: int
    addr: str
    ha: str


class Election(msgspec.Struct, frozen=True, omit_defaults=True):
    """For people. wall_ms: by the clock of the member that won. lost_bound: most bytes that a forced election lost."""

    epoch: int
    uuid: str
    start: int
    wall_ms: int
    why: str
    lost_bound: int = -1


class SetState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """leader: None between a resignation and the next election. isr: uuids of the stores that hold all that was
    acknowledged. floor: an offset known to be acknowledged. beat: grows while a leader lives. nonce: of the last swap,
    so that its writer recognises it. successor: uuid that a planned switch names. id: made with the set; a set of the
    same name in another leader store has another id."""

    v: int = FORMAT
    set: str
    epoch: int
    leader: Leader | None
    isr: tuple[str, ...]
    floor: int = 0
    beat: int = 0
    nonce: str
    successor: str = ""
    elections: tuple[Election, ...] = ()
    id: str = ""


class Announcement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member's announcement of itself, every few seconds. settings: those that all members must have alike. slow:
    from a leader, by uuid, members whose acknowledgements come late, and how late (ms). turn: `MemberFiles.turn`."""

    v: int = FORMAT
    uuid: str
    slot: int
    addr: str
    ha: str
    version: str
    role: str
    seen: int
    log_end: int
    epochs: tuple[tuple[int, int], ...] = ()
    wall_ms: int = 0
    log_begin: int = 0
    settings: dict[str, str] = {}
    slow: dict[str, int] = {}
    turn: int = 0


def encode(value: SetState | Announcement) -> bytes:
    return msgspec.json.encode(value)


def decode_state(data: bytes) -> SetState:
    """Decode the set's key. Raises CorruptFile when it is not a state that this program understands."""
    state = _decode(data, _STATES)
    if state.epoch < 1 or state.floor < 0 or state.beat < 0 or len(set(state.isr)) != len(state.isr) or not state.isr:
        raise CorruptFile("the set's state in the leader store contradicts itself")
    return state


def decode_announcement(data: bytes) -> Announcement:
    """Decode a member's key. Raises CorruptFile."""
    return _decode(data, _ANNOUNCEMENTS)


_STATES = msgspec.json.Decoder(SetState)
_ANNOUNCEMENTS = msgspec.json.Decoder(Announcement)


def _decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    if len(data) > MAX_BYTES:
        raise CorruptFile(f"{len(data)} bytes in the leader store are not a broker set's")
    try:
        value = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptFile(f"what the leader store holds is not a broker set's: {error}") from None
    if value.v != FORMAT:
        raise CorruptFile(f"the leader store holds format {value.v}; this program reads {FORMAT}")
    return value
