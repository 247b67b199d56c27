"""Strong ETags on what the API gives, 304 for who has it already, and If-Match before what changes."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, cast

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.errors import PreconditionFailed, PreconditionRequired
from apps.core.middleware import _Middleware

API = "/api/v1/"
ANYTHING = "*"
EDITABLE = ("PATCH", "PUT", "DELETE")


def etag_of(content: bytes) -> str:
    """The strong ETag of one representation."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


class EtagMiddleware(_Middleware):
    """Every JSON answer to a GET below `/api/v1/` has an ETag; `If-None-Match` with it gives 304 and no body."""

    def after(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if not _has_etag(request, response):
            return response
        etag = etag_of(response.content)
        response["ETag"] = etag
        response.setdefault("Cache-Control", "private, no-cache")
        patch_vary_headers(response, ["Authorization", "Cookie", "Accept"])
        if request.method in ("GET", "HEAD") and etag in _given(request.headers.get("If-None-Match", "")):
            return _not_modified(response)
        return response


def _has_etag(request: HttpRequest, response: HttpResponse) -> bool:
    looks = request.method in ("GET", "HEAD") or getattr(response, "shows_resource", False)
    good = response.status_code == 200 and not response.streaming
    return looks and good and request.path.startswith(API) and "ETag" not in response


def _given(header: str) -> list[str]:
    """Weak ones count too: a proxy that compresses weakens them."""
    return [one.removeprefix("W/") for one in parse_etags(header)]


def _not_modified(response: HttpResponse) -> HttpResponse:
    found = HttpResponse(status=304)
    for name in ("ETag", "Cache-Control", "Vary", "Date", "Last-Modified"):
        if name in response:
            found[name] = response[name]
    return found


class ConditionalMixin:
    """A change by one of the `guarded` methods has to say in `If-Match` which state it is about: the ETag of the GET,
    or `*` for whatever it is now. 428 without, 412 where it has changed; check and change are one transaction. What
    must always work, such as revoking a token, is not guarded."""

    guarded: ClassVar[tuple[str, ...]] = ()

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        dispatch = super().dispatch  # type: ignore[misc]
        if request.method not in self.guarded:
            return cast(HttpResponse, dispatch(request, *args, **kwargs))
        with transaction.atomic():
            response = cast(HttpResponse, dispatch(request, *args, **kwargs))
            if response.status_code >= 400:
                transaction.set_rollback(True)
        response.shows_resource = True  # type: ignore[attr-defined]
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        if request.method in self.guarded and hasattr(self, str(request.method).lower()):
            self._check(request, *args, **kwargs)

    def _check(self, request: Request, *args: Any, **kwargs: Any) -> None:
        given = request.headers.get("If-Match", "").strip()
        if not given:
            raise PreconditionRequired("Send If-Match with the ETag of what you changed, or * to change it as it is.")
        if given == ANYTHING:
            return
        self.lock(request)
        if self._current(request, *args, **kwargs) not in parse_etags(given):
            raise PreconditionFailed("It has changed since you read it: read it again, and repeat what you wanted.")

    def lock(self, request: Request) -> None:
        """Hold the row until the change is done: an update that changes nothing does it on every database."""
        row = self.get_object()  # type: ignore[attr-defined]
        type(row)._base_manager.filter(pk=row.pk).update(**{row._meta.pk.attname: row.pk})

    def _current(self, request: Request, *args: Any, **kwargs: Any) -> str:
        view: Any = self
        action, view.action = getattr(view, "action", None), "retrieve"
        try:
            response = self.shown(request, *args, **kwargs)
        finally:
            view.action = action
        return etag_of(JSONRenderer().render(response.data))

    def shown(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """What a GET of this address gives."""
        return cast(Response, self.retrieve(request, *args, **kwargs))  # type: ignore[attr-defined]
