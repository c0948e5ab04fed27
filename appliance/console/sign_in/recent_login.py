"""Acts that need proof of who asks require the password again if it was last entered more than ten minutes ago."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from .identity import confirmed_s_ago

RECENT_S = 600


def is_recent(request: HttpRequest) -> bool:
    """True if the caller has given the password lately. A token has none to give, and its rights were chosen on
    purpose: True."""
    return request.user.kind == "token" or confirmed_s_ago(request) < RECENT_S


def recent_login_required(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate the view that shows the form and the one that acts: the password is required before the form is filled
    in.

    A POST that comes too late is redirected to the password page, too, and from there back to the page of its form.
    """

    @wraps(view)
    def asking(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        return view(request, *args, **kwargs) if is_recent(request) else to_password(request)

    return asking


def to_password(request: HttpRequest) -> HttpResponse:
    """Return the redirection to the password page, which leads back to the page of the form."""
    address = reverse("confirm_password") + "?" + urlencode({"next": _return_address(request)})
    if "HX-Request" in request.headers:
        return HttpResponse(status=204, headers={"HX-Redirect": address})
    return HttpResponseRedirect(address)


def _return_address(request: HttpRequest) -> str:
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    try:
        referrer = urlsplit(request.headers.get("referer", ""))
    except ValueError:  # brackets that do not match, an address that is none
        return request.path
    if referrer.netloc != request.get_host():
        return request.path
    return referrer.path + (f"?{referrer.query}" if referrer.query else "")
