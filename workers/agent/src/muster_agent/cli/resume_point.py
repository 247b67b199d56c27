"""`muster resume-point`: which checkpoint a restart should load. The disk decides what exists; others add trust."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence

import click
import msgspec

from muster_agent.cli.bucket import checked_place, endpoint_option
from muster_agent.cli.inventory import listed
from muster_agent.cli.launchers import Launcher, launcher_text, misfit, needs_quoting, with_its_model_file
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json, say
from muster_agent.cli.path_rules import read_rules, rules_option
from muster_agent.cli.resume_text import decision_lines, failure_lines, warning_lines
from muster_agent.cli.server_evidence import BUDGET_SECONDS, NoEvidence, ServerAnswer, ask_server, read_token
from muster_agent.decide.evidence import candidates_of
from muster_agent.decide.fit import wanted_world_size
from muster_agent.decide.frameworks import governing
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import NON_PERSISTENT, decide, reasons_against
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.names import folder_of, run_of_path
from muster_agent.formats.places import is_bucket
from muster_agent.formats.walk import Inventory
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.inventory import read_manifests
from muster_agent.manifest.local_verdict import LocalVerdict, VerdictUnreadable, read_verdict
from muster_agent.protocol.trust import Trust

SETTLE_SECONDS = 1.0
"""Between two looks at what looks unfinished and may be being written, or may not be shown in full yet."""
_LEAST_BUDGET_SECONDS = 0.5
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_REQUIRABLE = [trust.value for trust in Trust if trust is not Trust.LISTED]


class Age(click.ParamType[float]):
    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no age; write seconds, or 30min, 12h, 2d", param, ctx)
        return float(match.group(1)) * _UNIT_SECONDS[match.group(2) or "s"]


_COUNT = click.IntRange(min=1)


@click.command("resume-point")
@click.argument("path")
@click.option("--world-size", type=_COUNT, help="Ranks of the job that will resume.")
@click.option("--dp", type=_COUNT, help="Its data-parallel ranks.")
@click.option("--tp", type=_COUNT, help="Its tensor-parallel ranks.")
@click.option("--pp", type=_COUNT, help="Its pipeline stages.")
@click.option("--step", type=click.IntRange(min=0), help="This step or none.")
@click.option(
    "--require", type=click.Choice(_REQUIRABLE), default="complete", show_default=True, help="The least trust."
)
@click.option("--max-age", "max_age_seconds", type=Age(), metavar="AGE", help="Oldest allowed: 900, 30min, 12h, 2d.")
@click.option("--checkpoint-format", "format_name", metavar="NAME", help="Only this format: dcp, megatron_dist ...")
@click.option("--run", "run_name", help="The run's name on the server, and which run where PATH holds several.")
@click.option("--server", envvar="MUSTER_SERVER", metavar="URL", help="Ask this control plane for evidence too.")
@rules_option
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print the decision as JSON.")
@click.option(
    "--format", "launcher", type=click.Choice([one.value for one in Launcher]), help="Print only what a launcher takes."
)
def resume_point(  # noqa: PLR0913 - each is an option, and all are named
    path: str,
    run_name: str | None,
    server: str | None,
    as_json: bool,
    launcher: str | None,
    format_name: str | None,
    require: str,
    rules_file: str | None,
    endpoint_url: str | None,
    **asked: int | float | None,
) -> None:
    """Say which checkpoint under PATH a restart should load, and why newer ones were passed over.

    \b
    --format path       the path alone: srun train --resume "$(muster resume-point DIR --format path)"
    --format env        MUSTER_RESUME_PATH=..., _STEP and more, for eval "$(...)"
    --format megatron   --load DIR --ckpt-step N
    --format deepspeed  --load_dir DIR --tag NAME
    --format hf         --resume_from_checkpoint PATH

    Exit 0: the point is named. Exit 3: there is none, and the outcome says why: nothing_resumable (checkpoints lie
    here, and none can be used), step_absent, or no_checkpoints. Exit 1 or 2: PATH could not be looked at or the
    question was wrong; never take that for "start from step 0".
    """
    if launcher is not None and as_json:
        raise CommandFailed("--json and --format exclude each other", hint="choose one", code=ExitCode.USAGE)
    judge = _Judge(_request(require, format_name, asked), server, run_name)
    found = listed(
        path,
        missing=ExitCode.ERROR,
        enough=judge.is_enough,
        settle_seconds=SETTLE_SECONDS,
        rules=read_rules(rules_file),
        endpoint_url=endpoint_url,
    )
    folder, shard_maps = _one_run(found, path, run_name)
    decision = judge.decide(shard_maps, found.pointers, folder)
    if as_json:
        print_json(_json(decision))
    elif launcher is not None:
        chosen = next((one for one in shard_maps if one.path == decision.path), None)
        _print_for(Launcher(launcher), with_its_model_file(decision, chosen))
    else:
        for line in decision_lines(decision, path):
            click.echo(one_line(line))
    chosen = next((one for one in shard_maps if one.path == decision.path), None)
    for line in warning_lines(decision, chosen, found.findings):
        say(one_line(line))
    if decision.outcome != "found":
        for line in failure_lines(decision, path, judge.request):
            say(one_line(line))
        raise SystemExit(int(_without_a_point(shard_maps, path)))


def _print_for(launcher: Launcher, decision: ResumeDecision) -> None:
    """Bytes, since a path may hold any; nothing at all on stdout where a launcher would take it for a path."""
    text = launcher_text(launcher, decision)
    if text:
        sys.stdout.buffer.write(os.fsencode(f"{text}\n"))
        sys.stdout.buffer.flush()
    if needs_quoting(launcher, text):
        say('muster: the path needs quoting: use eval "words=($(muster resume-point ...))" and pass "${words[@]}"')
    if launcher is Launcher.PATH and text.endswith("\n"):
        say('muster: the path ends in a line break, which "$(...)" removes: rename the folder')
    reason = misfit(launcher, decision)
    if reason is not None:
        say(one_line(f"muster: {reason}"))


def _without_a_point(shard_maps: Sequence[ShardMap], path: str) -> ExitCode:
    """3 when there really is none. What could not be looked at may be the very checkpoint: unknown is not gone."""
    unread = [one.path for one in shard_maps if one.status is Status.UNREADABLE]
    if not unread:
        return ExitCode.NOT_FOUND
    say(f"muster: {len(unread)} of the checkpoints under {path} could not be read, {unread[0]} among them")
    say("  what to do: run this as a user who may read them; do not take it for an empty folder")
    return ExitCode.ERROR


class _Judge:
    """Holds each checkpoint against the request as it is read, so that reading can end at the first good one."""

    def __init__(self, request: ResumeRequest, server: str | None, run_name: str | None) -> None:
        self.request, self.server, self.run_name = request, server, run_name
        self.began = time.monotonic()
        self.answer: ServerAnswer | None = None
        self.candidates: dict[tuple[object, ...], Candidate] = {}

    def is_enough(self, shard_map: ShardMap, pointers: Sequence[Pointer]) -> bool:
        """Whether no older step of its folder can matter any more. What nobody can resume from is not asked about, so
        that the wait for the server and the one for a second look go on at the same time."""
        if not shard_map.resumable:
            return False
        folder = folder_of(shard_map.path)
        candidate = self.candidate(shard_map, folder)
        if self.request.step not in (None, candidate.step):
            return False
        return not reasons_against(candidate, self.request, _pointer_in(folder, pointers))

    def candidate(self, shard_map: ShardMap, folder: str) -> Candidate:
        """The checkpoint with what its manifest and the server add; each is asked once, and again where a second look
        found it changed."""
        key = (shard_map.path, shard_map.status, shard_map.step, shard_map.newest_mtime_ns)
        if key not in self.candidates:
            sealable = [] if is_bucket(shard_map.path) else [shard_map]
            manifests, problems = read_manifests(sealable, JobControl())
            for problem in problems:
                say(f"muster: {problem.detail}\n  what to do: {problem.cure}")
            evidence = self.evidence(folder).evidence
            verdicts = _verdicts(manifests)
            self.candidates[key] = candidates_of([shard_map], time.time(), manifests, evidence, verdicts)[0]
        return self.candidates[key]

    def evidence(self, folder: str) -> ServerAnswer:
        """What the server adds; nothing, with a message, where it does not answer in time."""
        if self.answer is None:
            self.answer = _server_answer(self.server, self.run_name or run_of_path(f"{folder}/step"), self.began)
        return self.answer

    def decide(self, shard_maps: Sequence[ShardMap], pointers: Sequence[Pointer], folder: str) -> ResumeDecision:
        candidates = [self.candidate(shard_map, folder) for shard_map in shard_maps]
        decision = decide(candidates, self.request, _pointer_in(folder, pointers))
        answer = self.answer
        if answer is not None and decision.path is not None and decision.path == answer.path:
            return msgspec.structs.replace(decision, predicted_seconds=answer.predicted_seconds)
        return decision


def _pointer_in(folder: str, pointers: Sequence[Pointer]) -> Pointer | None:
    return governing([one for one in pointers if os.path.dirname(one.path) == folder])


def _verdicts(sealed_paths: Iterable[str]) -> dict[str, LocalVerdict]:
    """What `muster verify` or `muster reload` left beside sealed checkpoints, by their paths."""
    verdicts = {}
    for path in sealed_paths:
        try:
            verdict = read_verdict(path)
        except VerdictUnreadable as reason:
            say(f"muster: the verdict {reason}\n  what to do: run `muster verify {path}` again, or remove that file")
            continue
        if verdict is not None:
            verdicts[path] = verdict
    return verdicts


def _request(require: str, format_name: str | None, asked: dict[str, int | float | None]) -> ResumeRequest:
    request = msgspec.convert({**asked, "require": require, "format": format_name}, ResumeRequest, strict=False)
    degrees = ResumeRequest(dp=request.dp, tp=request.tp, pp=request.pp)
    product = wanted_world_size(degrees)
    if request.world_size is not None and product not in (None, request.world_size):
        message = f"--dp, --tp and --pp multiply to {product}, and --world-size is {request.world_size}"
        raise CommandFailed(message, hint="correct one of them", code=ExitCode.USAGE)
    return request


def _one_run(found: Inventory, path: str, run_name: str | None) -> tuple[str, list[ShardMap]]:
    """The folder that holds the run's steps, and its checkpoints. A choice between runs is the user's to make."""
    folders = sorted({folder_of(one.path) for one in found.checkpoints if one.step is not None})
    if run_name is not None and len(folders) > 1:
        folders = [
            folder for folder in folders if run_name in (os.path.basename(folder), run_of_path(f"{folder}/step"))
        ]
    own = checked_place(path)
    if run_name is None and own in folders:
        return own, _of_own_folder(found, own, folders)
    if len(folders) > 1 or (run_name is not None and not folders and found.checkpoints):
        names = sorted({folder_of(one.path) for one in found.checkpoints if one.step is not None})
        shown = "\n    ".join(names[:10])
        message = f"{path} holds the checkpoints of {len(names)} runs:\n    {shown}"
        raise CommandFailed(message, hint="name one of these folders, or choose with --run", code=ExitCode.USAGE)
    if not folders:
        return own, list(found.checkpoints)
    return folders[0], [one for one in found.checkpoints if folder_of(one.path) == folders[0]]


def _of_own_folder(found: Inventory, own: str, folders: Sequence[str]) -> list[ShardMap]:
    """Where PATH itself holds steps, they are the run, with Megatron's non-persistent copies of it; what lies in other
    folders below is another run's, and is said to be left aside."""
    taken = {own, os.path.join(own, NON_PERSISTENT)}
    aside = [folder for folder in folders if folder not in taken]
    if aside:
        more = f" and {len(aside) - 3} more" if len(aside) > 3 else ""
        say(one_line(f"muster: left aside, as runs of their own: {', '.join(aside[:3])}{more}"))
    return [one for one in found.checkpoints if folder_of(one.path) in taken]


def _server_answer(server: str | None, run: str, began: float) -> ServerAnswer:
    if not server:
        return ServerAnswer()
    budget_seconds = max(_LEAST_BUDGET_SECONDS, BUDGET_SECONDS - (time.monotonic() - began))
    try:
        return ask_server(server, run, read_token(), budget_seconds=budget_seconds)
    except NoEvidence as reason:
        say(f"muster: {reason}; answering from the disk alone")
        return ServerAnswer()


def _json(decision: ResumeDecision) -> dict[str, object]:
    pointer = decision.pointer
    return {
        **msgspec.to_builtins(decision),
        "pointer": None if pointer is None else {"path": pointer.path, "step": pointer.step},
    }
