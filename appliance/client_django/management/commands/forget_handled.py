"""`manage.py forget_handled`: deletes old notes of handlers declared with `once`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from ...models import HandledMessage


class Command(BaseCommand):
    help = "Deletes old notes of handled messages. A message that comes again after that is handled again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="alias of the database with the notes")
        parser.add_argument("--days", type=float, default=30.0, help="age of the oldest that stay (30)")

    def handle(self, *_: Any, **given: Any) -> None:
        before = timezone.now() - timedelta(days=given["days"])
        notes = HandledMessage.objects.using(given["database"]).filter(handled_at__lt=before)
        self.stdout.write(f"notes deleted: {notes.delete()[0]}")
