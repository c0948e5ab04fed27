"""Addresses of the console, as the rows of `acts` say them."""

from importlib import import_module
from typing import Any

from django.urls import path

from . import converters  # noqa: F401  (registers <name:...>)
from .acts import ACTS


def _view(where: str) -> Any:
    module, name = where.split(".")
    return getattr(import_module(f"{__package__}.views.{module}"), name)


def _parts_given(address: str) -> list[bool]:
    """Sort key: of addresses that fit both, the one with a word comes before the one with an argument in its place."""
    return [part.startswith("<") for part in address.split("/")]


_ADDRESSES = {act.address: act for act in ACTS if act.address is not None}
urlpatterns = [
    path(address, _view(act.view), name=act.name)
    for address, act in sorted(_ADDRESSES.items(), key=lambda one: _parts_given(one[0]))
]
