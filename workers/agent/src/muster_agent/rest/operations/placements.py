"""The operations on placements."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class PlacementsOperations(Calling):
    def explain_placement(self, id: str, /) -> t.Explanation:
        """Which rule said what about a copy, in words."""
        return cast("t.Explanation", self.call("GET", f"/placements/{part(id)}/explanation/"))

    def get_placement(self, id: str, /) -> t.Placement:
        """One copy."""
        return cast("t.Placement", self.call("GET", f"/placements/{part(id)}/"))

    def get_rank_shard_audit(self, placement: str, /) -> t.RankShardAudit:
        """How a copy's bytes are cut for its ranks, and the seconds that a better cut is predicted to save."""
        return cast("t.RankShardAudit", self.call("GET", f"/placements/{part(placement)}/rank-shards/"))

    def list_findings(self, **query: Unpack[t.ListFindingsQuery]) -> Iterator[t.Finding]:
        """List findings."""
        return cast("Iterator[t.Finding]", self.items("/findings/", query))

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
