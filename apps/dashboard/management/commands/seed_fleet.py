"""`manage.py seed_fleet`: a made-up fleet of a given size, to try a database and a server with."""

from __future__ import annotations

from random import Random
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from django.utils import timezone

from apps.dashboard.seeding import history, storage
from apps.dashboard.seeding.size import Size
from apps.fleet.models import Cluster

_OPTIONS = {
    "checkpoints": "checkpoints in all",
    "shards_each": "shards of each checkpoint",
    "drills": "drills in all",
    "nodes": "nodes in all",
    "runs": "training runs",
    "clusters": "clusters",
}


class Command(BaseCommand):
    help = "Fill an empty database with a made-up fleet, to try it and a server with."

    def add_arguments(self, parser: CommandParser) -> None:
        for name, words in _OPTIONS.items():
            default = getattr(Size, name)
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=int, default=default, help=f"{words} (default {default:,})"
            )
        parser.add_argument(
            "--beside-existing-rows", action="store_true", help="also where the database holds clusters already"
        )
        parser.add_argument("--seed", type=int, default=1, help="of what is drawn by chance (default 1)")

    def handle(self, *args: Any, **options: Any) -> None:
        size = Size(**{name: options[name] for name in _OPTIONS})
        if min(size.checkpoints, size.shards_each, size.drills, size.nodes, size.runs, size.clusters) < 1:
            raise CommandError("Every number is at least 1.")
        if Cluster.objects.filter(name__startswith="seeded-").exists():
            raise CommandError("This database holds a seeded fleet already; begin with an empty one.")
        if Cluster.objects.exists() and not options["beside_existing_rows"]:
            raise CommandError(
                "This database holds a fleet already, and what is made up would lie among it. Use an empty database, "
                "or say --beside-existing-rows."
            )
        with transaction.atomic():
            self._fill(size, Random(options["seed"]))
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")

    def _fill(self, size: Size, random: Random) -> None:
        now = timezone.now()
        on = storage.ground(size, now, random)
        self._say(f"{size.clusters} clusters, {size.nodes:,} nodes, {size.runs} runs")
        copies = storage.checkpoints(size, on, now, random)
        self._say(f"{len(copies):,} checkpoints, {len(copies) * size.shards_each:,} shards")
        history.drills(size, on, copies, now, random)
        self._say(f"{size.drills:,} drills")
        history.audits(copies, now, random)
        history.scans(on, copies, now)
        history.transfers(on, copies, now)
        history.launches(size, on, now, random)
        history.alerts_and_activity(size, on, now, random)
        self._say("audits, scans, transfers, launches, alerts and activity")

    def _say(self, words: str) -> None:
        self.stdout.write(f"made {words}")
