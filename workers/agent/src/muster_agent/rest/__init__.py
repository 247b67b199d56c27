"""The REST API of a control plane, typed: `Client` has a method for every operation.

from muster_agent.rest import Client

client = Client("https://muster.example", token=token)
drill = client.create_drill({"run": "llama-70b", "kind": "reload"})
for checkpoint in client.list_checkpoints(run="llama-70b"):
    print(checkpoint["step"], checkpoint["total_bytes"])
"""

from __future__ import annotations

from muster_agent.rest.client import Client, etag_of
from muster_agent.rest.errors import AddressRefused, ApiError, Unreachable

__all__ = ["AddressRefused", "ApiError", "Client", "Unreachable", "etag_of"]
