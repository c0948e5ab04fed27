"""All addresses of the console, the API and the name server's address list."""

from django.urls import include, path

from .api import documents, nsaddr
from .api.lazy import LazyResolver

urlpatterns = [
    path("api/v1/openapi.json", documents.openapi_json, name="openapi"),
    path("api/v1/docs", documents.docs, name="api_docs"),
    LazyResolver("api/v1/", "appliance.api.urls", "api"),
    path("rocketmq/nsaddr", nsaddr.nsaddr, name="nsaddr"),
    path("rocketmq/nsaddr-<str:unit>", nsaddr.nsaddr, name="nsaddr_unit"),
    path("", include("appliance.console.urls")),
]

handler400 = "appliance.console.pages.errors.bad_request"
handler404 = "appliance.console.pages.errors.not_found"
handler500 = "appliance.console.pages.errors.server_error"
