"""The WSGI application, for management tools only: agent polls and live updates need ASGI."""

from __future__ import annotations

import os

from django.core.management import call_command
from django.core.wsgi import get_wsgi_application

from controlplane.loopback import wsgi_guard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

application = wsgi_guard(get_wsgi_application())
call_command("check")
