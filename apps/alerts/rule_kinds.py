"""The kinds of rules: what each measures, in which unit, and what holds where no row says otherwise. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HOUR, DAY = 3600.0, 86_400.0
Unit = Literal["seconds", "ratio"]


@dataclass(frozen=True)
class Kind:
    """`unit` is the threshold's ("" where the kind has none): a condition is alerted on when what was measured is above
    the threshold. `by_run`: whether single runs can have a rule of their own."""

    says: str
    severity: str
    unit: Unit | Literal[""] = ""
    threshold: float | None = None
    most: float | None = None
    by_run: bool = True


KINDS: dict[str, Kind] = {
    "damage": Kind("A copy of a checkpoint is damaged, whoever found it.", "critical"),
    "drill_failed": Kind("The newest drill of a run failed or was lost: nothing was restored.", "critical"),
    "objective_breached": Kind(
        "The newest drill restored, but took longer than its objective, by this factor.", "warning", "ratio", 1.0, 100.0
    ),
    "not_verified": Kind(
        "A run in use has had no newly saved checkpoint that was verified, for longer than this.",
        "warning", "seconds", DAY, 3650 * DAY,
    ),
    "not_drilled": Kind(
        "A run in use was not drilled with a result, for longer than this.", "warning", "seconds", 30 * DAY, 3650 * DAY
    ),
    "agent_lost": Kind(
        "An agent is lost, and was not heard of for longer than this.", "warning", "seconds", 0.0, 30 * DAY,
        by_run=False,
    ),
    "schedule_missed": Kind("The newest occurrence of a plan or an audit policy did not run.", "warning"),
    "tier_unreadable": Kind("The newest scan could not list a tier, or was not believed.", "critical", by_run=False),
    "tier_behind": Kind("A run's newest checkpoints lie on one tier only.", "warning"),
    "tier_full": Kind(
        "The known copies fill more than this share of a tier's declared capacity.", "critical", "ratio", 0.9, 1.0,
        by_run=False,
    ),
    "transfer_stuck": Kind("A transfer failed, or met the same trouble again and again.", "warning"),
    "channel_disabled": Kind(
        "Muster disabled a channel, since nothing arrives there any more.", "critical", by_run=False
    ),
    "backup_old": Kind(
        "Muster's own database was not backed up (`manage.py backup`) for longer than this.", "warning", "seconds",
        2 * DAY, 3650 * DAY, by_run=False,
    ),
}  # fmt: skip
