"""The two forms of the first steps; the pages of clusters and tiers have the rest."""

from __future__ import annotations

from django import forms

from apps.storage.models import StorageTier


class FirstClusterForm(forms.Form):
    name = forms.SlugField(max_length=63, initial="main", label="Name", help_text="As you call the cluster.")


class FirstTierForm(forms.Form):
    """Which storage, and where on it."""

    name = forms.SlugField(max_length=63, initial="fast", label="Name", help_text="Lower case: nvme, scratch, nas.")
    kind = forms.ChoiceField(choices=StorageTier.Kind.choices, initial=StorageTier.Kind.PARALLEL_FS, label="Kind")
    uri = forms.CharField(
        max_length=1024, label="Folder or bucket", help_text="As nodes see it: /mnt/ckpt, or s3://bucket/prefix."
    )
