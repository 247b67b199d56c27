from __future__ import annotations

from django.urls import path

from apps.accounts import views

urlpatterns = [
    path("sign-in/", views.sign_in, name="sign-in"),
    path("sign-out/", views.sign_out, name="sign-out"),
    path("access/", views.access, name="access"),
    path("access/tokens/<str:token_id>/revoke/", views.revoke, name="token-revoke"),
]
