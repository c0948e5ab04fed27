"""Django's settings. Everything that depends on this installation comes from `runtime.place()`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from . import runtime
from .console.serving.secret_key import secret_key

_PLACE = runtime.place()
_PACKAGE = Path(__file__).resolve().parent


def _beside(name: str) -> Path:
    """Return a directory of the work tree, or of the package when that was installed from a wheel."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


DEBUG = False
SECRET_KEY = secret_key(_PLACE.directory)

ALLOWED_HOSTS = _PLACE.allowed_hosts()
ROOT_URLCONF = "appliance.urls"
ASGI_APPLICATION = "appliance.asgi.application"

INSTALLED_APPS = ["django.contrib.sessions", "appliance.console"]

# The last one can only run in a thread, so all run in one: a request changes threads once.
MIDDLEWARE = [
    "appliance.console.middleware.Outermost",
    "django.middleware.security.SecurityMiddleware",
    "appliance.console.middleware.Sessions",
    "appliance.console.middleware.Identity",
    "appliance.console.middleware.Language",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "appliance.console.middleware.Access",
]

TEMPLATES_DIR = _beside("templates")
STATIC_DIR = _beside("static")
TEMPLATES = [
    {
        "BACKEND": "appliance.console.pages.template_backend.Templates",
        "NAME": "django",
        "DIRS": [TEMPLATES_DIR],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.messages.context_processors.messages",
                "appliance.console.pages.context.console",
            ],
            "builtins": [
                "django.templatetags.i18n",
                "appliance.console.pages.template_tags",
                "appliance.console.templatetags.pages",
                "appliance.console.templatetags.lists",
            ],
            "loaders": [("django.template.loaders.cached.Loader", ["django.template.loaders.filesystem.Loader"])],
        },
    }
]

# For the console itself: users, tokens, the audit log. No message is ever written to it.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _PLACE.directory / "console.sqlite3",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 5,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "console.User"
# 16 MiB and about a tenth of a second for each try, without holding the GIL.
PASSWORD_HASHERS = ["appliance.console.sign_in.password_hasher.PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"

# Behind a proxy its address gives the path that all links begin with, and decides if cookies may travel without TLS.
_PUBLIC = urlsplit(_PLACE.public_url or "")
FORCE_SCRIPT_NAME = _PLACE.base_path or None
CSRF_TRUSTED_ORIGINS = [f"{_PUBLIC.scheme}://{_PUBLIC.netloc}"] if _PLACE.public_url else []
_COOKIE_PATH = _PLACE.base_path + "/"
_SECURE = _PUBLIC.scheme == "https"

# Own names, since cookies do not distinguish ports, and other programs on this host may use Django, too.
SESSION_COOKIE_NAME = "rocketbox_session"
SESSION_COOKIE_AGE = 12 * 3600  # of silence; `Identity` renews it
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = _SECURE
SESSION_COOKIE_PATH = _COOKIE_PATH
CSRF_COOKIE_NAME = "rocketbox_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = _SECURE
CSRF_COOKIE_PATH = _COOKIE_PATH
CSRF_FAILURE_VIEW = "appliance.console.pages.errors.csrf_failure"
LANGUAGE_COOKIE_NAME = "rocketbox_language"
LANGUAGE_COOKIE_AGE = 365 * 86_400
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_PATH = _COOKIE_PATH
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

USE_I18N = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [_PACKAGE / "console" / "locale"]
USE_THOUSAND_SEPARATOR = False
USE_TZ = True


class _NotTheProcesses(str):
    """A name that is false in `if`, since Django makes a true one the zone of the whole process: `TZ` and tzset(). The
    engine's figures of the day and `deleteWhen` are in the machine's zone."""

    def __bool__(self) -> bool:
        return False


TIME_ZONE = _NotTheProcesses("UTC")

X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True

# The size of a body is limited by its address, before Django sees it (`request_bodies`). Bodies stay in memory, files
# of forms, too: no upload handler writes any to the disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024 * 1024
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]

# main.py configures logging; Django would add its own handlers.
LOGGING_CONFIG = None
