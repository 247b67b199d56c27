"""`manage.py verify_activity`: reads the whole chain of the activity log; exit 1 names the first broken entry."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts import activity


class Command(BaseCommand):
    help = "Check that no entry of the activity log was changed, removed or slipped in since it was written."

    def handle(self, *_args: Any, **_options: Any) -> None:
        found = activity.check()
        if found.broken_id is not None:
            raise CommandError(
                f"{found.problem} The chain holds up to entry {found.up_to_id} ({found.entry_count} entries)."
            )
        self.stdout.write(f"The chain holds up to entry {found.up_to_id}: {found.entry_count} entries.")
