"""The operations on analysis."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class AnalysisOperations(Calling):
    def get_advice(self, **query: Unpack[t.GetAdviceQuery]) -> t.Advice:
        """How often to save, how many spares, and what failures cost, with the source of every input."""
        return cast("t.Advice", self.call("GET", "/advice/", query=query))

    def get_rto_groups(self, **query: Unpack[t.GetRtoGroupsQuery]) -> t.Groups:
        """Drills of one kind by run, tier, format or node group: spread, objective, budget, regression."""
        return cast("t.Groups", self.call("GET", "/rto-groups/", query=query))

    def get_rto_history(self, **query: Unpack[t.GetRtoHistoryQuery]) -> t.History:
        """A run's drills of one kind with phases, and what they prove together."""
        return cast("t.History", self.call("GET", "/rto-history/", query=query))

    def get_what_if(self, **query: Unpack[t.GetWhatIfQuery]) -> t.WhatIf:
        """Predicted time to resume for sizes and readers that were never drilled, and what an objective needs."""
        return cast("t.WhatIf", self.call("GET", "/what-if/", query=query))
