"""The operations on checkpoints."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class CheckpointsOperations(Calling):
    def cancel_scan(self, id: str, /) -> t.Scan:
        """Stop a scan."""
        return cast("t.Scan", self.call("POST", f"/scans/{part(id)}/cancel/"))

    def create_scan(self, body: t.CreateScanRequest) -> t.Scan:
        """Have a tier, or a folder of it, listed."""
        return cast("t.Scan", self.call("POST", "/scans/", body))

    def explain_placement(self, id: str, /) -> t.Explanation:
        """Which rule said what about a copy, in words."""
        return cast("t.Explanation", self.call("GET", f"/placements/{part(id)}/explanation/"))

    def get_checklist(self, name_or_id: str, /, **query: Unpack[t.GetChecklistQuery]) -> t.Checklist:
        """A run's five validation steps with their last evidence, verdict and next action, and its score."""
        return cast("t.Checklist", self.call("GET", f"/runs/{part(name_or_id)}/checklist/", query=query))

    def get_checkpoint(self, id: str, /) -> t.Checkpoint:
        """One checkpoint with its copies."""
        return cast("t.Checkpoint", self.call("GET", f"/checkpoints/{part(id)}/"))

    def get_checkpoint_marks(self, checkpoint: str, /) -> t.Marks:
        """Whether a checkpoint is pinned, and its labels."""
        return cast("t.Marks", self.call("GET", f"/checkpoints/{part(checkpoint)}/marks/"))

    def get_placement(self, id: str, /) -> t.Placement:
        """One copy."""
        return cast("t.Placement", self.call("GET", f"/placements/{part(id)}/"))

    def get_rank_shard_audit(self, placement: str, /) -> t.RankShardAudit:
        """How a copy's bytes are cut for its ranks, and the seconds that a better cut is predicted to save."""
        return cast("t.RankShardAudit", self.call("GET", f"/placements/{part(placement)}/rank-shards/"))

    def get_resume_point(self, name_or_id: str, /, **query: Unpack[t.GetResumePointQuery]) -> t.ResumePoint:
        """Which checkpoint the run would resume from, and how long that would take."""
        return cast("t.ResumePoint", self.call("GET", f"/runs/{part(name_or_id)}/resume-point/", query=query))

    def get_run(self, id: str, /) -> t.Run:
        """One training run, by id or name."""
        return cast("t.Run", self.call("GET", f"/runs/{part(id)}/"))

    def get_scan(self, id: str, /) -> t.Scan:
        """One inventory scan."""
        return cast("t.Scan", self.call("GET", f"/scans/{part(id)}/"))

    def get_scan_diff(self, id: str, /, **query: Unpack[t.GetScanDiffQuery]) -> t.InventoryDiff:
        """What differs between this inventory of a tier and an earlier one."""
        return cast("t.InventoryDiff", self.call("GET", f"/scans/{part(id)}/diff/", query=query))

    def get_stepless_checkpoint(self, id: str, /) -> t.SteplessCheckpoint:
        """One checkpoint whose step nothing tells."""
        return cast("t.SteplessCheckpoint", self.call("GET", f"/stepless-checkpoints/{part(id)}/"))

    def label_checkpoint(self, checkpoint: str, /, body: t.LabelsRequest) -> t.Marks:
        """Make these the checkpoint's labels."""
        return cast("t.Marks", self.call("PUT", f"/checkpoints/{part(checkpoint)}/labels/", body))

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

    def list_findings(self, **query: Unpack[t.ListFindingsQuery]) -> Iterator[t.Finding]:
        """List findings."""
        return cast("Iterator[t.Finding]", self.items("/findings/", query))

    def list_inventory_changes(self, **query: Unpack[t.ListInventoryChangesQuery]) -> Iterator[t.InventoryChange]:
        """What scans of any tier found different."""
        return cast("Iterator[t.InventoryChange]", self.items("/inventory-changes/", query))

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

    def list_run_attempts(self, run: str, /, **query: Unpack[t.ListRunAttemptsQuery]) -> Iterator[t.Attempt]:
        """Launches of a run."""
        return cast("Iterator[t.Attempt]", self.items(f"/runs/{part(run)}/attempts/", query))

    def list_run_steps(self, run: str, /, **query: Unpack[t.ListRunStepsQuery]) -> Iterator[t.Step]:
        """Steps that a run reported."""
        return cast("Iterator[t.Step]", self.items(f"/runs/{part(run)}/steps/", query))

    def list_runs(self, **query: Unpack[t.ListRunsQuery]) -> Iterator[t.Run]:
        """List training runs."""
        return cast("Iterator[t.Run]", self.items("/runs/", query))

    def list_scan_changes(self, scan: str, /, **query: Unpack[t.ListScanChangesQuery]) -> Iterator[t.ScanChange]:
        """What a scan found different."""
        return cast("Iterator[t.ScanChange]", self.items(f"/scans/{part(scan)}/changes/", query))

    def list_scans(self, **query: Unpack[t.ListScansQuery]) -> Iterator[t.Scan]:
        """List inventory scans."""
        return cast("Iterator[t.Scan]", self.items("/scans/", query))

    def list_stepless_checkpoints(
        self, **query: Unpack[t.ListSteplessCheckpointsQuery]
    ) -> Iterator[t.SteplessCheckpoint]:
        """Checkpoints whose step nothing tells."""
        return cast("Iterator[t.SteplessCheckpoint]", self.items("/stepless-checkpoints/", query))

    def pin_checkpoint(self, checkpoint: str, /, body: t.PinRequest) -> t.Marks:
        """Keep a checkpoint for good, wherever it lies."""
        return cast("t.Marks", self.call("PUT", f"/checkpoints/{part(checkpoint)}/pin/", body))

    def register_checkpoints(self, body: t.RegisterCheckpointsRequest) -> t.Registered:
        """Tell of checkpoints that were saved: up to 1,000 copies, as JSON or one a line."""
        return cast("t.Registered", self.call("POST", "/checkpoints:batch/", body))

    def unpin_checkpoint(self, checkpoint: str, /) -> None:
        """Let policies decide again."""
        self.call("DELETE", f"/checkpoints/{part(checkpoint)}/pin/")

    def update_run(self, id: str, /, body: t.PatchedUpdateRunRequest, *, if_match: str = "*") -> t.Run:
        """Set a run's objectives."""
        return cast("t.Run", self.call("PATCH", f"/runs/{part(id)}/", body, if_match=if_match))
