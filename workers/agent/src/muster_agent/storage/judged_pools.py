"""Connection pools of urllib3 that connect only to judged addresses (`addresses`)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from muster_agent.storage.addresses import AddressRefused, Networks, connect_to, resolve


def judged_pools(plain: Any, tls: Any, networks_at: Callable[[str], Networks]) -> dict[str, Any]:
    """For a pool manager's `pool_classes_by_scheme`. `plain` and `tls` are the classes of pools to build on;
    `networks_at` gives a host's allowed networks. Each connection goes to an address that was judged right before it;
    another one raises AddressRefused."""
    return {
        scheme: type(f"Judged{pool.__name__}", (pool,), {"ConnectionCls": _judged(pool.ConnectionCls, networks_at)})
        for scheme, pool in (("http", plain), ("https", tls))
    }


def _judged(connection: Any, networks_at: Callable[[str], Networks]) -> Any:
    from urllib3.exceptions import NewConnectionError

    def new_conn(self: Any) -> socket.socket:
        try:
            timeout = self.timeout if isinstance(self.timeout, int | float) else None
            return connect_to(resolve(self._dns_host, self.port, networks_at(self.host)), timeout)
        except AddressRefused:
            raise
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, f"no connection was made: {error}") from error

    return type(f"Judged{connection.__name__}", (connection,), {"_new_conn": new_conn})
