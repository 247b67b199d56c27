"""The one place that deletes: every rule is asked again at the last moment, of fresh rows and of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
from django.db import transaction
from muster_agent.decide.keeping import COMPLETE, Copy, colder_copies, why_not_retired
from muster_agent.decide.retention import Action, TierState, plan
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.copy_model import CopiedFile, CopyCursor, CopyTrouble
from muster_agent.jobs.copy_posix import same_mark
from muster_agent.jobs.copy_retire import Known, is_under_way, known_files, retire_folder
from muster_agent.jobs.copy_retire_objects import begin_removal, removal_began, remove_objects
from muster_agent.jobs.copy_source import files_at, place_for

from apps.checkpoints import placements
from apps.checkpoints.arrivals import record_departure
from apps.checkpoints.models import Placement, Shard, TrainingRun
from apps.transfers.facts import copies_of, rules_of, tier_states
from apps.transfers.models import RetentionPolicy, Transfer
from apps.transfers.reach import why_led_out
from apps.transfers.stores import store_for


class Stays(Exception):
    """The copy must not be removed; the message says why."""


def remove_source(transfer: Transfer, cursor: CopyCursor, check: Callable[[], None]) -> None:
    """Remove the source of a transfer, bytes first, then the row. Repeating it is harmless. Raises Stays where a rule
    speaks against it, CopyTrouble where the storage does."""
    placement = transfer.source
    if told := why_led_out(placement.path):
        raise CopyTrouble("out_of_reach", told)
    if is_bucket(placement.path):
        _remove_objects(transfer, cursor, check)
        return
    same_mark(placement.tier.uri, cursor.source_mark, "source_unreachable")
    under_way = is_under_way(placement.path, transfer.pk)
    if os.path.lexists(placement.path) and not under_way:
        ask_rules(transfer)
        known = _known(transfer, cursor)
        retire_folder(placement.path, placement.tier.uri, transfer.pk, known, check)
    else:
        # The rules were asked before it was put out of sight; nobody can read it any more, so it is finished, and
        # where nothing of it is left, the place that hid it goes.
        retire_folder(placement.path, placement.tier.uri, transfer.pk, None, check)
    record_departure(placement=placement, source_id=transfer.pk)


def _remove_objects(transfer: Transfer, cursor: CopyCursor, check: Callable[[], None]) -> None:
    placement = transfer.source
    store = store_for(placement.path)
    assert store is not None
    if not removal_began(store, placement.path, transfer.pk):
        ask_rules(transfer)
        begin_removal(store, placement.path, transfer.pk, _known(transfer, cursor))
    remove_objects(store, placement.path, transfer.pk, check)
    record_departure(placement=placement, source_id=transfer.pk)


# -- the rules ---------------------------------------------------------------------------------------------------------
def ask_rules(transfer: Transfer) -> None:
    """Raises Stays. From here on nobody can hold the copy, until `end_leaving`."""
    with transaction.atomic():
        placements.begin_leaving(placement=transfer.source, source_id=transfer.pk)
        colder = _ask_rows(transfer)
    if transfer.kind != Transfer.Kind.EXPIRE:
        _look_at_one(transfer, colder)


def _ask_rows(transfer: Transfer) -> Sequence[Copy]:
    """The verified colder copies, which are still to be looked at."""
    policy = transfer.migration.policy if transfer.migration is not None else None
    exempt_labels = policy.exempt_labels if policy is not None else []
    of_run = copies_of(TrainingRun.objects.filter(pk=transfer.checkpoint.run_id), exempt_labels=exempt_labels)
    mine = next((one for one in of_run if one.placement == transfer.source_id), None)
    if mine is None:
        raise Stays("it is not recorded as being there any more; scan its tier")
    if mine.status != COMPLETE:
        raise Stays(f"it is {mine.status}; only what is complete is removed")
    if mine.labels:
        raise Stays(f"its label {min(mine.labels)} is exempt")
    tiers = tier_states(transfer.cluster_id)
    if transfer.kind == Transfer.Kind.EXPIRE:
        _require_expired(mine, of_run, policy, tiers)
        return ()
    orders = {tier.tier: tier.order for tier in tiers}
    reasons = why_not_retired(mine, of_run, orders)
    if reasons:
        raise Stays("; ".join(reasons))
    return [one for one in colder_copies(mine, of_run, orders) if one.is_verified]


def _require_expired(
    mine: Copy, of_run: Sequence[Copy], policy: RetentionPolicy | None, tiers: Sequence[TierState]
) -> None:
    """Only a policy lets a copy go for good, and only if it still would."""
    if policy is None:
        raise Stays("only a policy lets a copy expire")
    fresh = [msgspec.structs.replace(one, transfer="") if one.placement == mine.placement else one for one in of_run]
    line = next(
        (one for one in plan(fresh, rules_of(policy), tiers).lines if one.copy.placement == mine.placement), None
    )
    if line is None or line.action is not Action.EXPIRE:
        raise Stays("; ".join(line.reasons) if line is not None else "the policy does not cover it any more")


# -- the disk ----------------------------------------------------------------------------------------------------------
def _look_at_one(transfer: Transfer, colder: Sequence[Copy]) -> None:
    """At least one verified colder copy must lie there now, every file with its size and time."""
    told = []
    for placement in Placement.objects.filter(pk__in=[one.placement for one in colder]).select_related("tier"):
        why = _why_not_there(transfer, placement)
        if not why:
            return
        told.append(f"its copy on {placement.tier.name} {why}")
    raise Stays("; ".join(told) or "there is no copy of it on a colder tier")


def _why_not_there(transfer: Transfer, placement: Placement) -> str:
    if not is_bucket(placement.path):
        same_mark(placement.tier.uri, [], "target_unreachable")
    shards = _shards(placement)
    there = place_for(placement.path, store_for(placement.path)).stat_all([path for path, _size, _mtime in shards])
    for (path, size_bytes, mtime_ns), seen in zip(shards, there, strict=True):
        if isinstance(seen.error, FileNotFoundError):
            return f"lacks {path} ({seen.error.strerror})"
        if seen.error is not None:
            raise CopyTrouble("target_unreachable", f"{seen.location or placement.path}: {seen.error.strerror}")
        if (seen.size_bytes, seen.mtime_ns) != (size_bytes, mtime_ns):
            return f"has another {path} than was proven"
    if transfer.kind == Transfer.Kind.RETIRE:
        return _what_it_lacks(transfer.source, placement)
    return ""


def _what_it_lacks(source: Placement, colder: Placement) -> str:
    """Files that belong to no shard are no part of what was verified, but they must not be lost either."""
    there = {(one.path, one.size_bytes) for one in _files(colder)}
    for one in _files(source):
        if (one.path, one.size_bytes) not in there and len(there) > 1:
            return f"lacks {one.path}"
    return ""


def _files(placement: Placement) -> list[CopiedFile]:
    return files_at(placement.path, placement.tier.uri, store_for(placement.path))[0]


def _shards(placement: Placement) -> list[Known]:
    rows = Shard.objects.filter(placement=placement).values_list("path", "size_bytes", "mtime_ns")
    return [(path, size, mtime) for path, size, mtime in rows if size is not None and mtime is not None]


def _known(transfer: Transfer, cursor: CopyCursor) -> list[Known]:
    """The files that may go: those that were copied, or all, where they are those that the evidence speaks of."""
    if cursor.is_surveyed:
        return known_files([*cursor.files, *cursor.left_out])
    source = transfer.source
    files = known_files(_files(source))
    recorded = {path for path, _size, _mtime in _shards(source)}
    if fingerprint(one for one in files if one[0] in recorded) != source.fingerprint:
        raise Stays("its files are not those of the last scan; scan its tier")
    return files
