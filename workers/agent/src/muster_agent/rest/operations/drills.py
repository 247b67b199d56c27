"""The operations on drills."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class DrillsOperations(Calling):
    def allow_drills(self) -> t.Control:
        """Let drills run again."""
        return cast("t.Control", self.call("POST", "/drill-control/allow/"))

    def approve_drill(self, id: str, /) -> t.DrillDetail:
        """Let a waiting disruptive drill begin that somebody else asked for."""
        return cast("t.DrillDetail", self.call("POST", f"/drills/{part(id)}/approve/"))

    def cancel_drill(self, id: str, /) -> t.DrillDetail:
        """Stop a drill within seconds."""
        return cast("t.DrillDetail", self.call("POST", f"/drills/{part(id)}/cancel/"))

    def compare_drills(self, **query: Unpack[t.CompareDrillsQuery]) -> t.Comparison:
        """Two to eight drills side by side: what was asked, really done, each phase, and a verdict."""
        return cast("t.Comparison", self.call("GET", "/drills/compare/", query=query))

    def create_drill(self, body: t.CreateDrillRequest) -> t.DrillDetail:
        """Start a drill."""
        return cast("t.DrillDetail", self.call("POST", "/drills/", body))

    def create_plan(self, body: t.CreatePlanRequest) -> t.Plan:
        """Plan a drill."""
        return cast("t.Plan", self.call("POST", "/plans/", body))

    def delete_plan(self, id: str, /, *, if_match: str = "*") -> None:
        """Delete a plan; its drills stay."""
        self.call("DELETE", f"/plans/{part(id)}/", if_match=if_match)

    def get_drill(self, id: str, /) -> t.DrillDetail:
        """One drill with its rounds."""
        return cast("t.DrillDetail", self.call("GET", f"/drills/{part(id)}/"))

    def get_drill_control(self) -> t.Control:
        """Whether drills may run."""
        return cast("t.Control", self.call("GET", "/drill-control/"))

    def get_drill_report(self, id: str, /) -> t.DrillReport:
        """A drill in one document: its story, every figure, each client, and what it does not prove."""
        return cast("t.DrillReport", self.call("GET", f"/drills/{part(id)}/report/"))

    def get_plan(self, id: str, /) -> t.Plan:
        """One drill plan."""
        return cast("t.Plan", self.call("GET", f"/plans/{part(id)}/"))

    def get_plan_calendar(self, **query: Unpack[t.GetPlanCalendarQuery]) -> t.Calendar:
        """When plans fire in the coming days, and which meet on one cluster."""
        return cast("t.Calendar", self.call("GET", "/plans/calendar/", query=query))

    def list_drill_events(self, drill: str, /, **query: Unpack[t.ListDrillEventsQuery]) -> Iterator[t.AgentEvent]:
        """What a drill's agents reported."""
        return cast("Iterator[t.AgentEvent]", self.items(f"/drills/{part(drill)}/events/", query))

    def list_drill_ranks(self, drill: str, /, **query: Unpack[t.ListDrillRanksQuery]) -> Iterator[t.RankResult]:
        """What each client of a drill measured."""
        return cast("Iterator[t.RankResult]", self.items(f"/drills/{part(drill)}/ranks/", query))

    def list_drills(self, **query: Unpack[t.ListDrillsQuery]) -> Iterator[t.Drill]:
        """List drills."""
        return cast("Iterator[t.Drill]", self.items("/drills/", query))

    def list_plan_occurrences(
        self, plan: str, /, **query: Unpack[t.ListPlanOccurrencesQuery]
    ) -> Iterator[t.Occurrence]:
        """The due times of a plan and what became of them."""
        return cast("Iterator[t.Occurrence]", self.items(f"/plans/{part(plan)}/occurrences/", query))

    def list_plans(self, **query: Unpack[t.ListPlansQuery]) -> Iterator[t.Plan]:
        """List drill plans."""
        return cast("Iterator[t.Plan]", self.items("/plans/", query))

    def pause_plans(self) -> t.Control:
        """Let no plan start a drill by itself, everywhere, until they are resumed."""
        return cast("t.Control", self.call("POST", "/drill-control/pause-plans/"))

    def preview_drill(self, body: t.CreateDrillRequest) -> t.Preview:
        """What a drill would touch, and what would keep it from beginning; nothing is started."""
        return cast("t.Preview", self.call("POST", "/drills/preview/", body))

    def resume_plans(self) -> t.Control:
        """Let plans start drills again."""
        return cast("t.Control", self.call("POST", "/drill-control/resume-plans/"))

    def start_plan(self, id: str, /) -> t.DrillDetail:
        """Run the plan's drill now."""
        return cast("t.DrillDetail", self.call("POST", f"/plans/{part(id)}/start/"))

    def stop_drills(self, body: t.StopDrillsRequest) -> t.Stopped:
        """Stop all drills, everywhere, until they are allowed again."""
        return cast("t.Stopped", self.call("POST", "/drill-control/stop/", body))

    def update_plan(self, id: str, /, body: t.PatchedUpdatePlanRequest, *, if_match: str = "*") -> t.Plan:
        """Change a plan; drills that already ran keep their settings."""
        return cast("t.Plan", self.call("PATCH", f"/plans/{part(id)}/", body, if_match=if_match))
