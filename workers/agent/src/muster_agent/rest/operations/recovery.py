"""The operations on recovery."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class RecoveryOperations(Calling):
    def get_first_steps(self, **query: Unpack[t.GetFirstStepsQuery]) -> t.FirstSteps:
        """How far a cluster has come to its first answer, and the request that does the next step."""
        return cast("t.FirstSteps", self.call("GET", "/first-steps/", query=query))

    def get_incident(self, id: str, /) -> t.Incident:
        """One disruption with its recovery."""
        return cast("t.Incident", self.call("GET", f"/incidents/{part(id)}/"))

    def get_operation(self, operation: str, /) -> t.Operation:
        """How far a drill, audit, transfer, repair, scan or measurement is, by its id."""
        return cast("t.Operation", self.call("GET", f"/operations/{part(operation)}/"))

    def get_readiness(self) -> t.ReadinessList:
        """Every run: if it died now. The worst first."""
        return cast("t.ReadinessList", self.call("GET", "/readiness/"))

    def list_incidents(self, **query: Unpack[t.ListIncidentsQuery]) -> Iterator[t.Incident]:
        """Real disruptions with their recoveries."""
        return cast("Iterator[t.Incident]", self.items("/incidents/", query))

    def list_objectives(self, **query: Unpack[t.ListObjectivesQuery]) -> Iterator[t.Objective]:
        """Every run against its objectives: passes, misses, budget, how sure that is. The worst first."""
        return cast("Iterator[t.Objective]", self.items("/objectives/", query))

    def list_operations(self) -> t.OperationList:
        """What runs now, of every kind, newest first; at most 200."""
        return cast("t.OperationList", self.call("GET", "/operations/"))

    def report_incident(self, body: t.ReportIncidentRequest) -> t.Incident:
        """Report a real disruption; the training hook's records measure the way back where there are any."""
        return cast("t.Incident", self.call("POST", "/incidents/", body))
