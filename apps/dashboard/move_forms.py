"""The form that moves one copy by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.storage.models import StorageTier
from apps.transfers.models import RetentionPolicy, Transfer

KINDS = (
    (Transfer.Kind.COPY.value, "Copy: the source stays"),
    (Transfer.Kind.STAGE.value, "Stage: copy to a faster tier, before a drill or a recovery"),
    (Transfer.Kind.MOVE.value, "Move: remove the source once the copy on a slower tier is proven"),
    (Transfer.Kind.RETIRE.value, "Retire: remove this copy; a verified one lies on a slower tier"),
)


class MoveForm(forms.Form):
    """What, where to, and how it is proven."""

    kind = forms.ChoiceField(choices=KINDS, label="What to do")
    proof = forms.ChoiceField(
        choices=RetentionPolicy.Proof.choices,
        initial=RetentionPolicy.Proof.READ_BACK,
        label="Proven by",
        help_text="The store's checksum counts only in buckets; else the copy is read back.",
    )
    where = forms.ChoiceField(
        choices=RetentionPolicy.Where.choices,
        initial=RetentionPolicy.Where.AS_REACHED,
        label="Moved by",
        help_text="Agents read and write on their own node, below their --copy-root.",
    )
    max_mb_per_second = forms.IntegerField(
        required=False, min_value=1, label="Cap, MB/s", help_text="Empty: only the tiers' own limits."
    )

    field_order = ("kind", "tier", "proof", "where", "max_mb_per_second")

    def __init__(self, *args: Any, tiers: Sequence[StorageTier], source: StorageTier, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tiers = {tier.pk: tier for tier in tiers}
        names = [(tier.pk, f"{tier.name} ({_speed(tier, source)} than {source.name})") for tier in tiers]
        self.fields["tier"] = forms.ChoiceField(
            choices=[("", "none, for Retire"), *names], required=False, label="To the tier"
        )
        self.order_fields(self.field_order)

    def wishes(self) -> dict[str, Any]:
        """For `request_transfer`."""
        given = self.cleaned_data
        cap = given["max_mb_per_second"]
        wishes = {"kind": given["kind"], "target_tier": self._tiers.get(given["tier"]), "proof": given["proof"]}
        return {**wishes, "where": given["where"], "max_bytes_per_second": cap * 1_000_000 if cap else None}


def _speed(tier: StorageTier, source: StorageTier) -> str:
    if tier.speed_order == source.speed_order:
        return "no faster or slower"
    return "faster" if tier.speed_order < source.speed_order else "slower"
