"""The console's one stylesheet. It is small and read once, so no static file service stands before it yet."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import etag, require_safe

_CSS = (Path(__file__).parents[1] / "static" / "console" / "console.css").read_bytes()
_ETAG = f'"{hashlib.sha256(_CSS).hexdigest()[:20]}"'


@require_safe
@etag(lambda request: _ETAG)
async def console_css(request: HttpRequest) -> HttpResponse:
    """The stylesheet; a browser asks again each time and gets 304 until it changed."""
    return HttpResponse(_CSS, content_type="text/css; charset=utf-8", headers={"Cache-Control": "no-cache"})
