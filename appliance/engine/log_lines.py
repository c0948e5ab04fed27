"""Writes a log record in one line, whatever text of a peer it contains, and the traceback's lines behind a mark.

    2026-11-22 07:37:14,925 WARNING appliance.engine.broker: client id='a\\n2026-11-22 ...'
    2026-11-22 07:37:14,925 ERROR appliance.engine.remoting.dispatcher: request failed code=10
        | Traceback (most recent call last):
        | ...

Only a record begins a line without the mark, so no text of a stranger can look like a record.
"""

from __future__ import annotations

import logging
import threading

from .plain_text import plain

#: Characters of a message, and of a traceback's line, at most; a client id may have tens of thousands.
LINE_CHARACTERS = 2_000
#: Lines of a traceback, half from its start and half from its end.
TRACEBACK_LINES = 200
MARK = "    | "
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger(__name__)


def text_of(record: logging.LogRecord) -> str:
    """Return the message in one line, and each line of its traceback behind the mark."""
    lines = [plain(record.getMessage(), LINE_CHARACTERS)]
    if record.exc_info:
        lines += _marked(_FORMATTER.formatException(record.exc_info))
    elif record.exc_text:
        lines += _marked(record.exc_text)
    if record.stack_info:
        lines += _marked(record.stack_info)
    return "\n".join(lines)


def _marked(text: str) -> list[str]:
    lines = text.split("\n")
    if len(lines) > TRACEBACK_LINES:
        half = TRACEBACK_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]
    return [MARK + plain(line, LINE_CHARACTERS) for line in lines]


_FORMATTER = logging.Formatter()


class LineFormatter(logging.Formatter):
    """Writes records as described above. format: as for logging; `%(message)s` stands for message and traceback."""

    def __init__(self, format: str = FORMAT) -> None:
        super().__init__(format)

    def format(self, record: logging.LogRecord) -> str:
        if self.usesTime():
            record.asctime = self.formatTime(record)
        record.message = text_of(record)
        return self.formatMessage(record)


def write_to_stderr(level: int, format: str = FORMAT) -> None:
    """Write this process's log, Python's warnings and exceptions that end a thread to stderr. Call once."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(format))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)
    threading.excepthook = _thread_ended


def _thread_ended(what: threading.ExceptHookArgs) -> None:
    if what.exc_type is SystemExit:
        return
    name = what.thread.name if what.thread is not None else "?"
    caught = (what.exc_type, what.exc_value or what.exc_type(), what.exc_traceback)
    logger.error("thread: died of an exception name=%s", name, exc_info=caught)
