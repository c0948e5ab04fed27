"""Puts a member of a set together: its files, its brokers, the store for leadership, and the thread that decides.

made      before the broker is built: opens the member's files; a cut that was begun is finished
begin     when the engine runs, with a fenced broker: from here on the thread `failover` decides its role
resign    first of all at a stop, so that another member can lead at once
"""

from __future__ import annotations

import logging
import socket

from ... import __version__
from ..broker.broker import RunningOptions
from ..broker.open_store import store_settings as broker_store_settings
from ..broker.role import Kind, Role
from ..clock import Clock
from ..disk import Disk
from ..errors import StartError
from ..seat import Seat
from ..store.dispatch import parse_delay_levels
from ..store.paths import StorePaths
from .brokers import OwnBrokers
from .decision import Rules, Wish
from .member_files import MemberFiles, place_of
from .service import FailoverService
from .settings import member_settings, shared_settings, store_settings
from .stores import open_store, tidy
from .truncation import StoreCut

logger = logging.getLogger(__name__)

#: Longest wait of a stop until the members in sync have all, and for the store.
RESIGN_S = 3.0
_CUT_DESCRIPTORS = 64


class Membership:
    """Made on the main thread, before the store is opened."""

    def __init__(self, options: RunningOptions, clock: Clock) -> None:
        """Raises StartError when the member's files cannot be used, or a cut cannot be finished."""
        config = options.config
        own = config.data_dir / "rocketbox"
        disk = Disk(own)
        paths = StorePaths(config.store_dir, own)
        # Constant after construction.
        self._options = options
        self._clock = clock
        self.settings = member_settings(config)
        self.store_settings = store_settings(config)
        self.paths, self.disk = paths, disk
        try:
            disk.make_directory(own)
            self.files = MemberFiles(paths, disk, self.settings.set, place_of(own))
            levels = parse_delay_levels(config.store.message_delay_level)
            settings = broker_store_settings(config.broker, config.store, levels, _CUT_DESCRIPTORS)
            self._cut = StoreCut(paths, disk, settings, self.files, clock.wall_ms)
            self._cut.finish()
        except ValueError as error:
            raise StartError(f"{error}.") from None
        except OSError as error:
            raise StartError(f"The log cannot be cut where its set went on without it: {error}.") from None
        # Set by begin().
        self.service: FailoverService | None = None
        self.brokers: OwnBrokers | None = None

    @property
    def first_role(self) -> Role:
        """Role until the key has been read."""
        return Role(Kind.FENCED, self.files.slot, why="it is not known yet who leads")

    def begin(
        self,
        seat: Seat,
        ha_socket: socket.socket,
        address: str,
        ha_address: str,
    ) -> None:
        """Start the thread `failover`. address, ha_address: "host:port" as announced to others."""
        brokers = OwnBrokers(seat, ha_socket, self.files, self._cut, self.settings, lambda: self._options.config)
        url, access = self._options.config.store.ha_store, self.store_settings.access
        service = FailoverService(
            lambda: open_store(url, access),
            self.store_settings.root,
            self.files,
            brokers,
            self._rules(),
            address,
            ha_address,
            __version__,
            self._clock,
            lambda store: tidy(store, self.store_settings.compact),
            lambda: shared_settings(self._options.config),
        )
        brokers.on_higher_epoch = service.met_epoch
        brokers.release_until = lambda: service.release_until
        self.brokers, self.service = brokers, service
        service.start()

    def _rules(self) -> Rules:
        settings = self.settings
        return Rules(
            set=settings.set,
            uuid=self.files.uuid,
            synchronous=settings.synchronous,
            elect_after=settings.elect_after_s,
            beat_interval=settings.beat_s,
            slave_silence=settings.behind_s,
            min_in_sync=settings.min_in_sync,
            max_lag=settings.max_lag_bytes,
            bootstrap=settings.bootstrap,
            relay=settings.relay_s,
        )

    def resign(self) -> None:
        """Give up leadership, before anything is stopped. Returns in bounded time, whatever the store does."""
        service = self.service
        if service is None or not service.alive:
            return
        answer = service.ask(Wish("resign"), RESIGN_S)
        if answer is None or not answer.done:
            logger.warning("failover: leadership was not given up in time: %s", "" if answer is None else answer.why)
        service.stop(2.0)
        if self.brokers is not None:
            self.brokers.stop()
