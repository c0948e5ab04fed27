"""Addresses of the console, as the rows of `acts` say them."""

from importlib import import_module
from typing import Any

from django.urls import path

from . import converters  # noqa: F401  (registers <name:...>)
from .acts import ACTS
from .acts.row import Act


def _view(where: str) -> Any:
    module, name = where.split(".")
    return getattr(import_module(f"{__package__}.views.{module}"), name)


def _arguments_last(act: Act) -> list[bool]:
    """Sort key: of addresses that fit both, the one with a word comes before the one with an argument in its place."""
    return [part.startswith("<") for part in (act.address or "").split("/")]


urlpatterns = [
    path(act.address, _view(act.view), name=act.name)
    for act in sorted(ACTS, key=_arguments_last)
    if act.address is not None
]
