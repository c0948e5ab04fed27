"""The support bundle: a preview of its contents, then the file."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ...doctor.bundle import LEFT_OUT
from ..audit.log import audit
from .support import gather


def support_bundle(request: HttpRequest) -> HttpResponse:
    """Show the bundle's parts, and with `show` the text of one."""
    bundle = gather()
    name = request.GET.get("show", "")
    shown = next((one for one in bundle.parts if one.name == name), None)
    text = "" if shown is None else shown.data[: 256 << 10].decode("utf-8", "replace")
    context = {"parts": bundle.parts, "left_out": LEFT_OUT, "shown": shown, "text": text, "tab": "bundle"}
    return render(request, "system/bundle.html", context)


def support_bundle_file(request: HttpRequest) -> HttpResponse:
    """Download the bundle."""
    bundle = gather()
    audit(request, "bundle.download", "", None, {"files": [one.name for one in bundle.parts]})
    response = HttpResponse(bundle.zipped(), content_type="application/zip")
    response.headers["Content-Disposition"] = 'attachment; filename="rocketbox-support.zip"'
    return response
