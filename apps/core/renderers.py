"""Answers in other shapes than one JSON value."""

from __future__ import annotations

from rest_framework.renderers import JSONRenderer


class JSONLinesRenderer(JSONRenderer):
    """One JSON value a line. What is sent so is streamed by its view; errors leave as problem documents."""

    media_type = "application/x-ndjson"
    format = "ndjson"
