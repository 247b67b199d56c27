"""Asking a bucket's store for the check sums that it keeps, where the copy was sent with some."""

from __future__ import annotations

from muster_agent.formats.places import is_bucket
from muster_agent.jobs.store_word import ask_store, covered
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import VerifyBody

from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Placement, SentSums
from apps.core.errors import Conflict, InvalidInput
from apps.transfers.stores import store_for


def require(placement: Placement) -> None:
    """Raises InvalidInput where the store cannot be asked for every object of the copy."""
    if not is_bucket(placement.path):
        raise InvalidInput("Only the store of a bucket keeps check sums; verify this copy by reading it.")
    if placement.manifest is None or covered(load_manifest(placement.manifest), sums_of(placement)):
        raise InvalidInput(
            "It is not known with which check sums these objects were sent: only a transfer of Muster's own to a store "
            "that compares CRC-64/NVME or CRC-32C of whole objects tells. Verify this copy by reading it.",
            code="no_sums",
        )


def sums_of(placement: Placement) -> dict[str, str]:
    """By path; nothing where the files have changed since."""
    row = SentSums.objects.filter(placement=placement, fingerprint=placement.fingerprint).first()
    return {} if row is None else dict(row.sums)


def ask(placement: Placement, manifest: Manifest) -> VerifyBody:
    """See `ask_store`. Raises Conflict where the sums are not known any more."""
    store, sums = store_for(placement.path, placement.tier.store), sums_of(placement)
    if store is None or covered(manifest, sums):
        raise Conflict("The objects have changed since they were sent; verify the copy by reading it.")
    return ask_store(placement.path, manifest, sums, store)
