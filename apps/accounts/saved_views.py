"""Lists' queries that people keep under a name."""

from __future__ import annotations

import re

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.accounts.models import SavedView, User
from apps.accounts.services import log_activity
from apps.core.errors import Conflict, InvalidInput

MAX_VIEWS = 200
MAX_QUERY = 2000
_LIST_NAME = re.compile(r"[a-z-]{1,32}")


def visible_to(user: User, list_name: str = "") -> QuerySet[SavedView]:
    """One's own and the shared ones; of one list or of all."""
    rows = SavedView.objects.filter(Q(owner=user) | Q(shared=True)).select_related("owner")
    return rows.filter(list_name=list_name) if list_name else rows


@transaction.atomic
def save_view(*, owner: User, list_name: str, name: str, query: str, shared: bool) -> SavedView:
    """A new one, or the same name's new query. Raises InvalidInput, or Conflict for too many."""
    name = name.strip()
    if not name or len(name) > 100:
        raise InvalidInput("Give it a name of up to 100 characters.", pointer="/name")
    if len(query) > MAX_QUERY:
        raise InvalidInput(f"A view keeps at most {MAX_QUERY} characters of query.", pointer="/query")
    if not _LIST_NAME.fullmatch(list_name):
        raise InvalidInput("There is no such list.", pointer="/list")
    if SavedView.objects.filter(owner=owner).count() >= MAX_VIEWS:
        raise Conflict(f"You keep {MAX_VIEWS} views already; delete one first.")
    now = timezone.now()
    row, _created = SavedView.objects.update_or_create(
        owner=owner,
        list_name=list_name,
        name=name,
        defaults={"query": query, "shared": shared},
        create_defaults={"query": query, "shared": shared, "created_at": now},
    )
    _log(row, "save", owner.username)
    return row


@transaction.atomic
def delete_view(*, view: SavedView, actor: str) -> None:
    _log(view, "delete", actor)
    SavedView.objects.filter(pk=view.pk).delete()


def _log(view: SavedView, verb: str, actor: str) -> None:
    log_activity(
        actor=actor,
        action=f"view.{verb}",
        target_kind="view",
        target_id=view.pk,
        detail={"list": view.list_name, "name": view.name, "shared": view.shared},
    )
