"""Who may do what: users (people and services), their tokens, and the log of what they did."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models

from apps.core.fields import IdField


class Role(models.TextChoices):
    """In ascending order: each may do all that the ones before it may."""

    NONE = "", "None (only cluster grants)"
    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


RANK = {Role.NONE: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}


class User(AbstractUser):
    """A person or, with `is_service`, a service account. `role` holds on every cluster; grants add single clusters."""

    role = models.CharField(max_length=16, choices=Role, default=Role.NONE, blank=True)
    is_service = models.BooleanField(default=False)


class Identity(models.Model):
    """Who a user is at an OpenID Connect provider. A subject is never given to another person; a name may be."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="subject_once_at_issuer")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class ApiToken(models.Model):
    """A bearer token `mst_...`, kept only as SHA-256. It never gives more than its user's own role."""

    id = IdField(prefix="tok")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    secret_sha256 = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class AppendOnly(RuntimeError):
    """An entry of the activity log was to be changed or removed."""


class ActivityEntries(models.QuerySet["ActivityEntry"]):
    """Entries are read and added (`activity.append`), nothing else; the database refuses it as well."""

    def update(self, **_changes: Any) -> int:
        raise AppendOnly("The activity log is only added to; an entry is never changed.")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnly("The activity log is only added to; an entry is never removed.")


class ActivityEntry(models.Model):
    """One thing somebody did; append-only, and chained: see `activity_chain`."""

    at = models.DateTimeField(db_index=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    cluster_id = models.CharField(max_length=40, blank=True)
    """No key: an entry outlives what it speaks of. Empty where it is about no one cluster."""
    request_id = models.CharField(max_length=64, blank=True)
    """Of the request that did it, or that woke the task which did; empty on the command line."""
    detail = models.JSONField(default=dict)
    previous = models.CharField(max_length=64, unique=True)
    """The digest of the entry before. Unique: a chain does not fork."""
    digest = models.CharField(max_length=64)

    objects = ActivityEntries.as_manager()

    class Meta:
        indexes = [models.Index(fields=["action", "-at"], name="activity_newest_of_action")]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target_kind} {self.target_id}"

    def save(self, *_args: Any, **_options: Any) -> None:
        raise AppendOnly("Entries of the activity log are added by `log_activity`, and never changed.")

    def delete(self, *_args: Any, **_options: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnly("The activity log is only added to; an entry is never removed.")


class ActivityHead(models.Model):
    """Where the chain ends: one row. Who adds an entry takes it first."""

    last_id = models.BigIntegerField()
    digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"entry {self.last_id}"


class ActivityCheck(models.Model):
    """One reading of the whole chain, and what it found. `broken_id` is the first entry that does not hold."""

    at = models.DateTimeField()
    up_to_id = models.BigIntegerField()
    entry_count = models.BigIntegerField()
    broken_id = models.BigIntegerField(null=True)
    problem = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.problem or f"holds up to entry {self.up_to_id}"


class SavedView(models.Model):
    """The query of a list under a name: one's own, or for everybody who signs in."""

    id = IdField(prefix="vew")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    list_name = models.CharField(max_length=32)
    name = models.CharField(max_length=100)
    query = models.CharField(max_length=2000, blank=True)
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "list_name", "name"], name="view_name_of_owner")]
        indexes = [models.Index(fields=["list_name", "shared"], name="view_of_list")]

    def __str__(self) -> str:
        return self.name
