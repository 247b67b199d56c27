"""Running the commands as a launcher does, and reading their answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from muster_agent.cli import main


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)


def ask(run: Path, *arguments: object) -> dict[str, Any]:
    """What `muster resume-point` decides."""
    answer = json.loads(muster("resume-point", run, *arguments, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def inventory(place: Path) -> dict[str, dict[str, Any]]:
    """What `muster inventory` lists, by the last names."""
    return {os.path.basename(one["path"]): one for one in json.loads(muster("inventory", place, "--json").stdout)}


def said(run: Path, *arguments: object) -> str:
    """What `muster resume-point` warns of."""
    return muster("resume-point", run, *arguments).stderr


def reasons(answer: dict[str, Any]) -> str:
    """Why checkpoints were passed over."""
    return " ".join(reason for one in answer["skipped"] for reason in one["reasons"])


def alarms(checkpoint: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and path of an inventory's findings about one checkpoint, notes aside."""
    return [(one["code"], one["path"]) for one in checkpoint["findings"] if one["severity"] != "note"]
