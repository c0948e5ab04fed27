"""The ASGI application, loaded in the process in which the engine runs."""

import logging
import os
from typing import Any

from django.core.asgi import get_asgi_application

from . import runtime

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

# A stranger's Host header is answered with 400; a stack trace for each would be theirs to fill our log with.
logging.getLogger("django.security.DisallowedHost").addHandler(logging.NullHandler())
logging.getLogger("django.security.DisallowedHost").propagate = False

_django = get_asgi_application()
_BASE_PATH = runtime.place().base_path


async def _below_base_path(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Give every request the path that people see, whether the proxy before us cuts its beginning off or not."""
    path = scope.get("path", "")
    if path == _BASE_PATH or not path.startswith(_BASE_PATH + "/"):
        path = _BASE_PATH + (path.removeprefix(_BASE_PATH) or "/")
        scope = {**scope, "path": path}
    await _django(scope, receive, send)


application = _below_base_path if _BASE_PATH else _django
