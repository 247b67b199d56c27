"""How the sign-in provider is reached. Its own host is this installation's word; every other host that its answers name
is somebody else's, so it is judged as a channel's is, and redirects are not followed.

Where the environment names a proxy, that connects in Muster's place, and judges.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from authlib.integrations.django_client.apps import DjangoOAuth2App
from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings
from muster_agent.storage.addresses import EVERYWHERE, Networks
from muster_agent.storage.judged_pools import judged_pools
from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class ProviderSession(OAuth2Session):  # type: ignore[misc]
    """Raises requests' ConnectionError, caused by AddressRefused, for a host that must not be reached, and
    TooManyRedirects at the first redirect."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.max_redirects = 0
        for prefix in ("http://", "https://"):
            self.mount(prefix, _JudgedAdapter())


class ProviderApp(DjangoOAuth2App):  # type: ignore[misc]
    """authlib's, over `ProviderSession`s."""

    client_cls = ProviderSession


class _JudgedAdapter(HTTPAdapter):
    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        super().init_poolmanager(*given, **named)
        self.poolmanager.pool_classes_by_scheme = judged_pools(HTTPConnectionPool, HTTPSConnectionPool, _networks_at)


def _networks_at(host: str) -> Networks:
    """Private networks are allowed at the provider's own host; metadata services nowhere."""
    own = urlsplit(settings.OIDC_ISSUER).hostname
    return EVERYWHERE if host.strip("[]").lower() == own else settings.ALLOWED_NETWORKS
