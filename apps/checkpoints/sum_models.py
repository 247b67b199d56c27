"""The check sums that objects were sent with. Part of `models`, where others import them from."""

from __future__ import annotations

from django.db import models


class SentSums(models.Model):
    """Of one copy in a bucket that Muster made: the CRC of each object as it was sent, for asking the store later."""

    placement = models.OneToOneField("checkpoints.Placement", on_delete=models.CASCADE, related_name="sent_sums")
    fingerprint = models.CharField(max_length=32)
    """Of the files that they are of: after a change of any they say nothing."""
    sums = models.JSONField()
    """By the file's path, such as `crc64nvme:ae8b14860a799888`."""
    source_id = models.CharField(max_length=40)
    """The transfer that sent them."""
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"sums of {self.placement_id}"
