"""The Readiness rows with what the page adds: links, bars and who may drill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from apps.accounts.access import global_role, reaches
from apps.accounts.models import Role
from apps.dashboard.bars import Bar, bar
from apps.dashboard.standing import Button, Part, button, linked
from apps.drills.models import Drill
from apps.fleet.access import granted, scoped
from apps.recovery import readiness
from apps.recovery.evidence import evidence_of
from apps.recovery.readiness import MAX_RUNS, ReadinessRow
from apps.recovery.verdict import newest_skipped


@dataclass(frozen=True)
class Row:
    """One run on the page; `judged` is what the API gives too. `skipped_step` is newer than the answer. `button` is the
    next action for who may do it."""

    judged: ReadinessRow
    sentence: tuple[Part, ...]
    bar: Bar | None
    can_drill: bool
    skipped_step: int | None
    button: Button | None

    @property
    def run(self) -> Any:
        return self.judged.run


def runs(request: Any) -> QuerySet[Any]:
    """Visible runs to judge, with `is_drilling` and whether this user `may_drill` them."""
    at_work = Drill.objects.filter(run=OuterRef("pk")).exclude(state=Drill.State.FINISHED)
    rows = readiness.runs_to_judge().annotate(
        is_drilling=Exists(at_work), may_drill=granted(request, Role.OPERATOR, "cluster_id")
    )
    return scoped(request, rows, "cluster")


def rows(request: Any) -> tuple[list[Row], int]:
    """The worst first, and how many runs there are in all; the 200 newest are judged."""
    visible = runs(request).filter(archived_at=None)
    found = list(visible.order_by("-created_at")[: MAX_RUNS + 1])
    total = len(found) if len(found) <= MAX_RUNS else visible.count()
    judged = readiness.rows_of(found[:MAX_RUNS])
    return [_shown(request, row) for row in judged], total


def of_run(request: Any, run: Any, drills: Sequence[Drill], copies: Sequence[Any]) -> Row:
    """The same for one run of `runs`, with its newest drills and copies at hand."""
    judged = readiness.rows_of([run], drills_at_hand=drills, copies_at_hand=copies)
    return _shown(request, judged[0])


def _shown(request: Any, row: ReadinessRow) -> Row:
    run: Any = row.run
    drill = row.drill
    skipped = newest_skipped(row.decision)
    may_operate = run.may_drill or reaches(global_role(request.user), Role.OPERATOR)
    return Row(
        judged=row,
        sentence=linked(row.parts, partial(evidence_of, row)),
        bar=bar(drill.phases, drill.seconds, drill.objective_seconds) if drill else None,
        can_drill=may_operate,
        skipped_step=skipped.step if skipped else None,
        button=_button(row, may_operate),
    )


def _button(row: ReadinessRow, may_operate: bool) -> Button | None:
    if row.next_action is None:
        return None
    copy = row.placement
    return button(
        row.next_action,
        run=row.run.pk,
        drill=row.drill.pk if row.drill else "",
        checkpoint=copy.checkpoint_id if copy else "",
        placement=copy.pk if copy else "",
        may_operate=may_operate,
    )
