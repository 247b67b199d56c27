"""The OpenAPI document as served, and its page."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response


@cache
def served_document(renderer: Callable[[], BaseRenderer]) -> bytes:
    """The document in one renderer's format, made once per process: it takes seconds and is the same for everybody."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if "json" in (renderer().media_type or ""):
        return json.dumps(document, separators=(",", ":"), default=str).encode()  # indented it is twice as long
    rendered = renderer().render(document, renderer_context={})
    text = rendered if isinstance(rendered, bytes) else rendered.encode()
    if "json" not in str(getattr(renderer, "media_type", "")):
        return text
    # drf-spectacular indents it, which is more than half of what would be sent
    return json.dumps(json.loads(text), separators=(",", ":")).encode()


class SchemaView(SpectacularAPIView):
    """The whole document for everybody who is signed in, whatever they may see."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        document = served_document(type(renderer))  # type: ignore[arg-type]  # a class is hashable
        return HttpResponse(document, content_type=renderer.media_type)


class DocsView(SpectacularSwaggerSplitView):
    """The document as a page. Swagger UI brings <style> elements, which the pages' own policy refuses."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        response["Content-Security-Policy"] = settings.CONTENT_SECURITY_POLICY_STYLE
        return response

    def handle_exception(self, exc: Exception) -> HttpResponseBase:  # type: ignore[override]  # a redirect is no Response
        """A page asks its visitor to sign in, as every other page does."""
        if isinstance(exc, (NotAuthenticated, AuthenticationFailed)):
            return redirect_to_login(self.request.get_full_path())
        return super().handle_exception(exc)
