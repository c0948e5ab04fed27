"""Django's settings: pages that read the running engine, and nothing else yet (no database, no sessions, no users)."""

from __future__ import annotations

import secrets

from . import runtime

DEBUG = False

# Nothing is signed and outlives the process yet, so each start may draw a new key.
SECRET_KEY = secrets.token_urlsafe(50)

ALLOWED_HOSTS = runtime.allowed_hosts()

ROOT_URLCONF = "appliance.urls"
ASGI_APPLICATION = "appliance.asgi.application"

INSTALLED_APPS = ["appliance.console"]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "appliance.console.middleware.ContentSecurityPolicy",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": []},
    }
]

DATABASES: dict[str, dict[str, object]] = {}

USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True

# main.py owns logging; Django's own configuration would add handlers of its own.
LOGGING_CONFIG = None
