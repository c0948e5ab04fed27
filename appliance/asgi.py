"""The ASGI application, loaded in the process in which the engine runs."""

import logging
import os
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.exceptions import SuspiciousOperation

from . import runtime

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

# What a stranger asked wrongly is answered, and no fault of ours; a line for each would be theirs to fill our log with.
for _name in ("django.request", "django.security.csrf"):
    logging.getLogger(_name).setLevel(logging.ERROR)

# So is what Django calls suspicious (a Host header, too many fields or files); a stack trace for each would be
# theirs, too. Its loggers are named after these exceptions.
for _kind in (SuspiciousOperation, *SuspiciousOperation.__subclasses__()):
    _logger = logging.getLogger(f"django.security.{_kind.__name__}")
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False

_django = get_asgi_application()

from .request_bodies import RequestBodies  # noqa: E402  (models are there now)

_BASE_PATH = runtime.place().base_path
_bounded = RequestBodies(_django, _BASE_PATH)


async def _below_base_path(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Give every request the path that people see, whether the proxy before us cuts its beginning off or not."""
    path = scope.get("path", "")
    if path == _BASE_PATH or not path.startswith(_BASE_PATH + "/"):
        path = _BASE_PATH + (path.removeprefix(_BASE_PATH) or "/")
        scope = {**scope, "path": path}
    await _bounded(scope, receive, send)


application = _below_base_path if _BASE_PATH else _bounded
