"""One message: its known story, its body, its raw record.

Body and raw record need the grant to read bodies, and each look is audited. A body is shown as text in a page or
downloaded as bytes; it is never served in a form that a browser would run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header

from ... import runtime
from ..audit.log import audit
from ..pages.curl import command
from ..users.access import allows

if TYPE_CHECKING:
    from ...engine.window.messages.snapshots import MessageRow

FORMS = ("decoded", "json", "text", "hex", "base64")
SHOWN_BYTES = 64 << 10


def message(request: HttpRequest, ref: str) -> HttpResponse:
    """Show a message's story and the groups that have it, and its body to users who may read bodies."""
    detail = runtime.window().messages.detail(ref)
    context: dict[str, Any] = {
        "detail": detail,
        "row": detail,
        "tab": "story",
        "properties": sorted(detail.properties.items()),
        "place": _place(detail),
        "curl": _curl(request, detail),
        "ask_members": any(one.clients for one in detail.groups),
    }
    if allows(request.user, "message_content"):
        context |= _body(request, detail.offset_id)
        audit(request, "message.read", _place(detail))
    return render(request, "message/story.html", context)


def message_content(request: HttpRequest, ref: str) -> HttpResponse:
    """Show a message's body, decompressed as its sys flag says, in the form `as`: decoded (by the
    topic's schema), json, text, hex or base64; by default
    in the one that suits it."""
    admin = runtime.window()
    detail = admin.messages.detail(ref, story=False)
    context = {"detail": detail, "row": detail, "tab": "content"} | _body(request, ref)
    audit(request, "message.read", _place(detail))
    return render(request, "message/content.html", context)


def message_raw(request: HttpRequest, ref: str) -> HttpResponse:
    """Show the record as it is stored in the log."""
    admin = runtime.window()
    detail = admin.messages.detail(ref, story=False)
    context = {"detail": detail, "row": detail, "tab": "raw", "raw": admin.messages.raw(ref)}
    audit(request, "message.read_raw", _place(detail))
    return render(request, "message/raw.html", context)


def message_download(request: HttpRequest, ref: str) -> HttpResponse:
    """Download the body as it is stored."""
    admin = runtime.window()
    row = admin.messages.detail(ref, story=False)
    body = admin.messages.body_bytes(ref)
    audit(request, "message.export", _place(row))
    response = HttpResponse(body, content_type="application/octet-stream")
    name = f"{row.topic}-{row.queue_id}-{row.queue_offset}.bin"
    response.headers["Content-Disposition"] = content_disposition_header(True, name)
    return response


def _body(request: HttpRequest, ref: str) -> dict[str, Any]:
    """Return the body for a page in the form `?as=`, or if that does not fit, in the one that suits the body. All of a
    long one is shown to users who may export."""
    bound = None if allows(request.user, "message_download") else SHOWN_BYTES
    body = runtime.window().messages.body(ref, SHOWN_BYTES, bound)
    forms = [form for form in FORMS if getattr(body, form) is not None]
    form = request.GET.get("as", "")
    if form not in forms:
        form = next((one for one in ("decoded", "json") if one in forms), "hex" if body.text is None else "text")
    return {"body": body, "forms": forms, "form": form, "shown": getattr(body, form)}


def _curl(request: HttpRequest, row: MessageRow) -> str:
    """Return the commands that read the message in a shell, with an API token."""
    path = f"messages/{row.offset_id}"
    paths = [path, f"{path}/body"] if allows(request.user, "message_content") else [path]
    return "\n".join(command(request, path) for path in paths)


def _place(row: MessageRow) -> str:
    return f"{row.topic}/{row.queue_id}/{row.queue_offset}"
