"""Addresses of the console, as the rows of `acts` say them."""

from importlib import import_module
from typing import Any

from django.urls import path

from .acts import ACTS
from .acts.row import Act
from .pages import converters  # noqa: F401  (registers <name:...>)


def _view(where: str) -> Any:
    module, _, name = where.rpartition(".")
    return getattr(import_module(f"{__package__}.{module}"), name)


def _arguments_last(act: Act) -> list[bool]:
    """Sort key: of addresses that fit both, the one with a word comes before the one with an argument in its place."""
    return [part.startswith("<") for part in (act.address or "").split("/")]


urlpatterns = [
    path(act.address, _view(act.view), name=act.name)
    for act in sorted(ACTS, key=_arguments_last)
    if act.address is not None
]
