"""`muster gate`: whether a run has been rehearsed lately enough to be trusted, as an exit code for CI."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import click
import msgspec

from muster_agent.cli.age import Age
from muster_agent.cli.contexts import Connection, Given, connection
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json, say
from muster_agent.cli.server import NoAnswer, get

STEPS = ("chaos_node_failure", "line_rate_read", "rank_shard_parallelism", "integrity_hashing", "hot_standby")
TIMEOUT_SECONDS = 10.0


class GateStep(msgspec.Struct, frozen=True, kw_only=True):
    """One of the five; `verdict` is passed, stale, failed or missing."""

    step: str
    title: str
    verdict: str
    age_seconds: float | None
    detail: str
    next_action: str


class GateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The server's checklist of a run, as far as it is printed here."""

    run_name: str
    score: float
    steps: tuple[GateStep, ...]


@click.command()
@click.argument("run")
@click.option("--server", metavar="URL", help="The control plane (else MUSTER_SERVER, else the context's).")
@click.option(
    "--max-age", "max_age_seconds", type=Age(), default="7d", show_default=True, help="Oldest evidence: 900, 12h, 7d."
)
@click.option("--step", "wanted", multiple=True, type=click.Choice(STEPS), help="Only these; all five by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the server's checklist as JSON.")
def gate(run: str, server: str | None, max_age_seconds: float, wanted: tuple[str, ...], as_json: bool) -> None:
    """Say whether RUN (its name, id, or cluster/name) has passed the five-step validation checklist lately: failure,
    line-rate read, rank shards in parallel, hashing, hot standby.

    Exit 0: every step passed within --max-age; 8: one has not; 3: no such run; 4: the token was refused; 9: no answer.
    """
    found = connection(Given(server=server))
    server = found.server
    body = _ask(found, run, max_age_seconds)
    try:
        answer = msgspec.json.decode(body, type=GateAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{server} gave an answer that is not understood", hint="update this command") from error
    if as_json:
        print_json(msgspec.json.decode(body))
    else:
        click.echo("\n".join(_lines(answer)))
    required = [one for one in answer.steps if not wanted or one.step in wanted]
    open_steps = [one for one in required if one.verdict != "passed"]
    if open_steps:
        say(f"muster: {len(open_steps)} of {len(required)} steps have not passed within the given age")
        raise SystemExit(ExitCode.OBJECTIVE_BREACHED)


def _ask(found: Connection, run: str, max_age_seconds: float) -> bytes:
    server = found.server
    path = f"runs/{quote(run, safe='/')}/checklist?{urlencode({'max_age_seconds': f'{max_age_seconds:.0f}'})}"
    try:
        status, body = get(server, path, found.token, timeout_seconds=TIMEOUT_SECONDS)
    except NoAnswer as reason:
        hint = "check the address, or ask again later"
        raise CommandFailed(str(reason), hint=hint, code=ExitCode.SERVER_UNREACHABLE) from reason
    if status == 200:
        return body
    message, hint, code = {
        401: ("the token was refused", "set MUSTER_TOKEN to one that may read runs", ExitCode.AUTH),
        403: ("this token may not read runs", "set MUSTER_TOKEN to one that may", ExitCode.AUTH),
        404: (f"{server} knows no run {run!r}", "list the runs on its page Runs", ExitCode.NOT_FOUND),
        409: (f"several clusters have a run {run!r}", "write cluster/name, or the id", ExitCode.CONFLICT),
    }.get(status, (f"{server} answered with status {status}", "see its log", ExitCode.ERROR))
    raise CommandFailed(message, hint=hint, code=code)


def _lines(answer: GateAnswer) -> list[str]:
    lines = [one_line(f"{answer.run_name}: readiness score {answer.score:.0f} of 100")]
    for one in answer.steps:
        when = "" if one.age_seconds is None else f", {_age(one.age_seconds)} ago"
        lines.append(one_line(f"  {one.verdict:8}{one.title}{when}: {one.detail}"))
        if one.next_action:
            lines.append(one_line(f"          next: {one.next_action}"))
    return lines


def _age(seconds: float) -> str:
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
