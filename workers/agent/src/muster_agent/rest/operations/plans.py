"""The operations on plans."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class PlansOperations(Calling):
    def create_plan(self, body: t.CreatePlanRequest) -> t.Plan:
        """Plan a drill."""
        return cast("t.Plan", self.call("POST", "/plans/", body))

    def delete_plan(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a plan; its drills stay."""
        self.call("DELETE", f"/plans/{part(id)}/", if_match=if_match)

    def get_plan(self, id: str, /) -> t.Plan:
        """One drill plan."""
        return cast("t.Plan", self.call("GET", f"/plans/{part(id)}/"))

    def get_plan_calendar(self, **query: Unpack[t.GetPlanCalendarQuery]) -> t.Calendar:
        """When plans fire in the coming days, and which meet on one cluster."""
        return cast("t.Calendar", self.call("GET", "/plans/calendar/", query=query))

    def list_plan_occurrences(
        self, plan: str, /, **query: Unpack[t.ListPlanOccurrencesQuery]
    ) -> Iterator[t.Occurrence]:
        """The due times of a plan and what became of them."""
        return cast("Iterator[t.Occurrence]", self.items(f"/plans/{part(plan)}/occurrences/", query))

    def list_plans(self, **query: Unpack[t.ListPlansQuery]) -> Iterator[t.Plan]:
        """List drill plans."""
        return cast("Iterator[t.Plan]", self.items("/plans/", query))

    def start_plan(self, id: str, /) -> t.DrillDetail:
        """Run the plan's drill now."""
        return cast("t.DrillDetail", self.call("POST", f"/plans/{part(id)}/start/"))

    def update_plan(self, id: str, /, body: t.PatchedUpdatePlanRequest, *, if_match: str = "*") -> t.Plan:
        """Change a plan; drills that already ran keep their settings."""
        return cast("t.Plan", self.call("PATCH", f"/plans/{part(id)}/", body, if_match=if_match))
