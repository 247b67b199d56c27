"""`manage.py create_token USERNAME --name ci --role operator`: prints the secret, once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts import services
from apps.accounts.models import Role, User
from apps.core.errors import ApplicationError


class Command(BaseCommand):
    help = "Create an API token for a user and print its secret, which is shown only now."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--role", choices=["viewer", "operator", "admin"], default="viewer")
        parser.add_argument("--days", type=int, default=90)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']!r}; make one with create_user.")
        try:
            _token, secret = services.create_token(
                user=user,
                name=options["name"],
                role=Role(options["role"]),
                days=options["days"],
                actor="command line",
            )
        except ApplicationError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(secret)
