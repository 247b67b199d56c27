"""What changed on storage, what is wrong, and who did what."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from apps.accounts.models import ActivityEntry, Role
from apps.alerts.models import Alert, Severity
from apps.checkpoints.models import ScanChange
from apps.dashboard.lists.spec import ListSpec, Sort, by_field, by_id, by_text
from apps.fleet.access import require_role, scoped

CHANGES = ListSpec(
    name="changes",
    noun="change",
    plural="changes",
    rows=lambda request: scoped(
        request,
        ScanChange.objects.select_related("scan__tier__cluster", "placement__checkpoint__run"),
        "scan__tier__cluster",
    ),
    sorts=(Sort("newest", "newest", "-id"), Sort("oldest", "oldest", "id")),
    choices=(by_field("kind", "Change", ScanChange.Kind.choices),),
    search_for="Path or run name",
    search=by_text("placement__path", "placement__checkpoint__run__name"),
    time_field="scan__created_at",
    links={
        "tier": by_id("scan__tier_id"),
        "scan": by_id("scan_id"),
        "run": by_id("placement__checkpoint__run_id"),
        "cluster": by_id("scan__tier__cluster_id"),
    },
    columns=(
        ("scan", "scan_id"), ("scanned_at", "scan.created_at"), ("tier", "scan.tier.name"),
        ("cluster", "scan.tier.cluster.name"), ("kind", "kind"), ("run", "placement.checkpoint.run.name"),
        ("step", "placement.checkpoint.step"), ("path", "placement.path"), ("before", "before"), ("after", "after"),
    ),
)  # fmt: skip

ALERTS = ListSpec(
    name="alerts",
    noun="alert",
    plural="alerts",
    rows=lambda request: scoped(request, Alert.objects.select_related("cluster", "run"), "cluster"),
    sorts=(Sort("newest", "newest", "-opened_at"), Sort("oldest", "oldest", "opened_at")),
    choices=(
        by_field("state", "State", Alert.State.choices),
        by_field("severity", "Severity", Severity.choices),
        by_field("rule", "Rule", Alert.Rule.choices),
    ),
    search_for="Words of an alert",
    search=by_text("summary"),
    time_field="opened_at",
    links={"cluster": by_id("cluster_id")},
    columns=(
        ("id", "pk"), ("state", "state"), ("rule", "rule"), ("severity", "severity"), ("cluster", "cluster.name"),
        ("summary", "summary"),
        ("subject_kind", "subject_kind"), ("subject_id", "subject_id"), ("opened_at", "opened_at"),
        ("acknowledged_by", "acknowledged_by"), ("acknowledged_at", "acknowledged_at"), ("resolved_at", "resolved_at"),
    ),
)  # fmt: skip


def _activity(request: HttpRequest) -> Any:
    """Not every entry names a cluster, so they are for those whose role holds everywhere."""
    require_role(request, Role.VIEWER)
    return ActivityEntry.objects.all()


ACTIVITY = ListSpec(
    name="activity",
    noun="entry",
    plural="entries",
    rows=_activity,
    sorts=(Sort("newest", "newest", "-at"), Sort("oldest", "oldest", "at")),
    search_for="Who or what",
    search=by_text("actor", "action", "target_id", "request_id"),
    time_field="at",
    links={"cluster": lambda rows, value: rows.filter(cluster_id=value)},
    columns=(
        ("id", "pk"), ("at", "at"), ("actor", "actor"), ("action", "action"), ("target_kind", "target_kind"),
        ("target_id", "target_id"), ("cluster", "cluster_id"), ("request_id", "request_id"), ("detail", "detail"),
        ("previous", "previous"), ("digest", "digest"),
    ),
)  # fmt: skip
