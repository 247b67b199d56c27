"""The operations on storage."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class StorageOperations(Calling):
    def create_tier(self, body: t.CreateTierRequest) -> t.Tier:
        """Add a storage tier."""
        return cast("t.Tier", self.call("POST", "/tiers/", body))

    def create_tier_rate_limit(self, tier: str, /, body: t.CreateRateLimitRequest) -> t.RateLimit:
        """Limit how fast all transfers together may use a tier, in a window of the day."""
        return cast("t.RateLimit", self.call("POST", f"/tiers/{part(tier)}/rate-limits/", body))

    def delete_tier_rate_limit(self, id: str, tier: str, /) -> None:
        """Remove a rate limit."""
        self.call("DELETE", f"/tiers/{part(tier)}/rate-limits/{part(id)}/")

    def get_ceiling_run(self, id: str, /) -> t.CeilingRun:
        """One measurement of a tier's ceiling."""
        return cast("t.CeilingRun", self.call("GET", f"/ceiling-runs/{part(id)}/"))

    def get_tier(self, id: str, /) -> t.Tier:
        """One storage tier."""
        return cast("t.Tier", self.call("GET", f"/tiers/{part(id)}/"))

    def get_tier_comparison(self) -> t.TierComparison:
        """Tiers side by side, from measured drills only."""
        return cast("t.TierComparison", self.call("GET", "/tier-comparison/"))

    def list_ceiling_runs(self, **query: Unpack[t.ListCeilingRunsQuery]) -> Iterator[t.CeilingRun]:
        """List measurements of tiers' ceilings."""
        return cast("Iterator[t.CeilingRun]", self.items("/ceiling-runs/", query))

    def list_tier_ceilings(self, tier_id: str, /, **query: Unpack[t.ListTierCeilingsQuery]) -> Iterator[t.Ceiling]:
        """Best read rates measured on a tier."""
        return cast("Iterator[t.Ceiling]", self.items(f"/tiers/{part(tier_id)}/ceilings/", query))

    def list_tier_rate_limits(self, tier: str, /, **query: Unpack[t.ListTierRateLimitsQuery]) -> Iterator[t.RateLimit]:
        """How fast transfers may use a tier."""
        return cast("Iterator[t.RateLimit]", self.items(f"/tiers/{part(tier)}/rate-limits/", query))

    def list_tiers(self, **query: Unpack[t.ListTiersQuery]) -> Iterator[t.Tier]:
        """List storage tiers."""
        return cast("Iterator[t.Tier]", self.items("/tiers/", query))

    def measure_tier(self, id: str, /) -> t.CeilingRun:
        """Have an agent measure how fast a tier can be read."""
        return cast("t.CeilingRun", self.call("POST", f"/tiers/{part(id)}/measure/"))

    def update_tier(self, id: str, /, body: t.PatchedUpdateTierRequest, *, if_match: str = "*") -> t.Tier:
        """Change a storage tier."""
        return cast("t.Tier", self.call("PATCH", f"/tiers/{part(id)}/", body, if_match=if_match))
