"""What every REST viewset has in common: rows scoped to visible clusters, and the role each action needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import mixins, viewsets

from apps.accounts.models import Role
from apps.core.etags import ConditionalMixin
from apps.fleet.access import require_role, scoped
from apps.fleet.models import Cluster


class ScopedViewSet(ConditionalMixin, viewsets.GenericViewSet[Any]):
    """Rows of clusters that the caller cannot see do not exist here.

    `cluster_path` is the lookup from a row to its cluster (`run__cluster`). `needs` names the role that an action needs
    on the row's cluster (default: viewer); check it with `authorize(cluster)` before calling a service.
    """

    cluster_path: ClassVar[str]
    needs: ClassVar[Mapping[str, Role]] = {}
    sort_fields: ClassVar[tuple[str, ...]] = ("-created_at",)

    def get_queryset(self) -> QuerySet[Any]:
        return scoped(self.request, super().get_queryset(), self.cluster_path)

    def authorize(self, cluster: Cluster | str | None) -> None:
        """Raise unless the caller has this action's role on `cluster` (None: everywhere)."""
        require_role(self.request, self.needs.get(self.action, Role.VIEWER), cluster)

    @property
    def actor(self) -> str:
        """The user's name for activity entries and `requested_by` columns."""
        return self.request.user.get_username()


class ReadViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ScopedViewSet):
    """Lists and single rows."""
