"""A boto3 client that connects only to judged addresses, and straight: through no proxy."""

from __future__ import annotations

from typing import Any

from muster_agent.storage.addresses import Networks
from muster_agent.storage.judged_pools import judged_pools


def judge_connections(client: Any, networks: Networks) -> None:
    """Every connection that the client makes from now on goes to an address that was judged right before it."""
    from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool

    pools = judged_pools(AWSHTTPConnectionPool, AWSHTTPSConnectionPool, lambda _host: networks)
    client._endpoint.http_session._manager.pool_classes_by_scheme = pools
