"""The agent's own files: what `join` wrote, and where everything lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from muster_agent.hooks.step_patterns import StepLog
from muster_agent.jobs.loader_compare import Loader
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.link_fault import LinkFault

STATE_VARIABLE = "MUSTER_AGENT_STATE_DIR"


class ConfigError(Exception):
    """A file of the agent is missing or bad; the message says what to do."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`config.json`: written by `muster agent join`, may be edited by hand while the agent is stopped."""

    server: str
    agent_id: str
    node_name: str
    roots: tuple[str, ...]
    copy_roots: tuple[str, ...] = ()
    """Where transfers may write copies and remove them; nowhere unless somebody on this node says so."""
    hook_directory: str | None = None
    loaders: dict[str, Loader] = {}
    """The team's own loaders that a drill may compare with, by name; each runs through a sudo rule of its user."""
    nvrx_cycles: dict[str, str] = {}
    """From each folder where NVRx's launcher writes cycle files to the name of its run."""
    step_logs: tuple[StepLog, ...] = ()
    """Logs of trainers without the hook, with the patterns of the lines that tell of a step and of a resume."""
    ca_file: str | None = None
    slots: int = 1
    allow_disrupt: bool = True
    links: dict[str, LinkFault] = {}
    """By the name that a drill asks for; the server never sends a command."""
    limits: Limits = Limits()
    grace_seconds: float = 20.0
    """After SIGTERM, work that has not finished by then is handed back."""


class StateDirectory(NamedTuple):
    """Every path in one place."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def credential(self) -> Path:
        return self.path / "credential"

    @property
    def nonce(self) -> Path:
        return self.path / "nonce"

    @property
    def spool(self) -> Path:
        return self.path / "spool.sqlite3"

    @property
    def scan_cache(self) -> Path:
        return self.path / "scan-cache.sqlite3"

    @property
    def hook_offsets(self) -> Path:
        return self.path / "hook-offsets.json"

    @property
    def step_logs(self) -> Path:
        return self.path / "step-logs.json"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def stop(self) -> Path:
        """While this file exists, the agent does no work, whatever the server says."""
        return self.path / "stop"


def state_directory(given: str | None = None) -> StateDirectory:
    """`given`, else MUSTER_AGENT_STATE_DIR, else `muster-agent` in the user's state folder."""
    chosen = given or os.environ.get(STATE_VARIABLE)
    if chosen:
        return StateDirectory(Path(chosen).absolute())
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return StateDirectory(Path(base) / "muster-agent")


def load_config(state: StateDirectory) -> AgentConfig:
    """Raises ConfigError."""
    try:
        return msgspec.json.decode(state.config.read_bytes(), type=AgentConfig)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no agent in {state.path}; run `muster agent join` first") from error
    except OSError as error:
        raise ConfigError(f"{state.config} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{state.config} is not a valid configuration: {error}") from error


def load_credential(state: StateDirectory) -> str:
    """Raises ConfigError."""
    try:
        return state.credential.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{state.credential} cannot be read: {error.strerror}; run `muster agent join`") from error


def write_private(path: Path, content: bytes) -> None:
    """Atomically, readable by this user only. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(temporary, path)
