"""Addresses of the operations, below /api/v1/. Imported when the first of them is used; see `lazy`."""

from .api import api

app_name = "api"
# Without ninja's root view, which would only answer that there is nothing.
urlpatterns = [pattern for pattern in api.urls[0] if pattern.name != "api-root"]
