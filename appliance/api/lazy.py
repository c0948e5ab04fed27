"""Imports the API when it is first used. It takes 22 MB and half a second, which a start must not cost: Django would
import it for the first link of the first page. `asgi` imports it for the first call."""

from __future__ import annotations

from django.urls import URLResolver
from django.urls.resolvers import RoutePattern


class LazyResolver(URLResolver):
    """Addresses below a prefix, from a module that is imported when one is asked for or reversed by name."""

    def __init__(self, prefix: str, module: str, namespace: str) -> None:
        super().__init__(RoutePattern(prefix), module, app_name=namespace, namespace=namespace)

    def _populate(self) -> None:
        """Nothing: names in a namespace are found through `url_patterns`, and only when they are looked for."""
