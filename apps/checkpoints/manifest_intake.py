"""Manifests that a scan found beside the data: kept, linked and counted as a seal where they speak for these files."""

from __future__ import annotations

from collections.abc import Sequence

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.manifest.compare import matches
from muster_agent.manifest.model import Manifest, manifest_id
from muster_agent.protocol.trust import Trust

from apps.checkpoints import models
from apps.checkpoints.intake import Listed
from apps.checkpoints.manifests import manifest_row, sealed_at, store_tensors
from apps.core.errors import InvalidInput

SOURCE_KIND = "manifest"
_SOURCE_ID_CHARACTERS = 40
Entry = tuple[models.Placement, models.Checkpoint, Listed]


class ManifestIntake:
    """The manifests of one batch. Existing rows are looked up once for all."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._ids = {item.path: manifest_id(item.manifest) for _row, _checkpoint, item in entries if item.manifest}
        self._owners = dict(
            models.Manifest.objects.filter(pk__in=set(self._ids.values())).values_list("pk", "checkpoint")
        )
        self._new: dict[str, models.Manifest] = {}
        self._read: dict[str, Manifest] = {}
        self._evidence: list[models.TrustEvidence] = []
        self._findings: dict[str, tuple[Finding, ...]] = {}
        for _row, checkpoint, item in entries:
            self._admit(checkpoint, item)

    def _admit(self, checkpoint: models.Checkpoint, item: Listed) -> None:
        """Leave out a manifest that contradicts itself, or that came along with another checkpoint's folder."""
        if item.manifest is None:
            return
        identity = self._ids[item.path]
        if identity not in self._owners and item.manifest.step in (None, item.step):
            try:
                self._new[identity] = manifest_row(checkpoint, item.manifest)
                self._read[identity] = item.manifest
            except InvalidInput as error:
                self._ids.pop(item.path)
                self._findings[item.path] = (_unusable(item, error.detail),)
                return
            self._owners[identity] = checkpoint.pk
        if self._owners.get(identity) != checkpoint.pk:
            self._ids.pop(item.path)

    def take(
        self, row: models.Placement, item: Listed, standing: Sequence[models.TrustEvidence]
    ) -> models.TrustEvidence | None:
        """Link the manifest of one placement; gives new evidence where it speaks for exactly these files."""
        identity = self._ids.get(item.path)
        if identity is None or item.manifest is None:
            return None
        same, findings = matches(item.manifest, item.files())
        if same and len(item.files()) == len(item.manifest.shards):
            row.manifest_id = identity
            return self._seal(row, item.manifest, identity, standing)
        if _shares_files(item.manifest, item):
            row.manifest_id = row.manifest_id or identity
            self._findings[item.path] = findings
        return None

    def findings(self, item: Listed) -> tuple[Finding, ...]:
        """How the files differ from a manifest that still speaks for some of them."""
        return self._findings.get(item.path, ())

    def _seal(
        self, row: models.Placement, manifest: Manifest, identity: str, standing: Sequence[models.TrustEvidence]
    ) -> models.TrustEvidence | None:
        if any(proof.rung == Trust.SEALED and proof.fingerprint == row.fingerprint for proof in standing):
            return None
        proof = models.TrustEvidence(
            placement_id=row.pk,
            rung=Trust.SEALED.value,
            source_kind=SOURCE_KIND,
            source_id=identity[:_SOURCE_ID_CHARACTERS],
            fingerprint=row.fingerprint,
            detail={"manifest_id": identity, "origin": manifest.origin[:16]},
            at=sealed_at(manifest),
        )
        self._evidence.append(proof)
        return proof

    def write_manifests(self) -> None:
        models.Manifest.objects.bulk_create(self._new.values(), ignore_conflicts=True)
        for identity, manifest in self._read.items():
            store_tensors(identity, manifest)

    def write_evidence(self) -> None:
        """A seal that was voided and whose files are back (restored with their times) stands again."""
        models.TrustEvidence.objects.bulk_create(
            self._evidence,
            update_conflicts=True,
            unique_fields=["placement", "rung", "source_kind", "source_id"],
            update_fields=["fingerprint", "detail", "at", "voided_at", "void_reason"],
        )


def _unusable(item: Listed, detail: str) -> Finding:
    cure = "Remove the manifest and seal the checkpoint again, or copy the manifest back from another placement."
    return finding("metadata_unreadable", path=item.path, detail=detail, severity=Severity.WARNING, cure=cure)


def _shares_files(manifest: Manifest, item: Listed) -> bool:
    sealed = {(shard.path, shard.size_bytes, shard.mtime_ns) for shard in manifest.shards}
    return not sealed.isdisjoint(item.files())
