"""Hook records: what training processes on a node wrote, forwarded by its agent."""

from __future__ import annotations

from django.http import HttpRequest
from muster_agent.protocol.wire import HookBatch, HookReply

from apps.checkpoints.hooks import ingest_records
from apps.core.database import in_database
from apps.core.errors import InvalidInput
from apps.fleet.agent_api.auth import agent_view
from apps.fleet.models import Agent

MAX_RECORDS = 5000


@agent_view(HookBatch)
async def hook_records(request: HttpRequest, agent: Agent, message: HookBatch) -> HookReply:
    """Sending the same records again is harmless. `accepted` counts those that could be used."""
    if len(message.records) > MAX_RECORDS:
        raise InvalidInput(f"Send at most {MAX_RECORDS} records at once.", pointer="/records")
    return HookReply(accepted=await in_database(ingest_records, agent=agent, records=message.records))
