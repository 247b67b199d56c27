"""docs/cli.md against the command itself: every verb is in it, and everything in it parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from muster_agent.cli import main

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs/cli.md").read_text()


def verbs(command: click.Command, words: tuple[str, ...] = ("muster",)) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from verbs(child, (*words, name))


def examples() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [
        re.split(r" [|<>] |\s+#|;|\)\"|&&", line.partition("muster ")[2])[0] for line in lines if "muster " in line
    ]
    return [line for line in found if line]


def test_every_verb_is_documented_and_every_documented_verb_is_one() -> None:
    documented = set(re.findall(r"^\| `(muster [a-z -]+?)`", DOCUMENT, re.MULTILINE))
    assert documented == {" ".join(words) for words in verbs(main)}


@pytest.mark.parametrize("line", examples())
def test_every_example_parses(line: str) -> None:
    command: click.Command | None = main
    words = shlex.split(line)
    while isinstance(command, click.Group) and words:
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None, line
    if not isinstance(command, click.Group):
        command.make_parser(click.Context(command)).parse_args(list(words))


def test_every_exit_code_is_documented() -> None:
    from muster_agent.cli.output import ExitCode

    assert all(f"| {int(code)} |" in DOCUMENT for code in ExitCode)
