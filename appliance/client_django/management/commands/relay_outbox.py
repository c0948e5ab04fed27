"""`manage.py relay_outbox`: sends what `send_by_outbox` wrote."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, Error, connections

from ... import options
from ...models import OutboxMessage
from ...relay import LEASE_S, Relay
from ...sdk import ClientError, ended_by

logger = logging.getLogger("rocketbox.outbox")
_LONGEST_PAUSE_S = 30.0


class Command(BaseCommand):
    help = "Sends what the outbox holds, until SIGTERM or Ctrl-C. Several may run: each message is sent by one of them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="alias of the outbox's database")
        parser.add_argument(
            "--interval", type=float, default=0.5, metavar="SECONDS", help="pause when nothing was sent (0.5)"
        )
        parser.add_argument(
            "--lease", type=float, default=LEASE_S, metavar="SECONDS",
            help="time until others take over from one that died (60); at least four times the client's time-out",
        )  # fmt: skip
        parser.add_argument("--until-empty", action="store_true", help="end when the outbox is empty")

    def handle(self, *_: Any, **given: Any) -> None:
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        try:
            with options.read().make_client() as client, ended_by(ended):
                producer = options.read().producer_of(client)
                relay = Relay(given["database"], producer, time.monotonic, lambda: not ended.empty(), given["lease"])
                self._run(relay, ended, given)
        except ClientError as error:
            raise CommandError(str(error)) from error

    def _run(self, relay: Relay, ended: queue.SimpleQueue[None], given: dict[str, Any]) -> None:
        database = given["database"]
        is_prepared, failures = False, 0
        self.stdout.write(f"relaying the outbox of {database}")
        self.stdout.flush()
        while ended.empty():
            pause = given["interval"]
            try:
                if not is_prepared:
                    relay.prepare()
                    is_prepared = True
                if relay.send_all():
                    pause = 0.0
                elif given["until_empty"] and not OutboxMessage.objects.using(database).exists():
                    return
                failures = 0
            except Error as error:
                failures += 1
                pause = min(_LONGEST_PAUSE_S, 2.0 ** min(failures, 10) / 2)
                logger.warning("the outbox's database %s fails, again in %g s: %s", database, pause, error)
                connections[database].close()
            with contextlib.suppress(queue.Empty):
                ended.get(timeout=pause) if pause else ended.get_nowait()
                return
