"""Routes of the pages. Every action is a POST from a form of its page."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import (
    alerts,
    analysis,
    audits,
    charts,
    checkpoints,
    drills,
    fleet,
    plans,
    readiness,
    runs,
    tiers,
)

urlpatterns = [
    path("", readiness.readiness, name="readiness"),
    path("live/readiness/", readiness.readiness_live, name="readiness-live"),
    path("runs/", runs.run_list, name="runs"),
    path("runs/<str:run_id>/", runs.run_detail, name="run"),
    path("runs/<str:run_id>/objectives/", runs.run_objectives, name="run-objectives"),
    path("runs/<str:run_id>/steps/<int:step>/", checkpoints.checkpoint_of_step, name="step"),
    path("checkpoints/", checkpoints.checkpoint_list, name="checkpoints"),
    path("checkpoints/<str:checkpoint_id>/", checkpoints.checkpoint_detail, name="checkpoint"),
    path("checkpoints/<str:checkpoint_id>/audit/", checkpoints.checkpoint_audit, name="checkpoint-audit"),
    path("drills/", drills.drill_list, name="drills"),
    path("drills/start/", drills.drill_start, name="drill-start"),
    path("drills/<str:drill_id>/", drills.drill_detail, name="drill"),
    path("drills/<str:drill_id>/live/", drills.drill_live, name="drill-live"),
    path("drills/<str:drill_id>/cancel/", drills.drill_cancel, name="drill-cancel"),
    path("plans/", plans.plan_list, name="plans"),
    path("plans/new/", plans.plan_create, name="plan-create"),
    path("plans/<str:plan_id>/", plans.plan_detail, name="plan"),
    path("plans/<str:plan_id>/delete/", plans.plan_delete, name="plan-delete"),
    path("plans/<str:plan_id>/start/", plans.plan_start, name="plan-start"),
    path("nodes/", fleet.node_list, name="nodes"),
    path("nodes/<str:node_id>/", fleet.node_detail, name="node"),
    path("nodes/<str:node_id>/agent/<str:verb>/", fleet.agent_act, name="agent-act"),
    path("clusters/<str:cluster_id>/join-token/", fleet.join_token, name="join-token"),
    path("clusters/<str:cluster_id>/disruption/", fleet.cluster_disruption, name="cluster-disruption"),
    path("join-tokens/<str:token_id>/revoke/", fleet.join_token_revoke, name="join-token-revoke"),
    path("tiers/", tiers.tier_list, name="tiers"),
    path("tiers/live/", tiers.tier_live, name="tiers-live"),
    path("tiers/<str:tier_id>/scan/", tiers.tier_scan, name="tier-scan"),
    path("audits/", audits.audit_list, name="audits"),
    path("audits/<str:audit_id>/", audits.audit_detail, name="audit"),
    path("audits/<str:audit_id>/live/", audits.audit_live, name="audit-live"),
    path("audits/<str:audit_id>/cancel/", audits.audit_cancel, name="audit-cancel"),
    path("alerts/", alerts.alert_list, name="alerts"),
    path("alerts/<str:alert_id>/acknowledge/", alerts.alert_acknowledge, name="alert-acknowledge"),
    path("analysis/", analysis.rto_history, name="analysis"),
    path("activity/", alerts.activity_log, name="activity"),
    path("charts/<slug:name>.json", charts.chart, name="chart"),
]
