"""Scope and role on clusters: the only place where grants are read.

Rows of clusters that a user cannot see do not exist for them (404, no counts); a role that is too low is 403.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db.models import Exists, Model, OuterRef, QuerySet

from apps.accounts.access import capped, global_role, reaches, require
from apps.accounts.models import RANK, ApiToken, Role
from apps.fleet.models import Cluster, ClusterGrant

Row = TypeVar("Row", bound=Model)


def _token_of(request: Any) -> ApiToken | None:
    token = getattr(request, "auth", None)
    return token if isinstance(token, ApiToken) else None


def visible_clusters(request: Any) -> QuerySet[Cluster]:
    """The clusters that this request's user may at least view."""
    token = _token_of(request)
    if reaches(global_role(request.user, token), Role.VIEWER):
        return Cluster.objects.all()
    if not request.user.is_authenticated or capped(Role.ADMIN, token) == Role.NONE:
        return Cluster.objects.none()
    return Cluster.objects.filter(grants__user=request.user, grants__role__in=[Role.VIEWER, Role.OPERATOR, Role.ADMIN])


def role_on(request: Any, cluster: Cluster | str) -> Role:
    """The higher of the global role and the grant on `cluster`, cut to the token's."""
    token = _token_of(request)
    everywhere = global_role(request.user, token)
    if everywhere == Role.ADMIN or not request.user.is_authenticated:
        return everywhere
    cluster_id = cluster if isinstance(cluster, str) else cluster.pk
    grant = ClusterGrant.objects.filter(user=request.user, cluster_id=cluster_id).first()
    granted = capped(Role(grant.role), token) if grant else Role.NONE
    return max(everywhere, granted, key=lambda role: RANK[role])


def clusters_with(request: Any, needed: Role, cluster_ids: Iterable[str]) -> set[str]:
    """Of these clusters, the ones on which the user has `needed`; one query at most."""
    wanted, token = set(cluster_ids), _token_of(request)
    if reaches(global_role(request.user, token), needed):
        return wanted
    if not request.user.is_authenticated or not wanted:
        return set()
    grants = ClusterGrant.objects.filter(user=request.user, cluster__in=wanted)
    return {grant.cluster_id for grant in grants if reaches(capped(Role(grant.role), token), needed)}


def granted(request: Any, needed: Role, cluster_path: str) -> Exists:
    """An annotation: whether the user's grant on a row's cluster (`cluster_path` leads to its id) reaches `needed`.

    The role that holds everywhere is not in it; ask `global_role` for that.
    """
    enough = [role for role in Role if role != Role.NONE and reaches(capped(role, _token_of(request)), needed)]
    grants = ClusterGrant.objects.filter(user=request.user, cluster=OuterRef(cluster_path), role__in=enough)
    return Exists(grants)


def require_role(request: Any, needed: Role, cluster: Cluster | str | None = None) -> None:
    """Raise `Forbidden` (or `NotSignedIn`) unless the user has `needed` on `cluster`, or everywhere when it is None."""
    role = global_role(request.user, _token_of(request)) if cluster is None else role_on(request, cluster)
    require(role, needed, signed_in=request.user.is_authenticated)


def scoped(request: Any, rows: QuerySet[Row], path: str) -> QuerySet[Row]:
    """`rows` whose cluster (reached by the lookup `path`, such as `run__cluster`) this user may view."""
    if reaches(global_role(request.user, _token_of(request)), Role.VIEWER):
        return rows
    return rows.filter(**{f"{path}__in": visible_clusters(request)})
