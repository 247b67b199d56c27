"""`manage.py drills stop --reason ... | allow`: the kill switch where the web process does not answer."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.drills import services

ACTOR = "manage.py"


class Command(BaseCommand):
    help = "Stop all drills everywhere, or allow them again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["stop", "allow"])
        parser.add_argument("--reason", default="", help="shown to whoever tries to start one")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["action"] == "allow":
            services.allow_drills(actor=ACTOR)
            self.stderr.write("Drills may run again.")
            return
        count = services.stop_all_drills(actor=ACTOR, reason=options["reason"])
        self.stderr.write(f"All drills are stopped; {count} were cancelled. `manage.py drills allow` takes it back.")
