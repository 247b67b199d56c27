"""The operations on runs."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class RunsOperations(Calling):
    def get_checklist(self, name_or_id: str, /, **query: Unpack[t.GetChecklistQuery]) -> t.Checklist:
        """A run's five validation steps with their last evidence, verdict and next action, and its score."""
        return cast("t.Checklist", self.call("GET", f"/runs/{part(name_or_id)}/checklist/", query=query))

    def get_resume_point(self, name_or_id: str, /, **query: Unpack[t.GetResumePointQuery]) -> t.ResumePoint:
        """Which checkpoint the run would resume from, and how long that would take."""
        return cast("t.ResumePoint", self.call("GET", f"/runs/{part(name_or_id)}/resume-point/", query=query))

    def get_run(self, id: str, /) -> t.Run:
        """One training run, by id or name."""
        return cast("t.Run", self.call("GET", f"/runs/{part(id)}/"))

    def list_run_attempts(self, run: str, /, **query: Unpack[t.ListRunAttemptsQuery]) -> Iterator[t.Attempt]:
        """Launches of a run."""
        return cast("Iterator[t.Attempt]", self.items(f"/runs/{part(run)}/attempts/", query))

    def list_run_steps(self, run: str, /, **query: Unpack[t.ListRunStepsQuery]) -> Iterator[t.Step]:
        """Steps that a run reported."""
        return cast("Iterator[t.Step]", self.items(f"/runs/{part(run)}/steps/", query))

    def list_runs(self, **query: Unpack[t.ListRunsQuery]) -> Iterator[t.Run]:
        """List training runs."""
        return cast("Iterator[t.Run]", self.items("/runs/", query))

    def update_run(self, id: str, /, body: t.PatchedUpdateRunRequest, *, if_match: str = "*") -> t.Run:
        """Set a run's objectives."""
        return cast("t.Run", self.call("PATCH", f"/runs/{part(id)}/", body, if_match=if_match))
