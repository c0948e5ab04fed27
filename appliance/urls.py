"""Every address this server answers to."""

from django.urls import include, path

urlpatterns = [
    path("", include("appliance.console.urls")),
]

handler400 = "appliance.console.views.errors.bad_request"
handler404 = "appliance.console.views.errors.not_found"
handler500 = "appliance.console.views.errors.server_error"
