"""Two tiers of real folders that the workers scan and audit."""

from __future__ import annotations

from tests.transfers.conftest import Tiers, tiers

__all__ = ["Tiers", "tiers"]
