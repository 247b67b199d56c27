from __future__ import annotations

from django.urls import path

from apps.accounts import oidc_views, views

urlpatterns = [
    path("sign-in/", views.sign_in, name="sign-in"),
    path("sign-in/oidc/", oidc_views.begin, name="oidc-begin"),
    path("sign-in/oidc/callback/", oidc_views.callback, name="oidc-callback"),
    path("sign-out/", views.sign_out, name="sign-out"),
    path("access/", views.access, name="access"),
    path("access/tokens/<str:token_id>/revoke/", views.revoke, name="token-revoke"),
]
