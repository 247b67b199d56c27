"""The rules that protect a copy, asked again at the last moment, of fresh rows. The storage is looked at afterwards
(`muster_agent.jobs.copy_removal`), right before the removal."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from django.db import transaction
from muster_agent.decide.keeping import COMPLETE, Copy, colder_copies, why_not_retired
from muster_agent.decide.retention import Action, TierState, plan
from muster_agent.jobs.copy_removal import Stays

from apps.checkpoints import placements
from apps.checkpoints.models import Placement, TrainingRun
from apps.transfers.facts import copies_of, rules_of, tier_states
from apps.transfers.models import RetentionPolicy, Transfer


@transaction.atomic
def ask_rules(transfer: Transfer) -> list[Placement]:
    """Raises Stays where a rule speaks against removing the source. From here on nobody can hold it, until
    `placements.end_leaving`. Gives the verified colder copies, of which one must be there when it goes."""
    placements.begin_leaving(placement=transfer.source, source_id=transfer.pk)
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
        return []
    orders = {tier.tier: tier.order for tier in tiers}
    reasons = why_not_retired(mine, of_run, orders)
    if reasons:
        raise Stays("; ".join(reasons))
    verified = [one.placement for one in colder_copies(mine, of_run, orders) if one.is_verified]
    return list(Placement.objects.filter(pk__in=verified).select_related("tier"))


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
