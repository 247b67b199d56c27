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

    def get_drill(self, id: str, /) -> t.DrillDetail:
        """One drill with its rounds."""
        return cast("t.DrillDetail", self.call("GET", f"/drills/{part(id)}/"))

    def get_drill_control(self) -> t.Control:
        """Whether drills may run."""
        return cast("t.Control", self.call("GET", "/drill-control/"))

    def get_drill_report(self, id: str, /) -> t.DrillReport:
        """A drill in one document: its story, every figure, each client, and what it does not prove."""
        return cast("t.DrillReport", self.call("GET", f"/drills/{part(id)}/report/"))

    def list_drill_events(self, drill: str, /, **query: Unpack[t.ListDrillEventsQuery]) -> Iterator[t.AgentEvent]:
        """What a drill's agents reported."""
        return cast("Iterator[t.AgentEvent]", self.items(f"/drills/{part(drill)}/events/", query))

    def list_drill_ranks(self, drill: str, /, **query: Unpack[t.ListDrillRanksQuery]) -> Iterator[t.RankResult]:
        """What each client of a drill measured."""
        return cast("Iterator[t.RankResult]", self.items(f"/drills/{part(drill)}/ranks/", query))

    def list_drills(self, **query: Unpack[t.ListDrillsQuery]) -> Iterator[t.Drill]:
        """List drills."""
        return cast("Iterator[t.Drill]", self.items("/drills/", query))

    def pause_plans(self) -> t.Control:
        """Let no plan start a drill by itself, everywhere, until they are resumed."""
        return cast("t.Control", self.call("POST", "/drill-control/pause-plans/"))

    def preview_drill(self, body: t.CreateDrillRequest) -> t.Preview:
        """What a drill would touch, and what would keep it from beginning; nothing is started."""
        return cast("t.Preview", self.call("POST", "/drills/preview/", body))

    def resume_plans(self) -> t.Control:
        """Let plans start drills again."""
        return cast("t.Control", self.call("POST", "/drill-control/resume-plans/"))

    def stop_drills(self, body: t.StopDrillsRequest) -> t.Stopped:
        """Stop all drills, everywhere, until they are allowed again."""
        return cast("t.Stopped", self.call("POST", "/drill-control/stop/", body))
