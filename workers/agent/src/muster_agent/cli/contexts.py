"""Which control plane the commands talk to: flags, then the environment, then the context file that `muster login`
writes (`$XDG_CONFIG_HOME/muster/config.json`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from muster_agent.cli.output import CommandFailed, ExitCode


class Context(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One control plane that this user works with; the token lies in a file of its own."""

    server: str
    token_file: str | None = None
    ca_file: str | None = None


class ContextFile(msgspec.Struct, kw_only=True):
    current: str = ""
    contexts: dict[str, Context] = {}


class Given(NamedTuple):
    """What the command line said."""

    server: str | None = None
    context: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


class Connection(NamedTuple):
    """Where to ask, with what, and who said so."""

    server: str
    token: str | None
    ca_file: str | None
    source: str


def config_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "muster"


def config_path() -> Path:
    """`MUSTER_CONFIG`, else `config.json` in the user's configuration folder."""
    return Path(os.environ.get("MUSTER_CONFIG") or config_folder() / "config.json")


def load() -> ContextFile:
    """Empty where there is no file yet."""
    path = config_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=ContextFile)
    except FileNotFoundError:
        return ContextFile()
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} is not understood: {error}", hint="mend it, or move it away") from error


def save(file: ContextFile) -> None:
    from muster_agent.runtime.config import write_private

    path = config_path()
    try:
        write_private(path, msgspec.json.format(msgspec.json.encode(file)) + b"\n")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}") from error


def connection(given: Given) -> Connection:
    """Raises CommandFailed (usage) where nothing names a server. A context's token goes to its own server only."""
    file = load()
    named = given.context or (None if given.server else os.environ.get("MUSTER_CONTEXT"))
    context, source = _context(file, named)
    by_environment = None if given.context else os.environ.get("MUSTER_SERVER")
    server = given.server or by_environment or (context.server if context else None)
    if not server:
        raise CommandFailed(
            "no control plane is named",
            hint="sign in once with `muster login https://muster.example`, or set MUSTER_SERVER",
            code=ExitCode.USAGE,
        )
    own = context is not None and context.server.rstrip("/") == server.rstrip("/")
    said = "--server" if given.server else "MUSTER_SERVER" if by_environment else source
    token = _token(given, context if own else None)
    ca_file = given.ca_file or os.environ.get("MUSTER_CA_FILE") or (context.ca_file if own and context else None)
    return Connection(server, token, ca_file, said)


def _context(file: ContextFile, named: str | None) -> tuple[Context | None, str]:
    name = named or file.current
    if named and name not in file.contexts:
        known = ", ".join(sorted(file.contexts)) or "none"
        raise CommandFailed(f"there is no context {name!r}", hint=f"known are: {known}", code=ExitCode.USAGE)
    return file.contexts.get(name), f"the context {name}"


def _token(given: Given, context: Context | None) -> str | None:
    if given.token_file:
        return read_secret(given.token_file)
    if given.context and context and context.token_file:
        return read_secret(context.token_file)
    if token := os.environ.get("MUSTER_TOKEN", "").strip():
        return token
    if path := os.environ.get("MUSTER_TOKEN_FILE"):
        return read_secret(path)
    return read_secret(context.token_file) if context and context.token_file else None


def read_secret(path: str) -> str:
    """A token from a file; `-` is stdin."""
    import sys

    try:
        if path == "-":
            return sys.stdin.readline(4096).strip()
        with open(path, encoding="ascii") as stream:
            return stream.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandFailed(
            f"the token file {path} could not be read: {said}",
            hint="sign in again with `muster login`",
            code=ExitCode.AUTH,
        ) from error
