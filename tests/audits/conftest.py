"""Two tiers of real folders that the workers scan and audit; or the cold one in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import factories
import pytest

from apps.transfers import stores
from tests.servers.s3 import S3Server
from tests.transfers.conftest import Tiers, tiers

__all__ = ["Tiers", "bucket_tiers", "tiers"]


@pytest.fixture
def bucket_tiers(tiers: Tiers, s3_server: S3Server, settings: Any) -> Iterator[Tiers]:
    settings.WORKER_ROOTS = [*settings.WORKER_ROOTS, s3_server.place]
    stores._store.cache_clear()
    fields = {"kind": "object_store", "speed_order": 2, "scanned_by": "workers"}
    yield Tiers(tiers.hot, factories.tier(tiers.hot.cluster, "bucket", f"{s3_server.place}/cold", **fields))
    stores._store.cache_clear()
