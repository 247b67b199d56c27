"""To the OpenID Connect provider and back."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.accounts import oidc, sessions
from apps.accounts.views import safe_target
from apps.core.errors import ApplicationError

NEXT = "oidc_next"
BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    if not oidc.is_configured():
        raise Http404("No sign-in provider is set up.")
    request.session[NEXT] = request.GET.get("next", "")
    try:
        return oidc.redirect_to_provider(request, request.build_absolute_uri(reverse("oidc-callback")))
    except ApplicationError as error:
        return _refused(request, error)


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    if not oidc.is_configured():
        raise Http404("No sign-in provider is set up.")
    try:
        user = oidc.account_of(oidc.person_from_callback(request))
    except ApplicationError as error:
        return _refused(request, error)
    target = request.session.pop(NEXT, "")
    sessions.begin(request, user, how="provider", backend=BACKEND)
    return redirect(safe_target(request, target))


def _refused(request: HttpRequest, error: ApplicationError) -> HttpResponse:
    return render(request, "accounts/oidc_refused.html", {"detail": error.detail}, status=error.status)
