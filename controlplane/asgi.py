"""The ASGI application: pages, API, agent polls and live updates in one process."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

pages_and_api = get_asgi_application()
# Only now may modules that use Django's settings and models be imported.
from apps.fleet.agent_api.handler import AgentApiHandler, Split  # noqa: E402
from controlplane.loopback import LoopbackGuard  # noqa: E402

application = LoopbackGuard(Split(AgentApiHandler(), pages_and_api))
# A web server never runs `manage.py check`; a dangerous configuration must not start here either.
call_command("check")
