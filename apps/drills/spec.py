"""What a user may ask of a drill: every field checked, with a sentence that names it and says what would do."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from apps.checkpoints.models import TrainingRun
from apps.core.errors import InvalidInput
from apps.drills.herd import ladder_problem
from apps.drills.models import CheckpointChoice, DrillKind, DrillSpec, Fault, ReadMapping
from apps.storage.models import StorageTier

SPEC_FIELDS = tuple(field.name for field in DrillSpec._meta.get_fields())
BACKENDS = ("auto", "gds", "host_bounce", "host_direct", "host_buffered")
RUNNERS = ("auto", "gdsio", "elbencho", "fio", "builtin")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGABRT", "SIGSEGV", "SIGINT", "SIGHUP", "SIGBUS")
MAX_SEED = 2**63 - 1
_LIMITS: dict[str, tuple[float, float]] = {
    "step": (0, 2**62),
    "window_days": (1, 3650),
    "node_count": (1, 16_384),
    "worker_rank": (0, 2**31 - 1),
    "max_bytes_per_second": (1_000_000, 10**15),
    "objective_seconds": (0.001, 30 * 86_400),
    "deadline_seconds": (5, 86_400),
    "repeats": (1, 20),
    "runner_seconds": (1, 600),
    "abort_stall_seconds": (10, 86_400),
    "abort_slowdown_ratio": (1.01, 1000),
    "seed": (0, MAX_SEED),
}
_FRACTIONS = ("objective_seconds", "abort_slowdown_ratio")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,3})?")


def checked(run: TrainingRun, spec: Mapping[str, Any]) -> dict[str, Any]:
    """`spec` as column values of a `DrillSpec`, with its tier as a row. Raises InvalidInput that names the field."""
    values = {name: value for name, value in spec.items() if value is not None}
    for name in values:
        if name not in (*SPEC_FIELDS, "seed"):
            known = ", ".join((*SPEC_FIELDS, "seed"))
            raise InvalidInput(f"There is no drill setting {name!r}; known are {known}.", pointer=f"/{name}")
    _one_of(values, "kind", tuple(DrillKind.values), required=True)
    _one_of(values, "choice", tuple(CheckpointChoice.values))
    _one_of(values, "backend", BACKENDS)
    _one_of(values, "signal_name", SIGNALS)
    _one_of(values, "runner", RUNNERS)
    _one_of(values, "mapping", tuple(ReadMapping.values))
    _one_of(values, "fault", tuple(Fault.values))
    _text(values, "worker_node", 253)
    _text(values, "link", 64)
    for name in _LIMITS:
        _within(values, name)
    _check_together(values)
    if "tier" in values:
        values["tier"] = _tier(run, values["tier"])
    return values


def new_seed() -> int:
    return secrets.randbits(32)


def _one_of(values: Mapping[str, Any], name: str, allowed: tuple[str, ...], *, required: bool = False) -> None:
    if name not in values and not required:
        return
    if values.get(name) not in allowed:
        raise InvalidInput(f"{name} is one of {', '.join(allowed)}.", pointer=f"/{name}")


def _within(values: Mapping[str, Any], name: str) -> None:
    value = values.get(name)
    if value is None:
        return
    low, high = _LIMITS[name]
    whole = name not in _FRACTIONS
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not low <= value <= high:
        number = "a whole number" if whole else "a number"
        raise InvalidInput(f"{name} is {number} from {low:g} to {high:g}.", pointer=f"/{name}")


def _text(values: Mapping[str, Any], name: str, longest: int) -> None:
    value = values.get(name, "")
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise InvalidInput(f"{name} is a text of at most {longest} characters.", pointer=f"/{name}")


def _check_together(values: Mapping[str, Any]) -> None:
    choice, kind = values.get("choice"), values["kind"]
    if (values.get("fault") == Fault.LINK) != bool(values.get("link")):
        raise InvalidInput("Name the link for the fault link, and for no other.", pointer="/link")
    if choice == CheckpointChoice.NAMED and "step" not in values:
        raise InvalidInput("Name the checkpoint's step, or choose latest_verified.", pointer="/step")
    if "step" in values and choice != CheckpointChoice.NAMED:
        raise InvalidInput("A step is only read with the choice named.", pointer="/step")
    ladder = values.get("ladder") or []
    problem = ladder_problem(ladder) if isinstance(ladder, list) else "Give a list of counts, such as [1, 2, 4]."
    if problem:
        raise InvalidInput(problem, pointer="/ladder")
    if ladder and kind != DrillKind.HERD:
        raise InvalidInput("Only a herd drill has a ladder; a reload takes node_count.", pointer="/ladder")
    if (kind == DrillKind.LOADER_COMPARE) != bool(values.get("loader")):
        raise InvalidInput(
            "Name the loader of a loader_compare, as a node's config.json does; no other kind has one.",
            pointer="/loader",
        )
    if not isinstance(values.get("loader", ""), str) or len(values.get("loader", "")) > 64:
        raise InvalidInput("loader is a text of at most 64 characters.", pointer="/loader")
    if not _DEVICE.fullmatch(str(values.get("device", "auto"))):
        raise InvalidInput("device is auto, cpu, cuda or cuda:N.", pointer="/device")
    if values.get("every_tier") and values.get("tier"):
        raise InvalidInput("Give either one tier or every_tier, not both.", pointer="/every_tier")
    if ladder and values.get("node_count"):
        raise InvalidInput("Give either a ladder or node_count, not both.", pointer="/node_count")


def _tier(run: TrainingRun, tier: Any) -> StorageTier:
    key = tier.pk if isinstance(tier, StorageTier) else tier
    found = StorageTier.objects.filter(pk=key, cluster_id=run.cluster_id).first() if isinstance(key, str) else None
    if found is None:
        raise InvalidInput("There is no such storage tier in this run's cluster.", pointer="/tier")
    return found
