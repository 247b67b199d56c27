"""What a drill is called: `Herd reload of step 12,400 on nvme`."""

from __future__ import annotations

from apps.drills.models import Drill, DrillKind

_VERBS = {
    DrillKind.RELOAD: "Reload",
    DrillKind.HERD: "Herd reload",
    DrillKind.BANDWIDTH: "Bandwidth by reading",
    DrillKind.LOADER_COMPARE: "Loader comparison",
}


def title_of(drill: Drill) -> str:
    if not drill.is_storage_only:
        return f"{drill.get_kind_display()} of {drill.run.name}"
    verb = _VERBS[DrillKind(drill.kind)]
    of = "" if drill.kind == DrillKind.BANDWIDTH else " of"
    what = f"{of} step {drill.checkpoint_step:,}" if drill.checkpoint_step is not None else f"{of} {drill.run.name}"
    where = f" on {drill.placement.tier.name}" if drill.placement else ""
    return verb + what + where
