"""Addresses of the console, as the rows of `acts` say them. A view is imported for the first request that needs it:
all of them together take a fifth of a second of one processor and 5 MB, which the first page would wait for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.urls import ResolverMatch, URLPattern
from django.urls.resolvers import RoutePattern
from django.views.decorators.http import require_http_methods

from .acts import ACTS
from .acts.row import Act
from .pages import converters  # noqa: F401  (registers <name:...>)


class LatePage(URLPattern):
    """An address, and the place of its view below this package, which is called when the row allows that."""

    def __init__(self, address: str, act: Act) -> None:
        super().__init__(RoutePattern(address, name=act.name, is_endpoint=True), _not_imported, {}, act.name)
        self._is_imported = False
        self._act = act
        self._view = f"{__package__}.{act.view}"
        self.lookup_str = self._view  # Django would ask the view for it

    def view(self) -> Any:
        """Return the view, imported."""
        if not self._is_imported:
            module, _, name = self._view.rpartition(".")
            view = getattr(import_module(module), name)
            if self._act.confirms:
                from .sign_in.recent_login import recent_login_required  # not imported by the start

                view = recent_login_required(view)
            self.callback = require_http_methods(self._act.methods)(view)
            self._is_imported = True
        return self.callback

    def resolve(self, path: str) -> ResolverMatch | None:
        if not self._is_imported and self.pattern.match(path):
            self.view()
        return super().resolve(path)


def _not_imported(*_arguments: Any) -> Any:
    raise AssertionError("views are called as `resolve` returns them")


def _arguments_last(act: Act) -> list[bool]:
    """Sort key: of addresses that fit both, the one with a word comes before the one with an argument in its place."""
    return [part.startswith("<") for part in (act.address or "").split("/")]


urlpatterns = [LatePage(act.address, act) for act in sorted(ACTS, key=_arguments_last) if act.address is not None]
