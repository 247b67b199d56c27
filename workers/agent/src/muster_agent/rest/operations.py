"""Every operation of the REST API as a method; `client.Client` brings the transport."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class Operations:
    """One method per operation. Lists give an iterator that turns the pages."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        if_match: str | None = None,
    ) -> Any:
        raise NotImplementedError

    def items(self, path: str, query: Mapping[str, Any] | None) -> Iterator[Any]:
        raise NotImplementedError

    def acknowledge_alert(self, id: str, /) -> t.Alert:
        """Say that somebody is on it; it stays until its cause is gone."""
        return cast("t.Alert", self.call("POST", f"/alerts/{part(id)}/acknowledge/"))

    def allow_drills(self) -> t.Control:
        """Let drills run again."""
        return cast("t.Control", self.call("POST", "/drill-control/allow/"))

    def approve_agent(self, id: str, /) -> t.Agent:
        """Let a pending agent take work (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/approve/"))

    def approve_drill(self, id: str, /) -> t.DrillDetail:
        """Let a waiting disruptive drill begin that somebody else asked for."""
        return cast("t.DrillDetail", self.call("POST", f"/drills/{part(id)}/approve/"))

    def cancel_audit(self, id: str, /) -> t.Audit:
        """Stop an audit."""
        return cast("t.Audit", self.call("POST", f"/audits/{part(id)}/cancel/"))

    def cancel_bulk_operation(self, id: str, /) -> t.BulkOperation:
        """Stop a bulk operation: rows that wait stay as they are."""
        return cast("t.BulkOperation", self.call("POST", f"/bulk-operations/{part(id)}/cancel/"))

    def cancel_drill(self, id: str, /) -> t.DrillDetail:
        """Stop a drill within seconds."""
        return cast("t.DrillDetail", self.call("POST", f"/drills/{part(id)}/cancel/"))

    def cancel_repair(self, id: str, /) -> t.Repair:
        """Stop a repair; chunks that were rewritten stay."""
        return cast("t.Repair", self.call("POST", f"/repairs/{part(id)}/cancel/"))

    def cancel_scan(self, id: str, /) -> t.Scan:
        """Stop a scan."""
        return cast("t.Scan", self.call("POST", f"/scans/{part(id)}/cancel/"))

    def cancel_transfer(self, id: str, /) -> t.Transfer:
        """Stop a transfer and remove the part that was copied."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/cancel/"))

    def compare_drills(self, **query: Unpack[t.CompareDrillsQuery]) -> t.Comparison:
        """Two to eight drills side by side: what was asked, really done, each phase, and a verdict."""
        return cast("t.Comparison", self.call("GET", "/drills/compare/", query=query))

    def create_alert_rule(self, body: t.CreateAlertRuleRequest) -> t.AlertRule:
        """Give a cluster, or one of its runs, a rule of its own."""
        return cast("t.AlertRule", self.call("POST", "/alert-rules/", body))

    def create_audit(self, body: t.CreateAuditRequest) -> t.Audit:
        """Seal a placement, verify it, or look at its structure."""
        return cast("t.Audit", self.call("POST", "/audits/", body))

    def create_audit_policy(self, body: t.CreateAuditPolicyRequest) -> t.AuditPolicy:
        """Add an audit policy."""
        return cast("t.AuditPolicy", self.call("POST", "/audit-policies/", body))

    def create_bulk_operation(self, body: t.CreateBulkOperationRequest) -> t.BulkOperation:
        """Do one thing to many rows: to these ids, or to all that match a list's query."""
        return cast("t.BulkOperation", self.call("POST", "/bulk-operations/", body))

    def create_channel(self, body: t.CreateChannelRequest) -> t.NewChannel:
        """Add a channel; a signing key that is made is in this answer only."""
        return cast("t.NewChannel", self.call("POST", "/channels/", body))

    def create_cluster(self, body: t.CreateClusterRequest) -> t.Cluster:
        """Create a cluster (admin)."""
        return cast("t.Cluster", self.call("POST", "/clusters/", body))

    def create_drill(self, body: t.CreateDrillRequest) -> t.DrillDetail:
        """Start a drill."""
        return cast("t.DrillDetail", self.call("POST", "/drills/", body))

    def create_join_token(self, body: t.CreateJoinTokenRequest) -> t.NewJoinToken:
        """Create a join token; its secret is in this answer only (admin)."""
        return cast("t.NewJoinToken", self.call("POST", "/join-tokens/", body))

    def create_node_action(self, body: t.CreateNodeActionRequest) -> t.NodeAction:
        """Park a node as a spare, or bring one back through the gate (operator)."""
        return cast("t.NodeAction", self.call("POST", "/node-actions/", body))

    def create_plan(self, body: t.CreatePlanRequest) -> t.Plan:
        """Plan a drill."""
        return cast("t.Plan", self.call("POST", "/plans/", body))

    def create_policy(self, body: t.CreatePolicyRequest) -> t.Policy:
        """Add a retention policy; it only plans until told otherwise."""
        return cast("t.Policy", self.call("POST", "/policies/", body))

    def create_repair(self, body: t.CreateRepairRequest) -> t.Repair:
        """Rewrite the bad chunks of a damaged copy from another one that is verified."""
        return cast("t.Repair", self.call("POST", "/repairs/", body))

    def create_saved_view(self, body: t.CreateSavedViewRequest) -> t.SavedView:
        """Keep a list's query under a name; the same name again gets the new query."""
        return cast("t.SavedView", self.call("POST", "/saved-views/", body))

    def create_scan(self, body: t.CreateScanRequest) -> t.Scan:
        """Have a tier, or a folder of it, listed."""
        return cast("t.Scan", self.call("POST", "/scans/", body))

    def create_silence(self, body: t.CreateSilenceRequest) -> t.Silence:
        """Keep matching alerts from being told to channels for a while."""
        return cast("t.Silence", self.call("POST", "/silences/", body))

    def create_tier(self, body: t.CreateTierRequest) -> t.Tier:
        """Add a storage tier."""
        return cast("t.Tier", self.call("POST", "/tiers/", body))

    def create_tier_rate_limit(self, tier: str, /, body: t.CreateRateLimitRequest) -> t.RateLimit:
        """Limit how fast all transfers together may use a tier, in a window of the day."""
        return cast("t.RateLimit", self.call("POST", f"/tiers/{part(tier)}/rate-limits/", body))

    def create_token(self, body: t.CreateTokenRequest) -> t.NewToken:
        """Create a token; its secret is in this answer only."""
        return cast("t.NewToken", self.call("POST", "/tokens/", body))

    def create_transfer(self, body: t.CreateTransferRequest) -> t.Transfer:
        """Move, copy, stage or retire one copy of a checkpoint."""
        return cast("t.Transfer", self.call("POST", "/transfers/", body))

    def create_user(self, body: t.CreateUserRequest) -> t.User:
        """Create a user or service account (admin)."""
        return cast("t.User", self.call("POST", "/users/", body))

    def delete_alert_rule(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a cluster's or run's own rule; the wider one holds again."""
        self.call("DELETE", f"/alert-rules/{part(id)}/", if_match=if_match)

    def delete_audit_policy(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete an audit policy; its audits stay."""
        self.call("DELETE", f"/audit-policies/{part(id)}/", if_match=if_match)

    def delete_channel(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a channel with its log of deliveries."""
        self.call("DELETE", f"/channels/{part(id)}/", if_match=if_match)

    def delete_join_token(self, id: str, /) -> None:
        """Revoke a join token at once (admin)."""
        self.call("DELETE", f"/join-tokens/{part(id)}/")

    def delete_plan(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a plan; its drills stay."""
        self.call("DELETE", f"/plans/{part(id)}/", if_match=if_match)

    def delete_policy(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a policy; its transfers go on."""
        self.call("DELETE", f"/policies/{part(id)}/", if_match=if_match)

    def delete_saved_view(self, id: str, /) -> None:
        """Delete a saved view."""
        self.call("DELETE", f"/saved-views/{part(id)}/")

    def delete_tier_rate_limit(self, id: str, tier: str, /) -> None:
        """Remove a rate limit."""
        self.call("DELETE", f"/tiers/{part(tier)}/rate-limits/{part(id)}/")

    def delete_token(self, id: str, /) -> None:
        """Revoke a token at once."""
        self.call("DELETE", f"/tokens/{part(id)}/")

    def drain_agent(self, id: str, /) -> t.Agent:
        """Give an agent no new work (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/drain/"))

    def drop_channel_old_key(self, id: str, /) -> t.Channel:
        """End the rotation: sign with the newest key alone."""
        return cast("t.Channel", self.call("POST", f"/channels/{part(id)}/drop-old-key/"))

    def end_silence(self, id: str, /) -> t.Silence:
        """End a silence now; what is still wrong is told."""
        return cast("t.Silence", self.call("POST", f"/silences/{part(id)}/end/"))

    def explain_placement(self, id: str, /) -> t.Explanation:
        """Which rule said what about a copy, in words."""
        return cast("t.Explanation", self.call("GET", f"/placements/{part(id)}/explanation/"))

    def get_advice(self, **query: Unpack[t.GetAdviceQuery]) -> t.Advice:
        """How often to save, how many spares, and what failures cost, with the source of every input."""
        return cast("t.Advice", self.call("GET", "/advice/", query=query))

    def get_agent(self, id: str, /) -> t.Agent:
        """One agent."""
        return cast("t.Agent", self.call("GET", f"/agents/{part(id)}/"))

    def get_alert(self, id: str, /) -> t.Alert:
        """One alert."""
        return cast("t.Alert", self.call("GET", f"/alerts/{part(id)}/"))

    def get_alert_rule(self, id: str, /) -> t.AlertRule:
        """One alert rule."""
        return cast("t.AlertRule", self.call("GET", f"/alert-rules/{part(id)}/"))

    def get_audit(self, id: str, /) -> t.Audit:
        """One audit."""
        return cast("t.Audit", self.call("GET", f"/audits/{part(id)}/"))

    def get_audit_policy(self, id: str, /) -> t.AuditPolicy:
        """One audit policy."""
        return cast("t.AuditPolicy", self.call("GET", f"/audit-policies/{part(id)}/"))

    def get_audit_report(self, id: str, /) -> t.AuditReport:
        """The evidence of an audit in one document: who, when, against which seal, and what it proves."""
        return cast("t.AuditReport", self.call("GET", f"/audits/{part(id)}/report/"))

    def get_bulk_operation(self, id: str, /) -> t.BulkOperation:
        """One bulk operation and how far it is."""
        return cast("t.BulkOperation", self.call("GET", f"/bulk-operations/{part(id)}/"))

    def get_ceiling_run(self, id: str, /) -> t.CeilingRun:
        """One measurement of a tier's ceiling."""
        return cast("t.CeilingRun", self.call("GET", f"/ceiling-runs/{part(id)}/"))

    def get_channel(self, id: str, /) -> t.Channel:
        """One channel."""
        return cast("t.Channel", self.call("GET", f"/channels/{part(id)}/"))

    def get_checklist(self, name_or_id: str, /, **query: Unpack[t.GetChecklistQuery]) -> t.Checklist:
        """A run's five validation steps with their last evidence, verdict and next action, and its score."""
        return cast("t.Checklist", self.call("GET", f"/runs/{part(name_or_id)}/checklist/", query=query))

    def get_checkpoint(self, id: str, /) -> t.Checkpoint:
        """One checkpoint with its copies."""
        return cast("t.Checkpoint", self.call("GET", f"/checkpoints/{part(id)}/"))

    def get_checkpoint_marks(self, checkpoint: str, /) -> t.Marks:
        """Whether a checkpoint is pinned, and its labels."""
        return cast("t.Marks", self.call("GET", f"/checkpoints/{part(checkpoint)}/marks/"))

    def get_cluster(self, id: str, /) -> t.Cluster:
        """One cluster."""
        return cast("t.Cluster", self.call("GET", f"/clusters/{part(id)}/"))

    def get_cluster_inventory(self, id: str, /) -> t.ClusterInventoryDetail:
        """One inventory with what changed since the one before."""
        return cast("t.ClusterInventoryDetail", self.call("GET", f"/cluster-inventories/{part(id)}/"))

    def get_delivery(self, id: str, /) -> t.WholeDelivery:
        """One delivery with its tries."""
        return cast("t.WholeDelivery", self.call("GET", f"/deliveries/{part(id)}/"))

    def get_drill(self, id: str, /) -> t.DrillDetail:
        """One drill with its rounds."""
        return cast("t.DrillDetail", self.call("GET", f"/drills/{part(id)}/"))

    def get_drill_control(self) -> t.Control:
        """Whether drills may run."""
        return cast("t.Control", self.call("GET", "/drill-control/"))

    def get_drill_report(self, id: str, /) -> t.DrillReport:
        """A drill in one document: its story, every figure, each client, and what it does not prove."""
        return cast("t.DrillReport", self.call("GET", f"/drills/{part(id)}/report/"))

    def get_drill_rules(self, cluster: str, /) -> t.Rules:
        """What drills may do here."""
        return cast("t.Rules", self.call("GET", f"/clusters/{part(cluster)}/drill-rules/"))

    def get_first_steps(self, **query: Unpack[t.GetFirstStepsQuery]) -> t.FirstSteps:
        """How far a cluster has come to its first answer, and the request that does the next step."""
        return cast("t.FirstSteps", self.call("GET", "/first-steps/", query=query))

    def get_health(self) -> t.Health:
        """Whether Muster itself is watching, part by part."""
        return cast("t.Health", self.call("GET", "/health/"))

    def get_incident(self, id: str, /) -> t.Incident:
        """One disruption with its recovery."""
        return cast("t.Incident", self.call("GET", f"/incidents/{part(id)}/"))

    def get_join_token(self, id: str, /) -> t.JoinToken:
        """One join token."""
        return cast("t.JoinToken", self.call("GET", f"/join-tokens/{part(id)}/"))

    def get_node(self, id: str, /) -> t.Node:
        """One node with its agent."""
        return cast("t.Node", self.call("GET", f"/nodes/{part(id)}/"))

    def get_node_action(self, id: str, /) -> t.NodeAction:
        """One of them, with the gate's checks."""
        return cast("t.NodeAction", self.call("GET", f"/node-actions/{part(id)}/"))

    def get_operation(self, operation: str, /) -> t.Operation:
        """How far a drill, audit, transfer, repair, scan or measurement is, by its id."""
        return cast("t.Operation", self.call("GET", f"/operations/{part(operation)}/"))

    def get_placement(self, id: str, /) -> t.Placement:
        """One copy."""
        return cast("t.Placement", self.call("GET", f"/placements/{part(id)}/"))

    def get_plan(self, id: str, /) -> t.Plan:
        """One drill plan."""
        return cast("t.Plan", self.call("GET", f"/plans/{part(id)}/"))

    def get_plan_calendar(self, **query: Unpack[t.GetPlanCalendarQuery]) -> t.Calendar:
        """When plans fire in the coming days, and which meet on one cluster."""
        return cast("t.Calendar", self.call("GET", "/plans/calendar/", query=query))

    def get_policy(self, id: str, /) -> t.Policy:
        """One retention policy."""
        return cast("t.Policy", self.call("GET", f"/policies/{part(id)}/"))

    def get_policy_plan(self, id: str, /) -> t.PolicyPlan:
        """What the policy would do now, and why each other copy stays."""
        return cast("t.PolicyPlan", self.call("GET", f"/policies/{part(id)}/plan/"))

    def get_rank_shard_audit(self, placement: str, /) -> t.RankShardAudit:
        """How a copy's bytes are cut for its ranks, and the seconds that a better cut is predicted to save."""
        return cast("t.RankShardAudit", self.call("GET", f"/placements/{part(placement)}/rank-shards/"))

    def get_readiness(self) -> t.ReadinessList:
        """Every run: if it died now. The worst first."""
        return cast("t.ReadinessList", self.call("GET", "/readiness/"))

    def get_repair(self, id: str, /) -> t.Repair:
        """One repair."""
        return cast("t.Repair", self.call("GET", f"/repairs/{part(id)}/"))

    def get_resume_point(self, name_or_id: str, /, **query: Unpack[t.GetResumePointQuery]) -> t.ResumePoint:
        """Which checkpoint the run would resume from, and how long that would take."""
        return cast("t.ResumePoint", self.call("GET", f"/runs/{part(name_or_id)}/resume-point/", query=query))

    def get_rto_groups(self, **query: Unpack[t.GetRtoGroupsQuery]) -> t.Groups:
        """Drills of one kind by run, tier, format or node group: spread, objective, budget, regression."""
        return cast("t.Groups", self.call("GET", "/rto-groups/", query=query))

    def get_rto_history(self, **query: Unpack[t.GetRtoHistoryQuery]) -> t.History:
        """A run's drills of one kind with phases, and what they prove together."""
        return cast("t.History", self.call("GET", "/rto-history/", query=query))

    def get_run(self, id: str, /) -> t.Run:
        """One training run, by id or name."""
        return cast("t.Run", self.call("GET", f"/runs/{part(id)}/"))

    def get_saved_view(self, id: str, /) -> t.SavedView:
        """One saved view."""
        return cast("t.SavedView", self.call("GET", f"/saved-views/{part(id)}/"))

    def get_scan(self, id: str, /) -> t.Scan:
        """One inventory scan."""
        return cast("t.Scan", self.call("GET", f"/scans/{part(id)}/"))

    def get_scan_diff(self, id: str, /, **query: Unpack[t.GetScanDiffQuery]) -> t.InventoryDiff:
        """What differs between this inventory of a tier and an earlier one."""
        return cast("t.InventoryDiff", self.call("GET", f"/scans/{part(id)}/diff/", query=query))

    def get_silence(self, id: str, /) -> t.Silence:
        """One silence."""
        return cast("t.Silence", self.call("GET", f"/silences/{part(id)}/"))

    def get_stepless_checkpoint(self, id: str, /) -> t.SteplessCheckpoint:
        """One checkpoint whose step nothing tells."""
        return cast("t.SteplessCheckpoint", self.call("GET", f"/stepless-checkpoints/{part(id)}/"))

    def get_task(self, id: str, /) -> t.AgentTaskDetail:
        """One task with its parameters and result."""
        return cast("t.AgentTaskDetail", self.call("GET", f"/tasks/{part(id)}/"))

    def get_tier(self, id: str, /) -> t.Tier:
        """One storage tier."""
        return cast("t.Tier", self.call("GET", f"/tiers/{part(id)}/"))

    def get_tier_comparison(self) -> t.TierComparison:
        """Tiers side by side, from measured drills only."""
        return cast("t.TierComparison", self.call("GET", "/tier-comparison/"))

    def get_transfer(self, id: str, /) -> t.Transfer:
        """One transfer."""
        return cast("t.Transfer", self.call("GET", f"/transfers/{part(id)}/"))

    def get_user(self, id: str, /) -> t.User:
        """One user (admin)."""
        return cast("t.User", self.call("GET", f"/users/{part(id)}/"))

    def get_what_if(self, **query: Unpack[t.GetWhatIfQuery]) -> t.WhatIf:
        """Predicted time to resume for sizes and readers that were never drilled, and what an objective needs."""
        return cast("t.WhatIf", self.call("GET", "/what-if/", query=query))

    def label_checkpoint(self, checkpoint: str, /, body: t.LabelsRequest) -> t.Marks:
        """Make these the checkpoint's labels."""
        return cast("t.Marks", self.call("PUT", f"/checkpoints/{part(checkpoint)}/labels/", body))

    def list_activity(self, **query: Unpack[t.ListActivityQuery]) -> Iterator[t.Activity]:
        """The activity log, newest first (admin)."""
        return cast("Iterator[t.Activity]", self.items("/activity/", query))

    def list_agents(self, **query: Unpack[t.ListAgentsQuery]) -> Iterator[t.Agent]:
        """List agents."""
        return cast("Iterator[t.Agent]", self.items("/agents/", query))

    def list_alert_rules(self, **query: Unpack[t.ListAlertRulesQuery]) -> Iterator[t.AlertRule]:
        """List alert rules."""
        return cast("Iterator[t.AlertRule]", self.items("/alert-rules/", query))

    def list_alerts(self, **query: Unpack[t.ListAlertsQuery]) -> Iterator[t.Alert]:
        """List alerts."""
        return cast("Iterator[t.Alert]", self.items("/alerts/", query))

    def list_audit_policies(self, **query: Unpack[t.ListAuditPoliciesQuery]) -> Iterator[t.AuditPolicy]:
        """List audit policies."""
        return cast("Iterator[t.AuditPolicy]", self.items("/audit-policies/", query))

    def list_audit_rounds(self, policy: str, /, **query: Unpack[t.ListAuditRoundsQuery]) -> Iterator[t.AuditRound]:
        """The due times of a policy and what became of them."""
        return cast("Iterator[t.AuditRound]", self.items(f"/audit-policies/{part(policy)}/rounds/", query))

    def list_audits(self, **query: Unpack[t.ListAuditsQuery]) -> Iterator[t.Audit]:
        """List audits."""
        return cast("Iterator[t.Audit]", self.items("/audits/", query))

    def list_bulk_operation_items(
        self, operation: str, /, **query: Unpack[t.ListBulkOperationItemsQuery]
    ) -> Iterator[t.BulkItem]:
        """What became of each row of an operation."""
        return cast("Iterator[t.BulkItem]", self.items(f"/bulk-operations/{part(operation)}/items/", query))

    def list_bulk_operations(self, **query: Unpack[t.ListBulkOperationsQuery]) -> Iterator[t.BulkOperation]:
        """Bulk operations: one's own, all for an admin."""
        return cast("Iterator[t.BulkOperation]", self.items("/bulk-operations/", query))

    def list_ceiling_runs(self, **query: Unpack[t.ListCeilingRunsQuery]) -> Iterator[t.CeilingRun]:
        """List measurements of tiers' ceilings."""
        return cast("Iterator[t.CeilingRun]", self.items("/ceiling-runs/", query))

    def list_channels(self, **query: Unpack[t.ListChannelsQuery]) -> Iterator[t.Channel]:
        """List channels."""
        return cast("Iterator[t.Channel]", self.items("/channels/", query))

    def list_checkpoint_findings(
        self, checkpoint: str, /, **query: Unpack[t.ListCheckpointFindingsQuery]
    ) -> Iterator[t.Finding]:
        """Findings about a checkpoint."""
        return cast("Iterator[t.Finding]", self.items(f"/checkpoints/{part(checkpoint)}/findings/", query))

    def list_checkpoint_placements(
        self, checkpoint: str, /, **query: Unpack[t.ListCheckpointPlacementsQuery]
    ) -> Iterator[t.Placement]:
        """The copies of a checkpoint."""
        return cast("Iterator[t.Placement]", self.items(f"/checkpoints/{part(checkpoint)}/placements/", query))

    def list_checkpoint_shards(
        self, checkpoint: str, /, **query: Unpack[t.ListCheckpointShardsQuery]
    ) -> Iterator[t.Shard]:
        """The files of a checkpoint."""
        return cast("Iterator[t.Shard]", self.items(f"/checkpoints/{part(checkpoint)}/shards/", query))

    def list_checkpoint_tensors(
        self, checkpoint: str, /, **query: Unpack[t.ListCheckpointTensorsQuery]
    ) -> Iterator[t.Tensor]:
        """The tensors of a sealed checkpoint, and where each lies."""
        return cast("Iterator[t.Tensor]", self.items(f"/checkpoints/{part(checkpoint)}/tensors/", query))

    def list_checkpoints(self, **query: Unpack[t.ListCheckpointsQuery]) -> Iterator[t.Checkpoint]:
        """List checkpoints."""
        return cast("Iterator[t.Checkpoint]", self.items("/checkpoints/", query))

    def list_cluster_inventories(self, **query: Unpack[t.ListClusterInventoriesQuery]) -> Iterator[t.ClusterInventory]:
        """List inventories of clusters, newest first."""
        return cast("Iterator[t.ClusterInventory]", self.items("/cluster-inventories/", query))

    def list_clusters(self, **query: Unpack[t.ListClustersQuery]) -> Iterator[t.Cluster]:
        """List the clusters that the caller may view."""
        return cast("Iterator[t.Cluster]", self.items("/clusters/", query))

    def list_deliveries(self, **query: Unpack[t.ListDeliveriesQuery]) -> Iterator[t.Delivery]:
        """The log of deliveries."""
        return cast("Iterator[t.Delivery]", self.items("/deliveries/", query))

    def list_drill_events(self, drill: str, /, **query: Unpack[t.ListDrillEventsQuery]) -> Iterator[t.AgentEvent]:
        """What a drill's agents reported."""
        return cast("Iterator[t.AgentEvent]", self.items(f"/drills/{part(drill)}/events/", query))

    def list_drill_ranks(self, drill: str, /, **query: Unpack[t.ListDrillRanksQuery]) -> Iterator[t.RankResult]:
        """What each client of a drill measured."""
        return cast("Iterator[t.RankResult]", self.items(f"/drills/{part(drill)}/ranks/", query))

    def list_drills(self, **query: Unpack[t.ListDrillsQuery]) -> Iterator[t.Drill]:
        """List drills."""
        return cast("Iterator[t.Drill]", self.items("/drills/", query))

    def list_findings(self, **query: Unpack[t.ListFindingsQuery]) -> Iterator[t.Finding]:
        """List findings."""
        return cast("Iterator[t.Finding]", self.items("/findings/", query))

    def list_incidents(self, **query: Unpack[t.ListIncidentsQuery]) -> Iterator[t.Incident]:
        """Real disruptions with their recoveries."""
        return cast("Iterator[t.Incident]", self.items("/incidents/", query))

    def list_inventory_changes(self, **query: Unpack[t.ListInventoryChangesQuery]) -> Iterator[t.InventoryChange]:
        """What scans of any tier found different."""
        return cast("Iterator[t.InventoryChange]", self.items("/inventory-changes/", query))

    def list_join_tokens(self, **query: Unpack[t.ListJoinTokensQuery]) -> Iterator[t.JoinToken]:
        """List join tokens; secrets are never shown."""
        return cast("Iterator[t.JoinToken]", self.items("/join-tokens/", query))

    def list_node_actions(self, **query: Unpack[t.ListNodeActionsQuery]) -> Iterator[t.NodeAction]:
        """Nodes that were parked or brought back."""
        return cast("Iterator[t.NodeAction]", self.items("/node-actions/", query))

    def list_nodes(self, **query: Unpack[t.ListNodesQuery]) -> Iterator[t.Node]:
        """List nodes with their agents."""
        return cast("Iterator[t.Node]", self.items("/nodes/", query))

    def list_objectives(self, **query: Unpack[t.ListObjectivesQuery]) -> Iterator[t.Objective]:
        """Every run against its objectives: passes, misses, budget, how sure that is. The worst first."""
        return cast("Iterator[t.Objective]", self.items("/objectives/", query))

    def list_operations(self) -> t.OperationList:
        """What runs now, of every kind, newest first; at most 200."""
        return cast("t.OperationList", self.call("GET", "/operations/"))

    def list_placement_evidence(
        self, placement: str, /, **query: Unpack[t.ListPlacementEvidenceQuery]
    ) -> Iterator[t.Evidence]:
        """Why a copy is trusted, and what voided that."""
        return cast("Iterator[t.Evidence]", self.items(f"/placements/{part(placement)}/evidence/", query))

    def list_placement_shards(
        self, placement: str, /, **query: Unpack[t.ListPlacementShardsQuery]
    ) -> Iterator[t.Shard]:
        """The files of a copy."""
        return cast("Iterator[t.Shard]", self.items(f"/placements/{part(placement)}/shards/", query))

    def list_placements(self, **query: Unpack[t.ListPlacementsQuery]) -> Iterator[t.Placement]:
        """List copies of checkpoints."""
        return cast("Iterator[t.Placement]", self.items("/placements/", query))

    def list_plan_occurrences(
        self, plan: str, /, **query: Unpack[t.ListPlanOccurrencesQuery]
    ) -> Iterator[t.Occurrence]:
        """The due times of a plan and what became of them."""
        return cast("Iterator[t.Occurrence]", self.items(f"/plans/{part(plan)}/occurrences/", query))

    def list_plans(self, **query: Unpack[t.ListPlansQuery]) -> Iterator[t.Plan]:
        """List drill plans."""
        return cast("Iterator[t.Plan]", self.items("/plans/", query))

    def list_policies(self, **query: Unpack[t.ListPoliciesQuery]) -> Iterator[t.Policy]:
        """List retention policies."""
        return cast("Iterator[t.Policy]", self.items("/policies/", query))

    def list_policy_migrations(
        self, policy: str, /, **query: Unpack[t.ListPolicyMigrationsQuery]
    ) -> Iterator[t.Migration]:
        """What a policy planned, each time it ran."""
        return cast("Iterator[t.Migration]", self.items(f"/policies/{part(policy)}/migrations/", query))

    def list_repairs(self, **query: Unpack[t.ListRepairsQuery]) -> Iterator[t.Repair]:
        """List repairs."""
        return cast("Iterator[t.Repair]", self.items("/repairs/", query))

    def list_run_attempts(self, run: str, /, **query: Unpack[t.ListRunAttemptsQuery]) -> Iterator[t.Attempt]:
        """Launches of a run."""
        return cast("Iterator[t.Attempt]", self.items(f"/runs/{part(run)}/attempts/", query))

    def list_run_steps(self, run: str, /, **query: Unpack[t.ListRunStepsQuery]) -> Iterator[t.Step]:
        """Steps that a run reported."""
        return cast("Iterator[t.Step]", self.items(f"/runs/{part(run)}/steps/", query))

    def list_runs(self, **query: Unpack[t.ListRunsQuery]) -> Iterator[t.Run]:
        """List training runs."""
        return cast("Iterator[t.Run]", self.items("/runs/", query))

    def list_saved_views(self, **query: Unpack[t.ListSavedViewsQuery]) -> Iterator[t.SavedView]:
        """Saved views of lists: one's own and the shared ones."""
        return cast("Iterator[t.SavedView]", self.items("/saved-views/", query))

    def list_scan_changes(self, scan: str, /, **query: Unpack[t.ListScanChangesQuery]) -> Iterator[t.ScanChange]:
        """What a scan found different."""
        return cast("Iterator[t.ScanChange]", self.items(f"/scans/{part(scan)}/changes/", query))

    def list_scans(self, **query: Unpack[t.ListScansQuery]) -> Iterator[t.Scan]:
        """List inventory scans."""
        return cast("Iterator[t.Scan]", self.items("/scans/", query))

    def list_silences(self, **query: Unpack[t.ListSilencesQuery]) -> Iterator[t.Silence]:
        """List silences."""
        return cast("Iterator[t.Silence]", self.items("/silences/", query))

    def list_stepless_checkpoints(
        self, **query: Unpack[t.ListSteplessCheckpointsQuery]
    ) -> Iterator[t.SteplessCheckpoint]:
        """Checkpoints whose step nothing tells."""
        return cast("Iterator[t.SteplessCheckpoint]", self.items("/stepless-checkpoints/", query))

    def list_task_events(self, task_id: str, /, **query: Unpack[t.ListTaskEventsQuery]) -> Iterator[t.AgentEvent]:
        """A task's events, oldest first."""
        return cast("Iterator[t.AgentEvent]", self.items(f"/tasks/{part(task_id)}/events/", query))

    def list_tasks(self, **query: Unpack[t.ListTasksQuery]) -> Iterator[t.AgentTask]:
        """List the work handed to agents."""
        return cast("Iterator[t.AgentTask]", self.items("/tasks/", query))

    def list_tier_ceilings(self, tier_id: str, /, **query: Unpack[t.ListTierCeilingsQuery]) -> Iterator[t.Ceiling]:
        """Best read rates measured on a tier."""
        return cast("Iterator[t.Ceiling]", self.items(f"/tiers/{part(tier_id)}/ceilings/", query))

    def list_tier_rate_limits(self, tier: str, /, **query: Unpack[t.ListTierRateLimitsQuery]) -> Iterator[t.RateLimit]:
        """How fast transfers may use a tier."""
        return cast("Iterator[t.RateLimit]", self.items(f"/tiers/{part(tier)}/rate-limits/", query))

    def list_tiers(self, **query: Unpack[t.ListTiersQuery]) -> Iterator[t.Tier]:
        """List storage tiers."""
        return cast("Iterator[t.Tier]", self.items("/tiers/", query))

    def list_tokens(self, **query: Unpack[t.ListTokensQuery]) -> Iterator[t.Token]:
        """List API tokens: one's own, or everybody's for an admin."""
        return cast("Iterator[t.Token]", self.items("/tokens/", query))

    def list_transfers(self, **query: Unpack[t.ListTransfersQuery]) -> Iterator[t.Transfer]:
        """List transfers."""
        return cast("Iterator[t.Transfer]", self.items("/transfers/", query))

    def list_users(self, **query: Unpack[t.ListUsersQuery]) -> Iterator[t.User]:
        """List users (admin)."""
        return cast("Iterator[t.User]", self.items("/users/", query))

    def measure_tier(self, id: str, /) -> t.CeilingRun:
        """Have an agent measure how fast a tier can be read."""
        return cast("t.CeilingRun", self.call("POST", f"/tiers/{part(id)}/measure/"))

    def pause_plans(self) -> t.Control:
        """Let no plan start a drill by itself, everywhere, until they are resumed."""
        return cast("t.Control", self.call("POST", "/drill-control/pause-plans/"))

    def pause_transfer(self, id: str, /) -> t.Transfer:
        """Let a transfer wait."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/pause/"))

    def pin_checkpoint(self, checkpoint: str, /, body: t.PinRequest) -> t.Marks:
        """Keep a checkpoint for good, wherever it lies."""
        return cast("t.Marks", self.call("PUT", f"/checkpoints/{part(checkpoint)}/pin/", body))

    def preview_drill(self, body: t.CreateDrillRequest) -> t.Preview:
        """What a drill would touch, and what would keep it from beginning; nothing is started."""
        return cast("t.Preview", self.call("POST", "/drills/preview/", body))

    def register_checkpoints(self, body: t.RegisterCheckpointsRequest) -> t.Registered:
        """Tell of checkpoints that were saved: up to 1,000 copies, as JSON or one a line."""
        return cast("t.Registered", self.call("POST", "/checkpoints:batch/", body))

    def replay_delivery(self, id: str, /) -> t.Delivery:
        """Send it again, with the same id."""
        return cast("t.Delivery", self.call("POST", f"/deliveries/{part(id)}/replay/"))

    def report_incident(self, body: t.ReportIncidentRequest) -> t.Incident:
        """Report a real disruption; the training hook's records measure the way back where there are any."""
        return cast("t.Incident", self.call("POST", "/incidents/", body))

    def reset_drill_breaker(self, cluster: str, /) -> t.Rules:
        """Let disruptive drills start again after several went wrong (admin)."""
        return cast("t.Rules", self.call("POST", f"/clusters/{part(cluster)}/drill-rules/reset-breaker/"))

    def resume_agent(self, id: str, /) -> t.Agent:
        """Give a drained agent work again (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/resume/"))

    def resume_plans(self) -> t.Control:
        """Let plans start drills again."""
        return cast("t.Control", self.call("POST", "/drill-control/resume-plans/"))

    def resume_transfer(self, id: str, /) -> t.Transfer:
        """Let a paused transfer go on."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/resume/"))

    def revoke_agent(self, id: str, /, body: t.RevokeAgentRequest) -> t.Agent:
        """Refuse an agent's credential from now on (admin)."""
        return cast("t.Agent", self.call("POST", f"/agents/{part(id)}/revoke/", body))

    def rotate_channel(self, id: str, /, body: t.RotateRequest) -> t.SigningKey:
        """Replace a webhook's signing key; messages carry signatures of both meanwhile."""
        return cast("t.SigningKey", self.call("POST", f"/channels/{part(id)}/rotate/", body))

    def run_audit_policy(self, id: str, /) -> t.AuditRound:
        """Audit now what the policy is for."""
        return cast("t.AuditRound", self.call("POST", f"/audit-policies/{part(id)}/run/"))

    def run_policy(self, id: str, /) -> t.Migration:
        """Run the policy now: record its plan and, unless it only plans, begin it."""
        return cast("t.Migration", self.call("POST", f"/policies/{part(id)}/run/"))

    def search(self, **query: Unpack[t.SearchQuery]) -> t.Search:
        """Find runs, plans, nodes, tiers, clusters and checkpoints by name or step, anything by its id."""
        return cast("t.Search", self.call("GET", "/search/", query=query))

    def start_plan(self, id: str, /) -> t.DrillDetail:
        """Run the plan's drill now."""
        return cast("t.DrillDetail", self.call("POST", f"/plans/{part(id)}/start/"))

    def stop_drills(self, body: t.StopDrillsRequest) -> t.Stopped:
        """Stop all drills, everywhere, until they are allowed again."""
        return cast("t.Stopped", self.call("POST", "/drill-control/stop/", body))

    def take_cluster_inventory(self, id: str, /) -> None:
        """Take the cluster's inventory now (operator)."""
        self.call("POST", f"/clusters/{part(id)}/take-inventory/")

    def test_channel(self, id: str, /) -> t.Delivery:
        """Send a test, tried once; the delivery tells what came back."""
        return cast("t.Delivery", self.call("POST", f"/channels/{part(id)}/test/"))

    def unpin_checkpoint(self, checkpoint: str, /) -> None:
        """Let policies decide again."""
        self.call("DELETE", f"/checkpoints/{part(checkpoint)}/pin/")

    def update_alert_rule(
        self, id: str, /, body: t.PatchedUpdateAlertRuleRequest, *, if_match: str = "*"
    ) -> t.AlertRule:
        """Change a rule's severity or threshold, or disable it."""
        return cast("t.AlertRule", self.call("PATCH", f"/alert-rules/{part(id)}/", body, if_match=if_match))

    def update_audit_policy(
        self, id: str, /, body: t.PatchedUpdateAuditPolicyRequest, *, if_match: str = "*"
    ) -> t.AuditPolicy:
        """Change an audit policy; another mode or ratio begins a new rotation."""
        return cast("t.AuditPolicy", self.call("PATCH", f"/audit-policies/{part(id)}/", body, if_match=if_match))

    def update_channel(self, id: str, /, body: t.PatchedUpdateChannelRequest, *, if_match: str = "*") -> t.Channel:
        """Change a channel, disable or enable it."""
        return cast("t.Channel", self.call("PATCH", f"/channels/{part(id)}/", body, if_match=if_match))

    def update_cluster(self, id: str, /, body: t.PatchedUpdateClusterRequest, *, if_match: str = "*") -> t.Cluster:
        """Change a cluster's scheduler, size, price or permission to disrupt (admin)."""
        return cast("t.Cluster", self.call("PATCH", f"/clusters/{part(id)}/", body, if_match=if_match))

    def update_drill_rules(self, cluster: str, /, body: t.PatchedUpdateRulesRequest, *, if_match: str = "*") -> t.Rules:
        """Change what drills may do here (admin)."""
        return cast("t.Rules", self.call("PATCH", f"/clusters/{part(cluster)}/drill-rules/", body, if_match=if_match))

    def update_plan(self, id: str, /, body: t.PatchedUpdatePlanRequest, *, if_match: str = "*") -> t.Plan:
        """Change a plan; drills that already ran keep their settings."""
        return cast("t.Plan", self.call("PATCH", f"/plans/{part(id)}/", body, if_match=if_match))

    def update_policy(self, id: str, /, body: t.PatchedUpdatePolicyRequest, *, if_match: str = "*") -> t.Policy:
        """Change a retention policy."""
        return cast("t.Policy", self.call("PATCH", f"/policies/{part(id)}/", body, if_match=if_match))

    def update_run(self, id: str, /, body: t.PatchedUpdateRunRequest, *, if_match: str = "*") -> t.Run:
        """Set a run's objectives."""
        return cast("t.Run", self.call("PATCH", f"/runs/{part(id)}/", body, if_match=if_match))

    def update_tier(self, id: str, /, body: t.PatchedUpdateTierRequest, *, if_match: str = "*") -> t.Tier:
        """Change a storage tier."""
        return cast("t.Tier", self.call("PATCH", f"/tiers/{part(id)}/", body, if_match=if_match))

    def update_user(self, id: str, /, body: t.PatchedUpdateUserRequest, *, if_match: str = "*") -> t.User:
        """Change a user's role, or close the account (admin)."""
        return cast("t.User", self.call("PATCH", f"/users/{part(id)}/", body, if_match=if_match))

    def who_am_i(self) -> t.WhoAmI:
        """The account and role behind this request."""
        return cast("t.WhoAmI", self.call("GET", "/whoami/"))
