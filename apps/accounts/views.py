"""Sign-in, sign-out and one's own API tokens."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts import oidc, selectors, services, sessions
from apps.accounts.forms import SignInForm, TokenForm
from apps.accounts.models import Role


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    form = SignInForm(request, request.POST or None)
    if request.method == "POST" and form.is_valid() and form.user is not None:
        sessions.begin(request, form.user, how="password")
        return redirect(safe_target(request, request.POST.get("next") or request.GET.get("next") or ""))
    status = 400 if request.method == "POST" else 200
    provider = settings.OIDC_LABEL if oidc.is_configured() else ""
    context = {"form": form, "next": request.GET.get("next", ""), "provider": provider}
    return render(request, "accounts/sign_in.html", context, status=status)


def safe_target(request: HttpRequest, target: str) -> str:
    """`target` where it is a page of this server, else the first page."""
    if url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return target
    return resolve_url(settings.LOGIN_REDIRECT_URL)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    sessions.end(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def access(request: HttpRequest) -> HttpResponse:
    """One's own tokens (an admin: everybody's); a new token's secret is shown once, in the answer to its creation."""
    form = TokenForm(request.POST or None)
    secret = None
    if request.method == "POST" and form.is_valid():
        _token, secret = services.create_token(
            user=request.user,  # type: ignore[arg-type]
            name=form.cleaned_data["name"],
            role=Role(form.cleaned_data["role"]),
            days=form.cleaned_data["days"],
            actor=request.user.get_username(),
        )
    tokens = selectors.tokens_visible_to(request.user).order_by("-created_at")[:200]
    return render(request, "accounts/access.html", {"form": form, "tokens": tokens, "secret": secret})


@login_required
@require_POST
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    token = get_object_or_404(selectors.tokens_visible_to(request.user), pk=token_id)
    services.revoke_token(token=token, actor=request.user.get_username())
    messages.success(request, f"Token {token.name} is revoked.")
    return redirect("access")
