"""Which run the checkpoints of a folder belong to.

On one tier a run has one folder: two folders of one name hold two trainings, and mixing them would resume one from the
other. Once decided, a folder keeps its run.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from apps.checkpoints.copies import strangers_to
from apps.checkpoints.intake import Listed
from apps.checkpoints.models import RunFolder, TrainingRun
from apps.checkpoints.runs import MAX_NAME_CHARACTERS, ensure_runs, is_name
from apps.storage.models import StorageTier

_DIGEST_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Claim:
    """A folder that has no run yet. `name` is what its run would be called by itself, `qualified` names its place
    on the tier, `with_tier` the tier too."""

    folder: str
    name: str
    qualified: str
    with_tier: str

    @property
    def unique(self) -> str:
        digest = hashlib.sha256(self.folder.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return f"{self.name[: MAX_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}-{digest}"


def folder_of(path: str) -> str:
    """The folder that holds the checkpoint at `path`."""
    return path.rpartition("/")[0]


def settle_runs(tier: StorageTier, accepted: Iterable[Listed]) -> None:
    """Name, in each checkpoint listed, the run that its folder has; folders that have none get theirs."""
    by_folder: dict[str, list[Listed]] = defaultdict(list)
    for item in accepted:
        by_folder[folder_of(item.path)].append(item)
    names = _names(tier)
    if not by_folder.keys() <= names.keys():
        names = _settle_new(tier, by_folder)
    for folder, items in by_folder.items():
        for item in items:
            item.run = names[folder]


@transaction.atomic
def _settle_new(tier: StorageTier, by_folder: Mapping[str, list[Listed]]) -> dict[str, str]:
    hold_tier(tier.pk)
    names = _names(tier)
    fresh = {path: items for path, items in by_folder.items() if path not in names}
    claims = [_claim(tier, path, items) for path, items in fresh.items()]
    wanted = {name for claim in claims for name in (claim.name, claim.qualified)}
    known = set(TrainingRun.objects.filter(cluster=tier.cluster, name__in=wanted).values_list("name", flat=True))
    strangers = strangers_to(tier, {(claim.folder, name): fresh[claim.folder] for claim in claims for name in
                                    known & {claim.name, claim.qualified}})  # fmt: skip
    shared = share_out(claims, taken=set(names.values()), known=known, strangers=strangers)
    runs = ensure_runs(tier.cluster, shared.values())
    RunFolder.objects.bulk_create(RunFolder(tier=tier, run=runs[name], path=path) for path, name in shared.items())
    return {**names, **shared}


def _names(tier: StorageTier) -> dict[str, str]:
    return dict(RunFolder.objects.filter(tier=tier).values_list("path", "run__name"))


def _claim(tier: StorageTier, folder: str, items: Sequence[Listed]) -> Claim:
    qualified = qualified_name(tier.uri, folder)
    return Claim(folder, items[0].run, qualified, f"{tier.name}.{qualified}".replace("/", "."))


def share_out(
    claims: Iterable[Claim], *, taken: set[str], known: set[str], strangers: Collection[tuple[str, str]] = ()
) -> dict[str, str]:
    """The run's name for each folder. Pure, and the same whatever the order of the claims: a folder whose qualified
    name is a run already (`known`: of another tier, or told by a hook) is that run's; else the highest folder has the
    plain name, and further folders that would be called the same are called after their place. `strangers`: (folder,
    name) where the folder holds another training than the run of that name."""
    names: dict[str, str] = {}
    used = set(taken)
    for claim in sorted(claims, key=lambda one: (one.qualified not in known, one.folder.count("/"), one.folder)):
        names[claim.folder] = next(
            name
            for name in _wishes(claim, known)
            if name not in used and is_name(name) and (claim.folder, name) not in strangers
        )
        used.add(names[claim.folder])
    return names


def qualified_name(root: str, folder: str) -> str:
    """The folder's place below the tier's root with dots, as lookups and addresses take it: `team2.llama`."""
    return folder.removeprefix(root.rstrip("/")).strip("/").replace("/", ".")


def _wishes(claim: Claim, known: set[str]) -> Iterator[str]:
    if claim.qualified in known:
        yield claim.qualified
    yield from (claim.name, claim.qualified, claim.with_tier, claim.unique)


def hold_tier(tier_id: str) -> None:
    """Make other writers of this tier's placements wait until the transaction ends; an update does so on every
    database, where `select_for_update` would be silently ignored on SQLite."""
    StorageTier.objects.filter(pk=tier_id).update(speed_order=F("speed_order"))
