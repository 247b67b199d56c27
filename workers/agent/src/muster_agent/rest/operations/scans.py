"""The operations on scans."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from muster_agent.rest.calling import Calling
from muster_agent.rest.transport import part

if TYPE_CHECKING:
    from typing import Unpack

    from muster_agent.rest import types as t


class ScansOperations(Calling):
    def cancel_scan(self, id: str, /) -> t.Scan:
        """Stop a scan."""
        return cast("t.Scan", self.call("POST", f"/scans/{part(id)}/cancel/"))

    def create_scan(self, body: t.CreateScanRequest) -> t.Scan:
        """Have a tier, or a folder of it, listed."""
        return cast("t.Scan", self.call("POST", "/scans/", body))

    def get_scan(self, id: str, /) -> t.Scan:
        """One inventory scan."""
        return cast("t.Scan", self.call("GET", f"/scans/{part(id)}/"))

    def get_scan_diff(self, id: str, /, **query: Unpack[t.GetScanDiffQuery]) -> t.InventoryDiff:
        """What differs between this inventory of a tier and an earlier one."""
        return cast("t.InventoryDiff", self.call("GET", f"/scans/{part(id)}/diff/", query=query))

    def get_stepless_checkpoint(self, id: str, /) -> t.SteplessCheckpoint:
        """One checkpoint whose step nothing tells."""
        return cast("t.SteplessCheckpoint", self.call("GET", f"/stepless-checkpoints/{part(id)}/"))

    def list_inventory_changes(self, **query: Unpack[t.ListInventoryChangesQuery]) -> Iterator[t.InventoryChange]:
        """What scans of any tier found different."""
        return cast("Iterator[t.InventoryChange]", self.items("/inventory-changes/", query))

    def list_scan_changes(self, scan: str, /, **query: Unpack[t.ListScanChangesQuery]) -> Iterator[t.ScanChange]:
        """What a scan found different."""
        return cast("Iterator[t.ScanChange]", self.items(f"/scans/{part(scan)}/changes/", query))

    def list_scans(self, **query: Unpack[t.ListScansQuery]) -> Iterator[t.Scan]:
        """List inventory scans."""
        return cast("Iterator[t.Scan]", self.items("/scans/", query))

    def list_stepless_checkpoints(
        self, **query: Unpack[t.ListSteplessCheckpointsQuery]
    ) -> Iterator[t.SteplessCheckpoint]:
        """Checkpoints whose step nothing tells."""
        return cast("Iterator[t.SteplessCheckpoint]", self.items("/stepless-checkpoints/", query))
