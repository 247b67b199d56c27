"""Every operation of the REST API as a method; `client.Client` brings the transport."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from muster_agent.rest.operations.accounts import AccountsOperations
from muster_agent.rest.operations.alerts import AlertsOperations
from muster_agent.rest.operations.analysis import AnalysisOperations
from muster_agent.rest.operations.audits import AuditsOperations
from muster_agent.rest.operations.checkpoints import CheckpointsOperations
from muster_agent.rest.operations.drills import DrillsOperations
from muster_agent.rest.operations.fleet import FleetOperations
from muster_agent.rest.operations.placements import PlacementsOperations
from muster_agent.rest.operations.plans import PlansOperations
from muster_agent.rest.operations.recovery import RecoveryOperations
from muster_agent.rest.operations.runs import RunsOperations
from muster_agent.rest.operations.scans import ScansOperations
from muster_agent.rest.operations.storage import StorageOperations
from muster_agent.rest.operations.transfers import TransfersOperations


class Operations(
    AccountsOperations,
    AlertsOperations,
    AnalysisOperations,
    AuditsOperations,
    CheckpointsOperations,
    DrillsOperations,
    FleetOperations,
    PlacementsOperations,
    PlansOperations,
    RecoveryOperations,
    RunsOperations,
    ScansOperations,
    StorageOperations,
    TransfersOperations,
):
    """One method per operation. Lists give an iterator that turns the pages."""
