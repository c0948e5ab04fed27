"""The settings database: creates, migrates and checks it before anything uses it."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import sqlite3
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from django.apps import apps
from django.conf import settings
from django.contrib import sessions
from django.db import DatabaseError, connection
from django.utils import timezone

from ...engine.errors import StartError
from ...engine.own_files import FILE_MODE
from .directory_turn import turn_in

if TYPE_CHECKING:
    from django.db.backends.utils import CursorWrapper

logger = logging.getLogger(__name__)

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_GROWING = "console_auditentry"
_MIGRATIONS = Path(__file__).parent.with_name("migrations")
_SESSIONS = Path(sessions.__file__).with_name("migrations")
# Django's own table of migrations, made without its code for them.
_NOTES = (
    'CREATE TABLE "django_migrations" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "app" varchar(255) NOT NULL, '
    '"name" varchar(255) NOT NULL, "applied" datetime NOT NULL)'
)
_NOTE = 'INSERT INTO "django_migrations" ("app", "name", "applied") VALUES (%s, %s, %s)'


def bring_up_to_date() -> None:
    """Create or migrate the database; return quickly if there is nothing to do. Raises StartError.

    `PRAGMA user_version` identifies the set of migrations that the database was made for, so that an ordinary start
    does not load Django's migration machinery. A database of a newer version is refused.
    """
    try:
        _make_private()
        wanted = schema_version()
        with connection.cursor() as cursor:
            if _version(cursor) != wanted:
                with _turn():
                    if _version(cursor) != wanted:
                        if _is_empty(cursor):
                            _make()
                        else:
                            _refuse_damage()
                            _refuse_newer()
                            _migrate()
                        cursor.execute(f"PRAGMA user_version = {wanted}")
                        return
            _refuse_damage()
    except (DatabaseError, sqlite3.Error, OSError) as error:
        raise StartError(damaged(error)) from None
    finally:
        connection.close()


def _version(cursor: CursorWrapper) -> int:
    return int(cursor.execute("PRAGMA user_version").fetchone()[0])


def _turn() -> AbstractContextManager[None]:
    """Return the lock for one process at a time: a command may open the database while the server's first start makes
    it."""
    name = connection.settings_dict["NAME"]
    return turn_in(name.parent) if isinstance(name, Path) else nullcontext()


def damaged(error: BaseException | None) -> str:
    """Return the sentence for a settings database that cannot be used: it says what to do."""
    where = settings.DATABASES["default"]["NAME"]
    return (
        f"The settings database {where} cannot be used: {error}. No message is in it. Put back the one of a backup "
        f"(`rocketbox restore BACKUP --into DIR` makes a data directory of it: take rocketbox/console.sqlite3 from "
        f"there), or move {where} and its -wal and -shm files away: the next start makes an empty one, and the set-up "
        f"begins anew. Until then RocketBox runs without a console: --roles broker,namesrv"
    )


def is_damage(error: BaseException | None) -> bool:
    """True if the error means that the settings database is damaged. A locked database or a full disk is not damage:
    it ends by itself."""
    cause = error.__cause__ if isinstance(error, DatabaseError) else None
    code = getattr(cause, "sqlite_errorcode", 0)
    return code & 0xFF in _DAMAGE or (isinstance(cause, sqlite3.Error) and "no such table" in str(cause))


class DamageOnce(logging.Filter):
    """A filter for the logger of failed requests: the first one that fails of damage logs what to do, further ones log
    nothing."""

    _is_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not is_damage(error):
            return True
        if not self._is_said:
            self._is_said = True
            logger.error("console: %s", damaged(error))
        return False


def _refuse_damage() -> None:
    """Check all tables that requests read, which are small: otherwise a request would be the first to find the damage.
    The audit log, which grows, has its own check. Raises DatabaseError."""
    with connection.cursor() as cursor:
        tables = [name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
        for table in tables:
            if table != _GROWING:
                said = cursor.execute(f'PRAGMA quick_check("{table}")').fetchone()[0]
                if said != "ok":
                    raise DatabaseError(f"{table} is damaged ({' '.join(str(said).split())[:200]})")


def _make_private() -> None:
    """Create the file before SQLite does, for this user only: SQLite gives its mode to the journals."""
    name = connection.settings_dict["NAME"]
    if isinstance(name, Path):  # the database of tests is in memory
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        os.close(os.open(name, flags, FILE_MODE))


def schema_version() -> int:
    """Return a number that changes with the set of migrations (their names). It fits 31 bits and is never 0."""
    names = "\n".join(sorted(_migrations()))
    return int.from_bytes(hashlib.sha256(names.encode()).digest()[:4], "big") & 0x7FFF_FFFF | 1


def _migrations(directory: Path = _MIGRATIONS) -> list[str]:
    """Return the migrations' names, found as Django finds them, so that it works wherever the modules are stored."""
    return [name for _, name, _ in iter_modules([str(directory)]) if name[0].isdigit()]


def _is_empty(cursor: CursorWrapper) -> bool:
    return cursor.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _make() -> None:
    """Make the tables of the models as they are, in one transaction, and note all migrations as applied. Going through
    the migrations takes a fifth of a start's processor time and leaves the same tables; a test compares them."""
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with connection.schema_editor() as editor:
        editor.execute(_NOTES)
        for model in apps.get_models():
            editor.create_model(model)
        for app, directory in (("console", _MIGRATIONS), ("sessions", _SESSIONS)):
            for name in sorted(_migrations(directory)):
                editor.execute(_NOTE, [app, name, now])


def _migrate() -> None:
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())
    del executor
    gc.collect()  # 4 MB that refer to each other; nothing else is collected before the console answers


def _refuse_newer() -> None:
    from django.db.migrations.recorder import MigrationRecorder

    known = set(_migrations())
    applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "console"}
    if applied - known:
        raise StartError(
            "The settings database was written by a newer RocketBox "
            f"({', '.join(sorted(applied - known))}): start that version, or restore an older copy."
        )
