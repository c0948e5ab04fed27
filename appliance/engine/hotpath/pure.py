"""The pure twin: what the compiled one does, in Python.

The classes here hold the fields that both forms of the hot path touch. The parts of the engine are made of them, so
that the compiled twin can keep the same fields as plain numbers of C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pure_index import Keys as Keys
from .pure_index import link_entries as link_entries
from .pure_index import put_keys as put_keys
from .pure_index import scan_keys as scan_keys
from .pure_index import take_back as take_back

if TYPE_CHECKING:
    from ..remoting.event_loop import EventLoop

#: Both twins say this number; it changes with every change of what one of them offers to the rest of the engine.
INTERFACE = 4


class LoopState:
    """Of the event loop. wall_ms, monotonic: when the current tick began, in ms and in seconds."""

    wall_ms: int
    monotonic: float


class StageState:
    """Of the commit log: the records of this tick, before they are written.

    stage: where they are packed; its first byte will lie at physical offset `stage_base`. staged: how many bytes of it
    are taken. stage_room: how many may be. segment_end: where the file being written ends.
    """

    stage: bytearray
    staged: int
    stage_base: int
    stage_room: int
    segment_end: int


class QueueState:
    """Of a consume queue: its numbers and its tail, see there."""

    __slots__ = ("max_offset", "min_offset", "next_offset", "queue_id", "tail", "tail_base")

    queue_id: int
    min_offset: int
    max_offset: int
    next_offset: int
    tail: bytearray
    tail_base: int


class TickState:
    """Of a tick: what was staged in it, and who waits for that."""

    __slots__ = ("acks", "early", "end", "last_offset", "touched", "written_at")

    end: int
    last_offset: int
    touched: dict[Any, int]
    acks: list[Any]
    early: list[Any]
    written_at: float


class AppenderState:
    """Of the store: the current tick, and the store time of its last record in ms."""

    tick: Any
    store_ms: int


class TableState:
    """Of a table of topics or groups. generation: grows with every change."""

    generation: int


class AdmissionState:
    """Of the admission of sends: topic -> route, good for one generation of the topic table."""

    generation: int
    routes: dict[str, Any]


class ServerState:
    """Of the remoting server: the connections with something to send, and what keeps from reading."""

    loop: EventLoop
    dirty: list[Any]
    producers_held: bool
    read_bytes: int


class PeerState:
    """Of a connection: what it is to be sent, and whether it is read from. told: of what it pulls -> the number that
    delivery events call it by."""

    __slots__ = (
        "_mask",
        "_out",
        "_out_bytes",
        "_partial",
        "_server",
        "_settled",
        "born_host",
        "closed",
        "closing",
        "dirty",
        "fd",
        "full",
        "halted",
        "last_active",
        "told",
    )

    _mask: int
    _out: list[Any]
    _out_bytes: int
    _partial: bytearray | None
    _server: Any
    _settled: bool
    born_host: bytes
    closed: bool
    closing: bool
    dirty: bool
    fd: int
    full: bool
    halted: bool
    last_active: float
    told: dict[Any, int]


class AnswersState:
    """Of the answers to pulls: how many found messages, or nothing; what those that did brought."""

    found_count: int
    miss_count: int
    message_count: int
    message_bytes: int


class DeliveryState:
    """Of the recorder of deliveries. room: where events are packed; `at` bytes of it are taken. first_number: lower
    ones mean nothing any more. on: whether anything is recorded."""

    room: bytearray
    at: int
    first_number: int
    on: bool
