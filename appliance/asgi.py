"""The ASGI application: Django behind the bounds on request bodies, and Channels. Loaded where the engine runs."""

import asyncio
import logging
import os
from importlib import import_module
from types import ModuleType
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.exceptions import SuspiciousOperation

from . import runtime
from .c_memory import give_back_now
from .console.serving.database import DamageOnce
from .console.serving.secret_addresses import NoSecrets

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

# A wrong request gets its answer but no log line: otherwise strangers could fill the log.
for _name in ("django.request", "django.security.csrf"):
    logging.getLogger(_name).setLevel(logging.ERROR)

# The same for requests that Django calls suspicious (a wrong Host header, too many fields or files), for which it would
# log a stack trace. Its loggers are named after these exceptions.
for _kind in (SuspiciousOperation, *SuspiciousOperation.__subclasses__()):
    _logger = logging.getLogger(f"django.security.{_kind.__name__}")
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False

logging.getLogger("django.request").addFilter(NoSecrets())
logging.getLogger("django.request").addFilter(DamageOnce())

_django = get_asgi_application()

from .console.serving.turns import Turns  # noqa: E402  (models are there now)
from .request_bodies import RequestBodies  # noqa: E402

_BASE_PATH = runtime.place().base_path
_bounded = RequestBodies(Turns(_django, _BASE_PATH), _BASE_PATH)


async def _below_base_path(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Give every request the path that people see, no matter if the proxy cuts its beginning off."""
    path = scope.get("path", "")
    if path == _BASE_PATH or not path.startswith(_BASE_PATH + "/"):
        path = _BASE_PATH + (path.removeprefix(_BASE_PATH) or "/")
        scope = {**scope, "path": path}
    await _bounded(scope, receive, send)


_http = _below_base_path if _BASE_PATH else _bounded

_imported: dict[str, ModuleType] = {}


async def _when_imported(name: str) -> ModuleType:
    """Return a module that not every server needs, imported on first use. It is imported in a thread: on the loop, or
    in the thread that makes pages, all of them would wait."""
    if name not in _imported:
        loop = asyncio.get_running_loop()
        _imported[name] = await loop.run_in_executor(None, import_module, name)
        await loop.run_in_executor(None, give_back_now)
    return _imported[name]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Pass requests to Django, WebSockets to Channels."""
    if scope["type"] == "websocket":
        sockets = await _when_imported("appliance.console.live.web_sockets")
        await sockets.application(scope, receive, send, _bounded.run)
        return
    if "/api/v1/" in scope.get("path", ""):
        await _when_imported("appliance.api.urls")
    await _http(scope, receive, send)
