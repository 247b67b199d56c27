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
    def get_checkpoint(self, id: str, /) -> t.Checkpoint:
        """One checkpoint with its copies."""
        return cast("t.Checkpoint", self.call("GET", f"/checkpoints/{part(id)}/"))

    def get_checkpoint_marks(self, checkpoint: str, /) -> t.Marks:
        """Whether a checkpoint is pinned, and its labels."""
        return cast("t.Marks", self.call("GET", f"/checkpoints/{part(checkpoint)}/marks/"))

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

    def pin_checkpoint(self, checkpoint: str, /, body: t.PinRequest) -> t.Marks:
        """Keep a checkpoint for good, wherever it lies."""
        return cast("t.Marks", self.call("PUT", f"/checkpoints/{part(checkpoint)}/pin/", body))

    def register_checkpoints(self, body: t.RegisterCheckpointsRequest) -> t.Registered:
        """Tell of checkpoints that were saved: up to 1,000 copies, as JSON or one a line."""
        return cast("t.Registered", self.call("POST", "/checkpoints:batch/", body))

    def unpin_checkpoint(self, checkpoint: str, /) -> None:
        """Let policies decide again."""
        self.call("DELETE", f"/checkpoints/{part(checkpoint)}/pin/")
