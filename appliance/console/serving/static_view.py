"""Serves the files below `static/`."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified

from .static_files import read

_FOREVER = "public, max-age=31536000, immutable"


async def static_file(request: HttpRequest, name: str) -> HttpResponse:
    """Return a file. A browser may keep it for ever if the address has the mark of this content, else it has to ask
    again."""
    found = read(name)
    if found is None:
        raise Http404
    etag = f'"{found.mark}"'
    cache = _FOREVER if request.GET.get("v") == found.mark else "no-cache"
    headers = {"Cache-Control": cache, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return HttpResponseNotModified(headers=headers)
    return HttpResponse(found.content, content_type=found.content_type, headers=headers)
