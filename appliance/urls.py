"""Every address the console answers to."""

from django.urls import path

from .console.views import health, metrics, start, style

urlpatterns = [
    path("", start.start_page, name="start"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("static/console.css", style.console_css, name="console_css"),
]
