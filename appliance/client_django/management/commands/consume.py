"""`manage.py consume`: runs the handlers that the apps' `consumers.py` declare."""

from __future__ import annotations

import atexit
import os
import queue
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import autoreload

from ... import handlers, options
from ...sdk import ClientError, ended_by, entry_of


class Command(BaseCommand):
    help = (
        "Runs the handlers of the apps' consumers.py until SIGTERM or Ctrl-C: then running handlers end, offsets are "
        "committed, and the groups are left. With DEBUG it starts again when a file changes."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("groups", nargs="*", metavar="GROUP", help="groups to run; all without it")
        parser.add_argument("--noreload", action="store_true", help="do not start again when a file changes")
        parser.add_argument(
            "--drain", type=float, default=30.0, metavar="SECONDS", help="longest wait for running handlers (30)"
        )

    def handle(self, *_: Any, **given: Any) -> None:
        if settings.DEBUG and not given["noreload"]:
            autoreload.run_with_reloader(self._consume_reloading, given)
        else:
            self._consume(given)

    def _consume_reloading(self, given: dict[str, Any]) -> None:
        """Run in a thread of the process that the reloader ends."""
        autoreload.raise_last_exception()
        try:
            self._consume(given)
        except CommandError as error:
            self.stderr.write(str(error))
            self.stderr.flush()
            os._exit(1)

    def _consume(self, given: dict[str, Any]) -> None:
        self.check()
        declared = {group.name: group for group in handlers.declared()}
        unknown = sorted(set(given["groups"]) - set(declared))
        if unknown:
            raise CommandError(
                f"No consumers.py declares {', '.join(unknown)}: there is {', '.join(declared) or 'none'}."
            )
        if not declared:
            raise CommandError(f"No app has a {handlers.MODULE}.py with a consumer_group(...).")
        chosen = [group for name, group in declared.items() if not given["groups"] or name in given["groups"]]
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        try:
            client = options.read().make_client()
            atexit.register(client.close, 5.0)  # the reloader ends the main thread, and with it this one
            try:
                with ended_by(ended):
                    consumers = [group.consumer_of(client) for group in chosen]
                    for consumer in consumers:
                        consumer.start()
                    connections.close_all()
                    for group in chosen:
                        topics = ", ".join(sorted(one.topic for one in group.subscriptions))
                        self.stdout.write(f"group {group.name} consumes {topics}")
                    self.stdout.flush()
                    entry_of(ended)
            finally:
                report = client.close(given["drain"])
        except ClientError as error:
            raise CommandError(str(error)) from error
        if report.still_running or report.uncommitted:
            raise CommandError(f"It was ended with work undone, which comes again: {report}")
