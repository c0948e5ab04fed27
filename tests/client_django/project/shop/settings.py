"""SHOP_DATABASE: JSON of the database; SHOP_DEBUG: anything for DEBUG. The name server is in NAMESRV_ADDR."""

import json
import os

SECRET_KEY = "of tests only"
DEBUG = bool(os.environ.get("SHOP_DEBUG"))
INSTALLED_APPS = ["appliance.client_django", "shop"]
DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
ROCKETBOX = {"CLIENT": {"timeout": 30.0}, "PRODUCER": {"group": "shop"}}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"rocketbox": {"handlers": ["stderr"], "level": "INFO"}},
}
