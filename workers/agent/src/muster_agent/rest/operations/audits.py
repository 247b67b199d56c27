"""The operations on audits."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class AuditsOperations(Calling):
    def cancel_audit(self, id: str, /) -> t.Audit:
        """Stop an audit."""
        return cast("t.Audit", self.call("POST", f"/audits/{part(id)}/cancel/"))

    def cancel_repair(self, id: str, /) -> t.Repair:
        """Stop a repair; chunks that were rewritten stay."""
        return cast("t.Repair", self.call("POST", f"/repairs/{part(id)}/cancel/"))

    def create_audit(self, body: t.CreateAuditRequest) -> t.Audit:
        """Seal a placement, verify it, or look at its structure."""
        return cast("t.Audit", self.call("POST", "/audits/", body))

    def create_audit_policy(self, body: t.CreateAuditPolicyRequest) -> t.AuditPolicy:
        """Add an audit policy."""
        return cast("t.AuditPolicy", self.call("POST", "/audit-policies/", body))

    def create_repair(self, body: t.CreateRepairRequest) -> t.Repair:
        """Rewrite the bad chunks of a damaged copy from another one that is verified."""
        return cast("t.Repair", self.call("POST", "/repairs/", body))

    def delete_audit_policy(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete an audit policy; its audits stay."""
        self.call("DELETE", f"/audit-policies/{part(id)}/", if_match=if_match)

    def get_audit(self, id: str, /) -> t.Audit:
        """One audit."""
        return cast("t.Audit", self.call("GET", f"/audits/{part(id)}/"))

    def get_audit_policy(self, id: str, /) -> t.AuditPolicy:
        """One audit policy."""
        return cast("t.AuditPolicy", self.call("GET", f"/audit-policies/{part(id)}/"))

    def get_audit_report(self, id: str, /) -> t.AuditReport:
        """The evidence of an audit in one document: who, when, against which seal, and what it proves."""
        return cast("t.AuditReport", self.call("GET", f"/audits/{part(id)}/report/"))

    def get_repair(self, id: str, /) -> t.Repair:
        """One repair."""
        return cast("t.Repair", self.call("GET", f"/repairs/{part(id)}/"))

    def list_audit_policies(self, **query: Unpack[t.ListAuditPoliciesQuery]) -> Iterator[t.AuditPolicy]:
        """List audit policies."""
        return cast("Iterator[t.AuditPolicy]", self.items("/audit-policies/", query))

    def list_audit_rounds(self, policy: str, /, **query: Unpack[t.ListAuditRoundsQuery]) -> Iterator[t.AuditRound]:
        """The due times of a policy and what became of them."""
        return cast("Iterator[t.AuditRound]", self.items(f"/audit-policies/{part(policy)}/rounds/", query))

    def list_audits(self, **query: Unpack[t.ListAuditsQuery]) -> Iterator[t.Audit]:
        """List audits."""
        return cast("Iterator[t.Audit]", self.items("/audits/", query))

    def list_repairs(self, **query: Unpack[t.ListRepairsQuery]) -> Iterator[t.Repair]:
        """List repairs."""
        return cast("Iterator[t.Repair]", self.items("/repairs/", query))

    def run_audit_policy(self, id: str, /) -> t.AuditRound:
        """Audit now what the policy is for."""
        return cast("t.AuditRound", self.call("POST", f"/audit-policies/{part(id)}/run/"))

    def update_audit_policy(
        self, id: str, /, body: t.PatchedUpdateAuditPolicyRequest, *, if_match: str = "*"
    ) -> t.AuditPolicy:
        """Change an audit policy; another mode or ratio begins a new rotation."""
        return cast("t.AuditPolicy", self.call("PATCH", f"/audit-policies/{part(id)}/", body, if_match=if_match))
