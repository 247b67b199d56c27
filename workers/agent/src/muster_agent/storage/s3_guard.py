"""A boto3 client that connects only to judged addresses, and straight: through no proxy."""

from __future__ import annotations

import socket
from typing import Any

from muster_agent.storage.addresses import AddressRefused, Networks, connect_to, resolve


def judge_connections(client: Any, networks: Networks) -> None:
    """Every connection that the client makes from now on goes to an address that was judged right before it."""
    from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
    from urllib3.exceptions import NewConnectionError

    def new_conn(self: Any) -> socket.socket:
        try:
            timeout = self.timeout if isinstance(self.timeout, int | float) else None
            return connect_to(resolve(self._dns_host, self.port, networks), timeout)
        except AddressRefused:
            raise
        except OSError as error:
            raise NewConnectionError(self, f"no connection was made: {error}") from error

    judged = {"_new_conn": new_conn}
    plain = type("JudgedConnection", (AWSHTTPConnection,), judged)
    tls = type("JudgedTLSConnection", (AWSHTTPSConnection,), judged)
    client._endpoint.http_session._manager.pool_classes_by_scheme = {
        "http": type("JudgedPool", (AWSHTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("JudgedTLSPool", (AWSHTTPSConnectionPool,), {"ConnectionCls": tls}),
    }
