"""The support bundle: its manifest, and the file."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from ...console.audit.log import audit
from ...console.system.support import gather
from ..schemas import MEDIA_TYPE, Out

router = Router(tags=["system"])


class BundleFileOut(Out):
    """One text. what: what it is."""

    name: str
    what: str
    bytes: int
    sha256: str


class BundleOut(Out):
    """Parts of a support bundle, and the data that it leaves out."""

    version: str
    files: list[BundleFileOut]
    left_out: list[str]


@router.get("/system/bundle", response=BundleOut)
def support_bundle(request: HttpRequest) -> Any:
    """The contents that a support bundle would have now."""
    return gather().manifest()


@router.get("/system/bundle/file", response={200: bytes}, openapi_extra={MEDIA_TYPE: "application/zip"})
def support_bundle_file(request: HttpRequest) -> HttpResponse:
    """A zip of texts without secrets, messages and names of users."""
    bundle = gather()
    audit(request, "bundle.download", "", None, {"files": [one.name for one in bundle.parts]})
    return HttpResponse(bundle.zipped(), content_type="application/zip")
