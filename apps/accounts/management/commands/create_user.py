"""`manage.py create_user NAME --role admin`: the first account, before anybody can sign in to make it."""

from __future__ import annotations

import getpass
import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts import services
from apps.core.errors import ApplicationError


class Command(BaseCommand):
    help = "Create a user. The password comes from MUSTER_PASSWORD or is asked for; it is never an argument."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", choices=["viewer", "operator", "admin"], default="viewer")

    def handle(self, *args: Any, **options: Any) -> None:
        password = os.environ.get("MUSTER_PASSWORD") or getpass.getpass("Password: ")
        try:
            services.add_user(
                actor="command line", username=options["username"], role=options["role"], password=password
            )
        except ApplicationError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"Created {options['username']} ({options['role']}).")
