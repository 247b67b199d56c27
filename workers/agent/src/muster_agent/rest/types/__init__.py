"""Every body and every query of the REST API. Times are ISO 8601 in UTC."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from muster_agent.rest.types.accounts import *  # noqa: F403
from muster_agent.rest.types.alerts import *  # noqa: F403
from muster_agent.rest.types.analysis import *  # noqa: F403
from muster_agent.rest.types.audits import *  # noqa: F403
from muster_agent.rest.types.checkpoints import *  # noqa: F403
from muster_agent.rest.types.drills import *  # noqa: F403
from muster_agent.rest.types.fleet import *  # noqa: F403
from muster_agent.rest.types.placements import *  # noqa: F403
from muster_agent.rest.types.plans import *  # noqa: F403
from muster_agent.rest.types.recovery import *  # noqa: F403
from muster_agent.rest.types.runs import *  # noqa: F403
from muster_agent.rest.types.scans import *  # noqa: F403
from muster_agent.rest.types.shared import *  # noqa: F403
from muster_agent.rest.types.storage import *  # noqa: F403
from muster_agent.rest.types.transfers import *  # noqa: F403
