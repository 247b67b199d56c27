"""Breaking a network link by a command that the node's administrator wrote down."""

from __future__ import annotations

import subprocess

import msgspec

START_SECONDS = 10.0


class LinkFault(msgspec.Struct, frozen=True, kw_only=True):
    """A command that breaks a link and mends it by itself after `seconds`, whatever becomes of the agent. It has to
    return within 10 s of the break, not stay for the mending (`systemd-run --on-active=30 ip link set ib0 up`, say)."""

    argv: tuple[str, ...]
    seconds: float


class LinkNotBroken(Exception):
    """The command could not be run, or said that it failed."""


def break_link(fault: LinkFault) -> None:
    """Run the command. Raises LinkNotBroken."""
    try:
        done = subprocess.run(
            fault.argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
    except (OSError, ValueError) as error:
        raise LinkNotBroken(f"{fault.argv[0] if fault.argv else 'an empty command'} cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise LinkNotBroken(f"{fault.argv[0]} did not return within {START_SECONDS:.0f} s of being asked") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:200] or "it said nothing"
        raise LinkNotBroken(f"{fault.argv[0]} ended with {done.returncode}: {said}")
