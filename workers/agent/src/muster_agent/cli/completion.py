"""`muster completion`: the script that lets a shell complete verbs, options and kinds."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: muster completion bash > ~/.local/share/bash-completion/completions/muster
    zsh:  muster completion zsh > "${fpath[1]}/_muster"
    fish: muster completion fish > ~/.config/fish/completions/muster.fish
    """
    from click.shell_completion import get_completion_class

    from muster_agent.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(main, {}, "muster", "_MUSTER_COMPLETE")
    click.echo(script.source_template % script.source_vars())
