"""What monitors ask: Prometheus for numbers, probes whether this process works and whether all of Muster watches."""

from __future__ import annotations

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.alerts import metrics as alerts
from apps.alerts import own_health
from apps.audits import metrics as audits
from apps.checkpoints import metrics as checkpoints
from apps.core import heartbeats
from apps.core.metrics import exposition
from apps.drills import metrics as drills
from apps.fleet import metrics as fleet
from apps.fleet.access import require_role
from apps.recovery import metrics as recovery
from apps.transfers import metrics as transfers

SOURCES = tuple(app.families for app in (fleet, checkpoints, transfers, audits, drills, recovery, alerts))
_TEXT = "text/plain; charset=utf-8"


class MetricsView(APIView):
    """`/metrics`, for a token whose viewer role holds on every cluster."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        require_role(request, Role.VIEWER)
        return HttpResponse(exposition(SOURCES), content_type=CONTENT_TYPE_LATEST)


def is_up(_request: HttpRequest) -> HttpResponse:
    """For probes, without sign-in: this process answers and reaches its database."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error:
        return HttpResponse("the database does not answer\n", status=503, content_type=_TEXT)
    return HttpResponse("ok\n", content_type=_TEXT)


def is_watching(_request: HttpRequest) -> HttpResponse:
    """For uptime monitors, without sign-in: 503 while any part of Muster stands still."""
    try:
        still = own_health.standing_still(heartbeats.last_beats())
    except Error:
        return HttpResponse("the database does not answer\n", status=503, content_type=_TEXT)
    if still:
        return HttpResponse("not watching\n", status=503, content_type=_TEXT)
    return HttpResponse("watching\n", content_type=_TEXT)
