"""The operations on transfers."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class TransfersOperations(Calling):
    def cancel_transfer(self, id: str, /) -> t.Transfer:
        """Stop a transfer and remove the part that was copied."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/cancel/"))

    def create_policy(self, body: t.CreatePolicyRequest) -> t.Policy:
        """Add a retention policy; it only plans until told otherwise."""
        return cast("t.Policy", self.call("POST", "/policies/", body))

    def create_transfer(self, body: t.CreateTransferRequest) -> t.Transfer:
        """Move, copy, stage or retire one copy of a checkpoint."""
        return cast("t.Transfer", self.call("POST", "/transfers/", body))

    def delete_policy(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a policy; its transfers go on."""
        self.call("DELETE", f"/policies/{part(id)}/", if_match=if_match)

    def get_policy(self, id: str, /) -> t.Policy:
        """One retention policy."""
        return cast("t.Policy", self.call("GET", f"/policies/{part(id)}/"))

    def get_policy_plan(self, id: str, /) -> t.PolicyPlan:
        """What the policy would do now, and why each other copy stays."""
        return cast("t.PolicyPlan", self.call("GET", f"/policies/{part(id)}/plan/"))

    def get_transfer(self, id: str, /) -> t.Transfer:
        """One transfer."""
        return cast("t.Transfer", self.call("GET", f"/transfers/{part(id)}/"))

    def list_policies(self, **query: Unpack[t.ListPoliciesQuery]) -> Iterator[t.Policy]:
        """List retention policies."""
        return cast("Iterator[t.Policy]", self.items("/policies/", query))

    def list_policy_migrations(
        self, policy: str, /, **query: Unpack[t.ListPolicyMigrationsQuery]
    ) -> Iterator[t.Migration]:
        """What a policy planned, each time it ran."""
        return cast("Iterator[t.Migration]", self.items(f"/policies/{part(policy)}/migrations/", query))

    def list_transfers(self, **query: Unpack[t.ListTransfersQuery]) -> Iterator[t.Transfer]:
        """List transfers."""
        return cast("Iterator[t.Transfer]", self.items("/transfers/", query))

    def pause_transfer(self, id: str, /) -> t.Transfer:
        """Let a transfer wait."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/pause/"))

    def resume_transfer(self, id: str, /) -> t.Transfer:
        """Let a paused transfer go on."""
        return cast("t.Transfer", self.call("POST", f"/transfers/{part(id)}/resume/"))

    def run_policy(self, id: str, /) -> t.Migration:
        """Run the policy now: record its plan and, unless it only plans, begin it."""
        return cast("t.Migration", self.call("POST", f"/policies/{part(id)}/run/"))

    def update_policy(self, id: str, /, body: t.PatchedUpdatePolicyRequest, *, if_match: str = "*") -> t.Policy:
        """Change a retention policy."""
        return cast("t.Policy", self.call("PATCH", f"/policies/{part(id)}/", body, if_match=if_match))
