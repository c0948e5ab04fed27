"""The pure twin: the work of the compiled one, in Python.

The classes here hold the fields that both forms of the hot path use. Parts of the engine derive from them, so that the
compiled twin can keep the same fields as plain C numbers.
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

#: Both twins have this number; it changes whenever one of them changes its interface to the rest of the engine.
INTERFACE = 10


class LoopState:
    """Fields of the event loop. wall_ms, monotonic: when the current tick began, in ms and in seconds."""

    wall_ms: int
    monotonic: float


class StageState:
    """Fields of the commit log: the records of this tick, before they are written.

    stage: the buffer they are packed in; its first byte will lie at physical offset `stage_base`. staged: bytes in use.
    stage_room: limit on these. segment_end: physical offset at which the file being written ends. kept, kept_end: while
    `staged` is 0, the stage still holds the records from `kept` to `kept_end`, physical offsets. durable: physical
    offset below which the log is synced.
    """

    stage: bytearray
    staged: int
    stage_base: int
    stage_room: int
    segment_end: int
    kept: int
    kept_end: int
    durable: int


class QueueState:
    """Fields of a consume queue: its numbers and its tail, see there."""

    __slots__ = ("max_offset", "min_offset", "next_offset", "queue_id", "tail", "tail_base")

    queue_id: int
    min_offset: int
    max_offset: int
    next_offset: int
    tail: bytearray
    tail_base: int


class TickState:
    """Fields of a tick: what was staged in it, and what waits for that."""

    __slots__ = ("acks", "early", "end", "last_offset", "touched", "written_at")

    end: int
    last_offset: int
    touched: dict[Any, int]
    acks: list[Any]
    early: list[Any]
    written_at: float


class AppenderState:
    """Fields of the store: the current tick, and the store time of its last record in ms."""

    tick: Any
    store_ms: int


class TableState:
    """Fields of a table of topics or groups. generation: grows with every change."""

    generation: int


class AdmissionState:
    """Fields of the admission of sends: topic -> route, valid for one generation of the topic table."""

    generation: int
    routes: dict[str, Any]


class ServerState:
    """Fields of the remoting server: connections with something to send, and limits on reading."""

    loop: EventLoop
    dirty: list[Any]
    producers_held: bool
    read_bytes: int


class PeerState:
    """Fields of a connection: its outbox, and the state of reading from it. told: pull plan -> the number that stands
    for it in delivery events. grants, reading: what access control has admitted, and what the connections of its port
    share, in the compiled twin. Some are here because a plain C number takes less memory than an object and its place.
    """

    __slots__ = (
        "_accounted",
        "_filled",
        "_going_on",
        "_held_back",
        "_hung_up",
        "_in_pool",
        "_in_pools_bytes",
        "_in_socket",
        "_mask",
        "_out",
        "_out_bytes",
        "_partial",
        "_pool_waits",
        "_posted",
        "_server",
        "_settled",
        "born_host",
        "closed",
        "closing",
        "connected_at",
        "dirty",
        "fd",
        "full",
        "grants",
        "halted",
        "last_active",
        "listening_since",
        "parked_count",
        "partial_magnitude",
        "reading",
        "told",
    )

    _accounted: int
    _filled: int
    _going_on: bool
    _held_back: bool
    _hung_up: bool
    _in_pool: bool
    _in_pools_bytes: int
    _in_socket: int
    _mask: int
    _out: list[Any] | None
    _out_bytes: int
    _partial: bytearray | None
    _pool_waits: int
    _posted: int
    _server: Any
    _settled: bool
    born_host: bytes
    closed: bool
    closing: bool
    connected_at: float
    dirty: bool
    fd: int
    full: bool
    grants: Any
    halted: bool
    last_active: float
    listening_since: float
    parked_count: int
    partial_magnitude: int
    reading: Any
    told: dict[Any, int]

    def on_event(self, mask: int) -> None:
        """Handle events of the socket; the compiled twin reads usual frames itself."""
        self.handle_event(mask)

    def handle_event(self, mask: int) -> None:
        raise NotImplementedError


class AnswersState:
    """Fields of the answers to pulls: how many found messages or none; number and bytes of the messages found."""

    found_count: int
    miss_count: int
    message_count: int
    message_bytes: int


class DeliveryState:
    """Fields of the recorder of deliveries. room: buffer for events; `at` bytes of it are used. first_number: lower
    ones are no longer valid. on: True while events are recorded."""

    room: bytearray
    at: int
    first_number: int
    on: bool
