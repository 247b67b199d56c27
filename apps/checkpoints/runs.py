"""Training runs: found by name, made when first seen, and given their objectives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict, InvalidInput, NotFound
from apps.fleet.access import scoped
from apps.fleet.models import Cluster

MAX_NAME_CHARACTERS = 255
_OBJECTIVES = ("rto_objective_seconds", "rpo_objective_seconds")
_CHANGEABLE = frozenset({*_OBJECTIVES, "gpu_count", "required_trust", "archived", "frozen_tensors"})
_MAX_GPU_COUNT = 2**31 - 1


def get_or_create_run(*, cluster: Cluster, name: str) -> TrainingRun:
    """The run of this name on the cluster, made if it was not known. Raises InvalidInput for a name that is none."""
    if not is_name(name):
        raise InvalidInput(f"A run's name has 1 to {MAX_NAME_CHARACTERS} characters and no control characters.")
    return ensure_runs(cluster, [name])[name]


@transaction.atomic
def ensure_runs(cluster: Cluster, names: Iterable[str]) -> dict[str, TrainingRun]:
    """Runs by name; those not known yet are made. Two that race make one."""
    wanted = set(names)
    known = _by_name(cluster, wanted)
    fresh = wanted - known.keys()
    if not fresh:
        return known
    now = timezone.now()
    TrainingRun.objects.bulk_create(
        [TrainingRun(cluster=cluster, name=name, created_at=now) for name in sorted(fresh)], ignore_conflicts=True
    )
    return _by_name(cluster, wanted)


def _by_name(cluster: Cluster, names: set[str]) -> dict[str, TrainingRun]:
    return {run.name: run for run in TrainingRun.objects.filter(cluster=cluster, name__in=names)}


def is_name(name: str) -> bool:
    """Whether a run may be called this."""
    return 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable()


def find_run(request: Any, name_or_id: str) -> TrainingRun:
    """The run with this id or name among those that the caller may see. Raises NotFound, and Conflict for a name that
    several visible clusters have: then `cluster/name` or the id tells them apart."""
    runs = scoped(request, TrainingRun.objects.select_related("cluster"), "cluster")
    if "\0" in name_or_id:
        runs = runs.none()  # no database can even look for it
    by_id = runs.filter(pk=name_or_id).first()
    if by_id is not None:
        return by_id
    found = list(runs.filter(name=name_or_id).order_by("cluster__name")[:10])
    if not found and "/" in name_or_id:
        cluster, _, name = name_or_id.partition("/")
        found = list(runs.filter(cluster__name=cluster, name=name))
    if not found:
        raise NotFound(f"There is no training run {name_or_id!r} that you may see; scan the tier it saves to.")
    if len(found) > 1:
        places = ", ".join(f"{run.cluster.name} ({run.pk})" for run in found)
        raise Conflict(f"Several clusters have a run {name_or_id!r}: {places}. Use the id.")
    return found[0]


@transaction.atomic
def update_run(*, run: TrainingRun, actor: str, **changes: Any) -> TrainingRun:
    """Set objectives (seconds, or None for none), the GPU count, `archived`, or patterns of frozen tensors. Raises
    InvalidInput."""
    unknown = changes.keys() - _CHANGEABLE
    if unknown:
        raise InvalidInput(f"A run has no changeable field {sorted(unknown)[0]!r}.", pointer=f"/{sorted(unknown)[0]}")
    _check(changes)
    values = dict(changes)
    if "archived" in values:
        values["archived_at"] = (run.archived_at or timezone.now()) if values.pop("archived") else None
    for field, value in values.items():
        setattr(run, field, value)
    run.save(update_fields=list(values))
    log_activity(
        actor=actor, action="run.update", target_kind="run", target_id=run.pk, cluster_id=run.cluster_id, detail=changes
    )
    return run


def _check(changes: dict[str, Any]) -> None:
    for field in _OBJECTIVES:
        value = changes.get(field)
        if value is not None and not (math.isfinite(value) and 0 < value <= 10 * 365 * 86400):
            raise InvalidInput("Use seconds above 0 and at most ten years, or null for none.", pointer=f"/{field}")
    frozen = changes.get("frozen_tensors", [])
    if not all(isinstance(one, str) and 0 < len(one) <= 200 for one in frozen) or len(frozen) > 50:
        raise InvalidInput("Give at most 50 patterns of tensor names, such as visual.*.", pointer="/frozen_tensors")
    gpu_count = changes.get("gpu_count")
    if gpu_count is not None and not 0 < gpu_count <= _MAX_GPU_COUNT:
        raise InvalidInput("Use a whole number of at least 1, or null.", pointer="/gpu_count")
    if changes.get("required_trust", TrainingRun.RequiredTrust.COMPLETE) not in TrainingRun.RequiredTrust.values:
        raise InvalidInput("A launch script requires complete, sealed or verified.", pointer="/required_trust")
