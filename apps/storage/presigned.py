"""URLs that let a node read objects for a while without credentials of its own.

They are made from the credentials in this process's environment, for the endpoints in MUSTER_S3_ENDPOINTS, and only
where MUSTER_S3_PRESIGN is set: whoever holds such a URL can read the object until it ends. Signing asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from django.conf import settings
from muster_agent.formats.places import bucket_and_key, is_bucket
from muster_agent.storage.s3_client import S3Store, connect


def is_on(place: str) -> bool:
    """Whether nodes get signed URLs for what lies at this place."""
    return bool(settings.S3_PRESIGN) and is_bucket(place)


def urls_of(locations: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By `s3://bucket/key`, one URL per endpoint. Raises S3Unavailable or OSError where they cannot be signed."""
    signers = _signers(tuple(settings.S3_ENDPOINTS))
    return {location: _urls(signers, location) for location in locations}


def _urls(signers: tuple[S3Store, ...], location: str) -> tuple[str, ...]:
    bucket, key = bucket_and_key(location)
    return tuple(signer.signed_url(bucket, key, settings.S3_PRESIGN_SECONDS) for signer in signers)


@lru_cache(maxsize=8)
def _signers(endpoints: tuple[str, ...]) -> tuple[S3Store, ...]:
    return tuple(connect(endpoint) for endpoint in endpoints or (None,))
