"""Every thing that a page can do, the REST API can: a new form fails here until it names its operation."""

from __future__ import annotations

import re
from pathlib import Path

from drf_spectacular.generators import SchemaGenerator

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

# A form's route, or the template of a form that posts to its own page -> the operations that do the same.
SAME = {
    "run-objectives": {"update_run"},
    "objective-save": {"update_run"},
    "dashboard/objective_form.html": {"update_run"},
    "checkpoint-audit": {"create_audit"},
    "dashboard/readiness.html": {"create_audit"},
    "audit-cancel": {"cancel_audit"},
    "dashboard/audit_policy_form.html": {"create_audit_policy"},
    "dashboard/audit_policy.html": {"update_audit_policy"},
    "dashboard/audit_policy_delete.html": {"delete_audit_policy"},
    "dashboard/repair_start.html": {"create_repair"},
    "repair-cancel": {"cancel_repair"},
    "audit-policy-run": {"run_audit_policy"},
    "drill-start": {"create_drill"},
    "dashboard/drill_start.html": {"create_drill"},
    "dashboard/drill_cancel.html": {"cancel_drill"},
    "dashboard/drills_stop.html": {"stop_drills"},
    "plans-pause": {"pause_plans", "resume_plans"},
    "drills-compare": {"compare_drills"},
    "drill-approve": {"approve_drill"},
    "dashboard/rules.html": {"update_drill_rules"},
    "breaker-reset": {"reset_drill_breaker"},
    "drills-allow": {"allow_drills"},
    "dashboard/plan_form.html": {"create_plan"},
    "dashboard/plan.html": {"update_plan"},
    "dashboard/plan_delete.html": {"delete_plan"},
    "plan-start": {"start_plan"},
    "agent-act": {"approve_agent", "drain_agent", "resume_agent", "revoke_agent"},
    "dashboard/join_token.html": {"create_join_token"},
    "join-token-revoke": {"delete_join_token"},
    "cluster-disruption": {"update_cluster"},
    "dashboard/node_action.html": {"create_node_action"},
    "cluster-cost": {"update_cluster"},
    "first-steps": {"create_cluster", "create_tier", "create_join_token"},
    "cluster-inventory": {"take_cluster_inventory"},
    "tier-scan": {"create_scan"},
    "tier-measure": {"measure_tier"},
    "dashboard/tier.html": {"update_tier"},
    "dashboard/policy_form.html": {"create_policy"},
    "dashboard/policy.html": {"update_policy"},
    "dashboard/policy_delete.html": {"delete_policy"},
    "policy-act": {"update_policy"},
    "policy-run": {"run_policy"},
    "dashboard/move.html": {"create_transfer"},
    "checkpoint-pin": {"pin_checkpoint", "unpin_checkpoint"},
    "checkpoint-labels": {"label_checkpoint"},
    "transfer-act": {"pause_transfer", "resume_transfer", "cancel_transfer"},
    "scan-cancel": {"cancel_scan"},
    "activity-check": {"check_activity"},
    "bulk-choose": {"create_bulk_operation"},
    "bulk-cancel": {"cancel_bulk_operation"},
    "view-save": {"create_saved_view"},
    "view-delete": {"delete_saved_view"},
    "alert-acknowledge": {"acknowledge_alert"},
    "dashboard/alert_rule.html": {"update_alert_rule"},
    "dashboard/alert_rule_form.html": {"create_alert_rule"},
    "alert-rule-delete": {"delete_alert_rule"},
    "dashboard/silence_form.html": {"create_silence"},
    "silence-end": {"end_silence"},
    "dashboard/channel_form.html": {"create_channel"},
    "dashboard/channel.html": {"update_channel"},
    "dashboard/channel_delete.html": {"delete_channel"},
    "channel-rotate": {"rotate_channel"},
    "channel-drop-old-key": {"drop_channel_old_key"},
    "channel-test": {"test_channel"},
    "delivery-replay": {"replay_delivery"},
    "accounts/access.html": {"create_token"},
    "token-revoke": {"delete_token"},
}
# A caller of the API sends its token with every request, and has no session to begin or end.
OF_A_BROWSER = {"accounts/sign_in.html", "sign-out"}

FORM = re.compile(r"<form\b([^>]*method=\"post\"[^>]*)>")
ROUTE = re.compile(r"action=\"{% url '([a-z-]+)'")


def forms() -> set[str]:
    """What every form of every template posts to."""
    found = set()
    for template in TEMPLATES.rglob("*.html"):
        for attributes in FORM.findall(template.read_text()):
            route = ROUTE.search(attributes)
            found.add(route[1] if route else str(template.relative_to(TEMPLATES)))
    return found


def operations() -> set[str]:
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return {operation["operationId"] for path in schema["paths"].values() for operation in path.values()}


def test_every_form_of_every_page_has_its_operation() -> None:
    assert sorted(forms()) == sorted(SAME.keys() | OF_A_BROWSER)
    assert set().union(*SAME.values()) - operations() == set()


def test_pages_change_nothing_outside_forms() -> None:
    """Such as by an attribute of htmx, which the test above would not see."""
    changing = re.compile(r"hx-(post|put|patch|delete)")
    assert [str(path) for path in TEMPLATES.rglob("*.html") if changing.search(path.read_text())] == []
