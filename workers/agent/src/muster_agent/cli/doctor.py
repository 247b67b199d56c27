"""`muster doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from muster_agent.cli.colour import Paint, paint_for
from muster_agent.cli.contexts import Connection, Given, config_path, connection
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, one_line, print_json

if TYPE_CHECKING:
    from muster_agent.rest import Client
    from muster_agent.runtime.config import AgentConfig, StateDirectory

MAX_CLOCK_SECONDS = 30.0
MAX_POLL_AGE_SECONDS = 120.0
LITTLE_SPACE_BYTES = 1 << 30
ASK_SECONDS = 5.0
_MEANING = {"ok": "good", "warn": "doubt", "fail": "bad", "skip": "quiet"}


class Check(NamedTuple):
    """`verdict` is ok, warn, fail or skip; `cure` says what to do where it is not ok."""

    name: str
    verdict: str
    detail: str
    cure: str = ""


@click.command()
@click.option("--server", metavar="URL", help="The control plane (else MUSTER_SERVER, else the context's).")
@click.option("--context", metavar="NAME", help="A context of `muster login`.")
@click.option("--token-file", metavar="FILE", help="Holds the token (else MUSTER_TOKEN).")
@click.option("--ca-file", metavar="FILE", help="Certificates to trust instead of the system's.")
@click.option("--state-dir", envvar="MUSTER_AGENT_STATE_DIR", help="Where this node's agent keeps its files.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(
    server: str | None,
    context: str | None,
    token_file: str | None,
    ca_file: str | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Look at the server, the token, the clock, this node's agent, its storage and its GPU libraries.

    Exit 0 where nothing is broken, 1 otherwise. What is not set up here is skipped and says so.
    """
    given = Given(server, context, token_file, ca_file)
    found = [*about_server(given), *about_node(state_dir)]
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        _print(found)
    if any(one.verdict == "fail" for one in found):
        raise SystemExit(ExitCode.ERROR)


def _print(found: list[Check]) -> None:
    import sys

    paint: Paint = paint_for(sys.stdout)
    for one in found:
        click.echo(f"{paint(f'{one.verdict:5}', _MEANING[one.verdict])}{one.name:13}{one_line(one.detail)}")
        if one.cure and one.verdict != "ok":
            click.echo(f"     {'':13}what to do: {one_line(one.cure)}")


# -- the server --------------------------------------------------------------------------------------------------------
def about_server(given: Given) -> Iterator[Check]:
    """Configuration, address, clock, token, and whether the server watches itself."""
    try:
        found = connection(given)
    except CommandFailed as error:
        verdict = "skip" if error.exit_code == ExitCode.USAGE else "fail"
        yield Check("server", verdict, error.message, error.hint)
        return
    yield Check("server", "ok", f"{found.server}, from {found.source} ({config_path()})")
    from muster_agent.rest import AddressRefused, Client

    try:
        client = Client(
            found.server, token=found.token, ca_file=found.ca_file, timeout_seconds=ASK_SECONDS, retry_seconds=0.0
        )
    except (AddressRefused, OSError) as error:
        yield Check("reach", "fail", str(error), "write the address like https://muster.example")
        return
    yield from _asked(client, found)


def _asked(client: Client, found: Connection) -> Iterator[Check]:
    from muster_agent.rest import Unreachable

    begun = time.monotonic()
    try:
        answer = client.transport.request("GET", "/whoami/")
    except Unreachable as error:
        yield Check("reach", "fail", str(error), "check address, network and proxy, and that the control plane runs")
        return
    taken = time.monotonic() - begun
    yield Check("reach", "ok", f"answers in {taken * 1000:.0f} ms")
    yield clock_check(answer.headers.get("Date"), time.time())
    if found.token is None:
        yield Check("token", "fail", "there is no token", "sign in with `muster login`, or set MUSTER_TOKEN_FILE")
        return
    if answer.status != 200:
        yield Check(
            "token", "fail", _detail(answer.body, answer.status), "create a token under Access, then `muster login`"
        )
        return
    who = json.loads(answer.body)
    yield token_check(who, time.time())
    yield _health(client)


def token_check(who: dict[str, object], now: float) -> Check:
    """Whose it is, and whether it ends soon."""
    from datetime import datetime

    whose = f"{who['username']}, role {who['role'] or 'none everywhere'}"
    expires = who.get("token_expires_at")
    if not isinstance(expires, str):
        return Check("token", "ok", whose)
    days = (datetime.fromisoformat(expires).timestamp() - now) / 86_400
    cure = "create the next one now under Access: both work until the old one ends"
    return Check("token", "warn" if days < 14 else "ok", f"{whose}, ends in {days:.0f} days", cure)


def clock_check(date_header: str | None, now: float) -> Check:
    """This host's wall clock against the server's, to the second that the header has."""
    try:
        told = parsedate_to_datetime(date_header or "").timestamp()
    except (ValueError, TypeError):
        return Check("clock", "skip", "the server does not tell its time")
    offset = now - told
    detail = f"{abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the server"
    if abs(offset) <= MAX_CLOCK_SECONDS:
        return Check("clock", "ok", "agrees with the server's")
    return Check("clock", "warn", detail, "run chrony or ntpd on both; drills' durations do not depend on it, dates do")


def _health(client: Client) -> Check:
    from muster_agent.rest import ApiError, Unreachable

    try:
        health = client.get_health()
    except (ApiError, Unreachable) as error:
        return Check("health", "warn", str(error), "look at the server's log")
    if health["watching"]:
        return Check("health", "ok", "every part of the control plane gives signs of life")
    still = [part for part in health["parts"] if not part["is_well"]]
    names = ", ".join(part["name"] for part in still) or "some"
    cures = " ".join(dict.fromkeys(part["cure"] for part in still if part["cure"]))
    return Check("health", "fail", f"parts of the control plane stand still: {names}", cures or "see its log")


def _detail(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {status}"


# -- this node ---------------------------------------------------------------------------------------------------------
def about_node(state_dir: str | None) -> Iterator[Check]:
    """The agent of this node, the places that it may read, and what reads into GPUs."""
    from muster_agent.runtime.config import ConfigError, load_config, state_directory

    state = state_directory(state_dir)
    if not state.config.exists():
        yield Check("agent", "skip", f"no agent has joined from {state.path}", "`muster agent join`, if this is a node")
        places: tuple[str, ...] = ()
    else:
        try:
            config = load_config(state)
        except ConfigError as error:
            yield Check("agent", "fail", str(error), "mend the file, or join anew with `muster agent join --again`")
            return
        yield _agent_check(state, config)
        places = config.roots
    for place in places:
        yield place_check(place)
    yield from gpu_checks()


def _agent_check(state: StateDirectory, config: AgentConfig) -> Check:
    from muster_agent.runtime.status import is_locked, read_status

    if state.stop.exists():
        return Check("agent", "warn", f"all work is stopped by {state.stop}", "`muster agent stop-all --clear`")
    if not is_locked(state.lock):
        return Check("agent", "fail", f"{config.node_name} does not run", "start it: systemctl start muster-agent")
    status = read_status(state.status)
    at = status.last_poll_at if status else None
    if at is None or time.time() - at > MAX_POLL_AGE_SECONDS:
        return Check("agent", "fail", f"{config.node_name} runs, but has not reached {config.server}", "see its log")
    if status is not None and status.disk_error:
        return Check("agent", "fail", f"cannot write its spool: {status.disk_error}", f"make room in {state.path}")
    return Check("agent", "ok", f"{config.node_name} runs and last polled {time.time() - at:.0f} s ago")


def place_check(place: str) -> Check:
    """Whether a root can be read at all, and what it lies on."""
    from muster_agent.formats.places import is_bucket

    if is_bucket(place):
        return _bucket_check(place)
    from muster_agent.probes.filesystem import missing_mount, read_file_system

    if (unmounted := missing_mount(place)) is not None:
        return Check("storage", "fail", f"{place}: {unmounted} is not mounted", f"mount {unmounted}")
    try:
        with os.scandir(place) as entries:
            next(entries, None)
        room = os.statvfs(place)
    except OSError as error:
        return Check("storage", "fail", f"{place}: {error.strerror}", "mount it, or let the agent's user read it")
    kind = read_file_system(place).name
    free = room.f_bavail * room.f_frsize
    verdict = "warn" if free < LITTLE_SPACE_BYTES else "ok"
    return Check("storage", verdict, f"{place}: readable, {kind}, {human_bytes(free)} free", "make room")


def _bucket_check(place: str) -> Check:
    try:
        import boto3  # noqa: F401
    except ImportError:
        return Check("storage", "fail", f"{place}: boto3 is not installed", "pip install 'muster-agent[s3]'")
    return Check("storage", "skip", f"{place}: not asked, since a listing costs money", f"`muster inventory {place}`")


def gpu_checks(devices: Callable[[], tuple[int, str]] | None = None) -> Iterator[Check]:
    """The driver, and whether storage could be read straight into a GPU."""
    from muster_agent.probes.cuda import read_cuda_devices

    count, reason = (devices or read_cuda_devices)()
    if count == 0:
        yield Check("gpu", "skip", reason, "nothing, unless this node has GPUs")
        return
    yield Check("gpu", "ok", f"{count} CUDA devices")
    from muster_agent.probes.nvidia_fs import read_nvidia_fs

    if read_nvidia_fs() is None:
        cure = "load nvidia-fs, or use a file system with peer-to-peer of its own; reads go through the host until then"
        yield Check("gds", "warn", "the kernel module nvidia-fs is not loaded", cure)
    else:
        yield Check("gds", "ok", "nvidia-fs is loaded; `muster reload PATH --backend gds` proves a file")
