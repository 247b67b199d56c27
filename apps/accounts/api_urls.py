from __future__ import annotations

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.accounts import api

router = SimpleRouter()
router.register("tokens", api.TokenViewSet, "api-token")
router.register("users", api.UserViewSet, "api-user")
router.register("activity", api.ActivityViewSet, "api-activity")

urlpatterns = [path("whoami/", api.WhoAmIView.as_view(), name="api-whoami"), *router.urls]
