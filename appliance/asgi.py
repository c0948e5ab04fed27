"""The ASGI application, loaded in the process in which the engine runs."""

import logging
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

# A stranger's Host header is answered with 400; a stack trace for each would be theirs to fill our log with.
logging.getLogger("django.security.DisallowedHost").addHandler(logging.NullHandler())
logging.getLogger("django.security.DisallowedHost").propagate = False

application = get_asgi_application()
