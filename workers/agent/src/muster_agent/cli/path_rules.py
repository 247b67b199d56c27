"""`--rules FILE`: what a site's own launcher leaves in a step folder."""

from __future__ import annotations

import click

from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.formats.rules import MAX_RULES_BYTES, Rule, RulesInvalid, parse_rules

rules_option = click.option(
    "--rules",
    "rules_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Path rules (docs/formats.md) beside those in .muster-rules.json at the root of PATH.",
)


def read_rules(path: str | None) -> tuple[Rule, ...]:
    """The rules in the file, or the failure that a user can act on."""
    if path is None:
        return ()
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_RULES_BYTES + 1)
        if len(data) > MAX_RULES_BYTES:
            raise RulesInvalid(f"it is larger than {MAX_RULES_BYTES} bytes")
        return parse_rules(data)
    except OSError as error:
        hint = "give a file that this user may read"
        raise CommandFailed(f"{path} could not be read: {error.strerror}", hint=hint, code=ExitCode.USAGE) from error
    except RulesInvalid as error:
        hint = "docs/formats.md has an example"
        raise CommandFailed(f"{path}: {error}", hint=hint, code=ExitCode.USAGE) from error
