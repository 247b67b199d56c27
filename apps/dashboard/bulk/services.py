"""Bulk operations: what somebody is about to do, and its rows, one after the other, in turns of some seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.http import QueryDict
from django.utils import timezone

from apps.accounts.models import Role
from apps.accounts.services import log_activity
from apps.alerts.models import Alert
from apps.audits import selectors as audits
from apps.checkpoints.models import Checkpoint
from apps.core.dispatch import wake_owner
from apps.core.errors import ApplicationError, Conflict, Forbidden, InvalidInput
from apps.core.models import BulkItem, BulkOperation
from apps.core.slices import give_lease_back, is_due, is_mine, take_lease
from apps.core.transitions import record, transition
from apps.dashboard.bulk.verbs import Verb, find_verb
from apps.dashboard.lists.catalogue import LISTS
from apps.dashboard.lists.state import matching, plain
from apps.drills import selectors as drills
from apps.fleet.access import clusters_with
from apps.transfers import selectors as transfers

log = logging.getLogger(__name__)
OWNER_KIND = "bulkoperation"
MAX_ITEMS = 20_000
TYPED_ABOVE = 100
"""More rows than this are confirmed by typing how many they are."""
SLICE_SECONDS = 20.0
LOOK_AGAIN = timedelta(minutes=5)
UNFINISHED = (BulkOperation.State.QUEUED, BulkOperation.State.RUNNING)
NOT_ALLOWED = "Your role on its cluster does not allow this."


@dataclass(frozen=True)
class Chosen:
    """The rows that a verb is asked for: `allowed` may be acted on, `refused` are in sight only."""

    verb: Verb
    query: str
    allowed: list[Any]
    refused: list[Any]

    @property
    def count(self) -> int:
        return len(self.allowed) + len(self.refused)


def choose(request: Any, *, list_name: str, verb_name: str, ids: Sequence[str], query: str | None) -> Chosen:
    """The ticked rows `ids`, or with `query` (a list's query string, `""` for no filter) all that match.

    Raises InvalidInput where nothing matches, too much does, or there is no such verb; Forbidden where none of the rows
    may be acted on.
    """
    verb = find_verb(list_name, verb_name)
    spec = LISTS[list_name]
    if query is None:
        rows = spec.rows(request).filter(pk__in=list(ids)[: MAX_ITEMS + 1])
    else:
        rows = matching(spec, request, QueryDict(query))
    found = list(rows.order_by("pk")[: MAX_ITEMS + 1])
    if not found:
        raise InvalidInput("Nothing is ticked." if query is None and not ids else "Nothing matches any more.")
    if len(found) > MAX_ITEMS:
        raise InvalidInput(f"At most {MAX_ITEMS:,} rows go at once; narrow the list.")
    operable = clusters_with(request, Role.OPERATOR, {verb.cluster_of(row) for row in found})
    allowed = [row for row in found if verb.cluster_of(row) in operable]
    if not allowed:
        raise Forbidden("This needs the role operator on the cluster of the rows.")
    refused = [row for row in found if verb.cluster_of(row) not in operable]
    return Chosen(verb, plain(QueryDict(query)) if query is not None else "", allowed, refused)


@transaction.atomic
def start(*, chosen: Chosen, parameters: Mapping[str, Any], expected_count: int, actor: str) -> BulkOperation:
    """Begin it. `expected_count` is what its asker saw: raises Conflict where it is not so many any more."""
    verb, now = chosen.verb, timezone.now()
    if chosen.count != expected_count:
        told = f"{chosen.count:,} rows match now, not {expected_count:,}; look again before going on."
        raise Conflict(told, code="count_changed", pointer="/expected_count")
    given = _parameters(verb, parameters)
    operation = BulkOperation.objects.create(
        list_name=verb.list_name,
        verb=verb.name,
        parameters=given,
        query=chosen.query,
        actor=actor,
        total_count=chosen.count,
        refused_count=len(chosen.refused),
        created_at=now,
        next_attempt_at=now + LOOK_AGAIN,
    )
    items = [_item(operation, verb, row) for row in chosen.allowed]
    items += [_item(operation, verb, row, BulkItem.Outcome.REFUSED, NOT_ALLOWED) for row in chosen.refused]
    BulkItem.objects.bulk_create(items, batch_size=1000)
    record(OWNER_KIND, operation.pk, old="", new=operation.state, actor=actor)
    log_activity(
        actor=actor,
        action=f"bulk.{verb.name}",
        target_kind=verb.list_name,
        target_id=operation.pk,
        detail={"count": chosen.count, "query": chosen.query},
    )
    wake_owner(OWNER_KIND, operation.pk)
    return operation


def _item(operation: BulkOperation, verb: Verb, row: Any, outcome: str = "", detail: str = "") -> BulkItem:
    label = verb.label_of(row)[:200]
    return BulkItem(operation=operation, target_id=row.pk, label=label, outcome=outcome, detail=detail)


def _parameters(verb: Verb, given: Mapping[str, Any]) -> dict[str, str]:
    known = {field.name: field for field in verb.fields}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidInput(f"{verb.label} takes no {unknown[0]}.", pointer=f"/parameters/{unknown[0]}")
    values = {name: str(given.get(name, "")).strip() for name in known}
    for name, value in values.items():
        if not value or len(value) > known[name].max_length:
            told = f"{known[name].label}: give up to {known[name].max_length} characters."
            raise InvalidInput(told, pointer=f"/parameters/{name}")
    return values


@transaction.atomic
def cancel(*, operation: BulkOperation, actor: str) -> BulkOperation:
    """Rows that wait stay as they are; what was done is done. Raises Conflict for one that has finished."""
    operation.refresh_from_db()
    if not _end(operation, UNFINISHED, BulkOperation.State.CANCELLED, actor):
        raise Conflict(f"This has {operation.state} already; there is nothing to cancel.")
    log_activity(actor=actor, action="bulk.cancel", target_kind=operation.list_name, target_id=operation.pk)
    return operation


def _end(operation: BulkOperation, old: tuple[str, ...], new: str, actor: str = "") -> bool:
    """False when somebody else ended it first."""
    return transition(operation, old=old, new=new, actor=actor, finished_at=timezone.now(), next_attempt_at=None)


def due() -> list[str]:
    now = timezone.now()
    rows = BulkOperation.objects.filter(is_due(now, LOOK_AGAIN), state__in=UNFINISHED)
    return list(rows.values_list("pk", flat=True)[:100])


def advance(operation_id: str) -> None:
    """Some seconds of it; the next turn is woken where it is not done."""
    operation = BulkOperation.objects.filter(pk=operation_id, state__in=UNFINISHED).first()
    if operation is None or not take_lease(operation, state__in=UNFINISHED):
        return
    transition(operation, old=BulkOperation.State.QUEUED, new=BulkOperation.State.RUNNING)
    ends_at, more = time.monotonic() + SLICE_SECONDS, True
    try:
        while more and time.monotonic() < ends_at:
            more = is_mine(operation, state=BulkOperation.State.RUNNING) and _next_item(operation)
    finally:
        give_lease_back(operation, again=True)
    if more:
        wake_owner(OWNER_KIND, operation.pk)


def _next_item(operation: BulkOperation) -> bool:
    """False when none is left, and the operation has ended with it."""
    item = BulkItem.objects.filter(operation=operation, outcome="").order_by("pk").first()
    if item is None:
        _end(operation, (BulkOperation.State.RUNNING,), BulkOperation.State.FINISHED)
        return False
    outcome, detail = _do(operation, item)
    with transaction.atomic():
        waiting = BulkItem.objects.filter(pk=item.pk, outcome="")
        if waiting.update(outcome=outcome, detail=detail[:1000], done_at=timezone.now()):
            column = "done_count" if outcome == BulkItem.Outcome.DONE else "refused_count"
            BulkOperation.objects.filter(pk=operation.pk).update(**{column: F(column) + 1})
    return True


def _do(operation: BulkOperation, item: BulkItem) -> tuple[str, str]:
    """What became of one row. Every service here may be called twice: a worker that died after it repeats it."""
    verb = find_verb(operation.list_name, operation.verb)
    row = _rows(operation.list_name).filter(pk=item.target_id).first()
    if row is None:
        return BulkItem.Outcome.REFUSED, "It is not there any more."
    try:
        return BulkItem.Outcome.DONE, verb.act(row, operation.parameters, operation.actor)
    except ApplicationError as error:
        return BulkItem.Outcome.REFUSED, error.detail
    except Exception:
        log.exception("%s of %s failed", operation.verb, item.target_id)
        return BulkItem.Outcome.REFUSED, "Something went wrong here; the worker's log has it under this row's id."


def _rows(list_name: str) -> Any:
    """All rows of a list's kind: who may do what was decided when the operation was asked for."""
    return _MODELS[list_name].all()


_MODELS: dict[str, Any] = {
    "drills": drills.drills(),
    "audits": audits.audits(),
    "transfers": transfers.transfers(),
    "alerts": Alert.objects.select_related("cluster"),
    "checkpoints": Checkpoint.objects.select_related("run__cluster", "pin"),
}
