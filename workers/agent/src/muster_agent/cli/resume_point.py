"""`muster resume-point`: which checkpoint a restart should load. The disk decides what exists; others add trust."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import click
import msgspec

from muster_agent.cli.age import Age
from muster_agent.cli.always_answered import AlwaysAnswered
from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option, small_files
from muster_agent.cli.inventory import listed
from muster_agent.cli.launchers import Launcher, hint_for, launcher_text, misfit, needs_quoting, with_its_model_file
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json, say
from muster_agent.cli.path_rules import read_rules, rules_option
from muster_agent.cli.proven import manifests_of, verdicts_of
from muster_agent.cli.resume_text import decision_json, decision_lines, failure_lines, warning_lines
from muster_agent.cli.server import NoAnswer, read_token
from muster_agent.cli.server_evidence import BUDGET_SECONDS, ServerAnswer, ask_server
from muster_agent.decide.evidence import candidates_of
from muster_agent.decide.fit import wanted_world_size
from muster_agent.decide.frameworks import governing
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import NON_PERSISTENT, decide, reasons_against
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.explain_words import FORMAT_WORDS
from muster_agent.formats.names import folder_of, run_of_path
from muster_agent.formats.walk import Inventory
from muster_agent.protocol.trust import Trust
from muster_agent.storage.small_files import SmallFiles

SETTLE_SECONDS = 1.0
"""Between two looks at what looks unfinished and may be being written, or may not be shown in full yet."""
_LEAST_BUDGET_SECONDS = 0.5
_REQUIRABLE = [trust.value for trust in Trust if trust is not Trust.LISTED]


class Count(click.IntRange):
    """Digits 0 to 9 and nothing else: `1_0` and digits of other scripts are slips of the hand."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not (value.isascii() and value.lstrip("-").isdigit()):
            self.fail(f"{value!r} is not a number in the digits 0 to 9", param, ctx)
        return int(click.IntRange.convert(self, value, param, ctx))  # type: ignore[arg-type]  # click takes any text


_COUNT = Count(min=1)


@click.command("resume-point", cls=AlwaysAnswered)
@click.argument("path")
@click.option("--world-size", type=_COUNT, help="Ranks of the job that will resume.")
@click.option("--dp", type=_COUNT, help="Its data-parallel ranks.")
@click.option("--tp", type=_COUNT, help="Its tensor-parallel ranks.")
@click.option("--pp", type=_COUNT, help="Its pipeline stages.")
@click.option("--step", type=Count(min=0), help="This step or none.")
@click.option(
    "--require", type=click.Choice(_REQUIRABLE), default="complete", show_default=True, help="The least trust."
)
@click.option("--max-age", "max_age_seconds", type=Age(), metavar="AGE", help="Oldest allowed: 900, 30min, 12h, 2d.")
@click.option(
    "--checkpoint-format",
    "format_name",
    type=click.Choice(sorted(FORMAT_WORDS)),
    metavar="NAME",
    help="Only this format: dcp, megatron_dist ...",
)
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
    --format path       the path alone
    --format env        MUSTER_RESUME_OUTCOME=..., _PATH, _STEP and more, on every exit
    --format megatron   --load DIR --ckpt-step N
    --format deepspeed  --load_dir DIR --tag NAME
    --format hf         --resume_from_checkpoint PATH

    In a script under `set -e` assign first and use then, each on a line of its own: the shell does not see the exit
    code of a command inside another one's arguments, and would start from scratch.

    \b
    point=$(muster resume-point DIR --format path)
    srun train --resume "$point"

    Exit 0: the point is named. Exit 3: there is none, and the outcome says why: nothing_resumable (this run saved, and
    nothing that is left can be used), step_absent, or no_checkpoints. Exit 1: the outcome is unknown, since PATH or
    something in it could not be looked at. Exit 2: the question was wrong, several runs lie here, or the launcher would
    not load the chosen one. Never take 1 or 2 for "start from step 0".
    """
    if launcher is not None and as_json:
        raise CommandFailed("--json and --format exclude each other", hint="choose one", code=ExitCode.USAGE)
    store = bucket_store(checked_place(path), endpoint_url)
    judge = _Judge(_request(require, format_name, asked), server, run_name, small_files(store))
    found = listed(
        path,
        missing=ExitCode.ERROR,
        enough=judge.is_enough,
        settle_seconds=SETTLE_SECONDS,
        rules=read_rules(rules_file),
        store=store,
    )
    folder, shard_maps = _one_run(found, path, judge)
    decision = _beyond_doubt(judge.decide(shard_maps, found.pointers, folder), shard_maps, found)
    if checked_place(path) in [one.path for one in shard_maps]:
        decision = msgspec.structs.replace(decision, pointer_choice=None)  # what lies beside it was not looked at
    chosen = next((one for one in shard_maps if one.path == decision.path), None)
    for line in warning_lines(decision, chosen, found.findings):
        say(one_line(line))
    if as_json:
        print_json(decision_json(decision))
    elif launcher is not None:
        _print_for(Launcher(launcher), with_its_model_file(decision, chosen), chosen)
    else:
        for line in decision_lines(decision, path):
            click.echo(one_line(line))
    if decision.outcome != "found":
        for line in failure_lines(decision, path, judge.request, _unseen(shard_maps, found)):
            say(one_line(line))
        raise SystemExit(int(ExitCode.ERROR if decision.outcome == "unknown" else ExitCode.NOT_FOUND))


def _print_for(launcher: Launcher, decision: ResumeDecision, chosen: ShardMap | None) -> None:
    """Bytes, since a path may hold any; nothing at all on stdout where a launcher would take it for a path, or would
    not load what it names."""
    reason = misfit(launcher, decision, chosen.format) if chosen is not None else None
    if reason is not None:
        hint = "choose the --format of the framework that wrote it, or take --format path"
        raise CommandFailed(one_line(reason), hint=hint, code=ExitCode.USAGE)
    text = launcher_text(launcher, decision)
    if text:
        sys.stdout.buffer.write(os.fsencode(f"{text}\n"))
        sys.stdout.buffer.flush()
    if needs_quoting(launcher, text):
        say("muster: the path needs quoting. What to do, in the job script, each on a line of its own:")
        say(f"  words=$(muster resume-point ... --format {launcher.value})")
        say('  eval "set -- $words"    # and then pass "$@"')
    if launcher is Launcher.PATH and text.endswith("\n"):
        say('muster: the path ends in a line break, which "$(...)" removes: rename the folder')
    besides = hint_for(launcher, chosen.format) if chosen is not None else None
    if besides is not None:
        say(f"muster: {besides}")


_NOT_SEEN = frozenset({"permission_denied", "listing_failed"})


def _unseen(shard_maps: Sequence[ShardMap], found: Inventory) -> list[str]:
    """What could not be looked at: any of it may be the very checkpoint."""
    own = [one.path for one in shard_maps if one.status is Status.UNREADABLE]
    return [*own, *(one.path for one in found.findings if one.code in _NOT_SEEN and one.severity is not Severity.NOTE)]


class _Judge:
    """Holds each checkpoint against the request as it is read, so that reading can end at the first good one."""

    def __init__(self, request: ResumeRequest, server: str | None, run_name: str | None, files: SmallFiles) -> None:
        self.files = files
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
            manifests = manifests_of([shard_map], self.files)
            evidence = self.evidence(folder).evidence
            verdicts = verdicts_of(manifests, self.files)
            self.candidates[key] = candidates_of([shard_map], time.time(), manifests, evidence, verdicts)[0]
        return self.candidates[key]

    def evidence(self, folder: str) -> ServerAnswer:
        """What the server adds; nothing, with a message, where it does not answer in time."""
        if self.answer is None:
            self.answer = _server_answer(self.server, self.run_name or run_of_path(f"{folder}/step"), self.began)
        return self.answer

    def decide(self, shard_maps: Sequence[ShardMap], pointers: Sequence[Pointer], folder: str) -> ResumeDecision:
        candidates = [self.candidate(shard_map, folder) for shard_map in shard_maps]
        pointer = _pointer_in(folder, pointers) if candidates else governing(pointers)
        decision = decide(candidates, self.request, pointer)
        answer = self.answer
        if answer is not None and decision.path is not None and decision.path == answer.path:
            return msgspec.structs.replace(decision, predicted_seconds=answer.predicted_seconds)
        return decision


def _beyond_doubt(decision: ResumeDecision, shard_maps: Sequence[ShardMap], found: Inventory) -> ResumeDecision:
    """The same, but `unknown` where there is no point and a folder could not be entered in which one may lie."""
    if decision.outcome not in ("nothing_resumable", "no_checkpoints") or not _unseen(shard_maps, found):
        return decision
    return msgspec.structs.replace(decision, outcome="unknown")


def _pointer_in(folder: str, pointers: Sequence[Pointer]) -> Pointer | None:
    return governing([one for one in pointers if os.path.dirname(one.path) == folder])


def _request(require: str, format_name: str | None, asked: dict[str, int | float | None]) -> ResumeRequest:
    request = msgspec.convert({**asked, "require": require, "format": format_name}, ResumeRequest, strict=False)
    degrees = ResumeRequest(dp=request.dp, tp=request.tp, pp=request.pp)
    product = wanted_world_size(degrees)
    if request.world_size is not None and product not in (None, request.world_size):
        message = f"--dp, --tp and --pp multiply to {product}, and --world-size is {request.world_size}"
        raise CommandFailed(message, hint="correct one of them", code=ExitCode.USAGE)
    return request


def _one_run(found: Inventory, path: str, judge: _Judge) -> tuple[str, list[ShardMap]]:
    """The folder that holds the run's steps, and its checkpoints. A choice between runs is the user's to make, and so
    is a name that none of them has."""
    folders = sorted({folder_of(one.path) for one in found.checkpoints if one.step is not None})
    own, run_name = checked_place(path), judge.run_name
    if run_name is None and own in folders:
        return own, _of_own_folder(found, own, folders)
    chosen = folders if run_name is None else [folder for folder in folders if _is_called(folder, run_name)]
    if not chosen and len(folders) == 1 and judge.server:
        say(one_line(f"muster: no folder here is called {run_name}; it is taken for the server's name of {folders[0]}"))
        chosen = folders
    if len(chosen) > 1 or (not chosen and found.checkpoints and run_name is not None):
        raise _choice_of_runs(path, folders, run_name if not chosen else None)
    if not chosen:
        return own, list(found.checkpoints)
    return chosen[0], [one for one in found.checkpoints if folder_of(one.path) == chosen[0]]


def _is_called(folder: str, run_name: str) -> bool:
    """Whether the folder's own name, its run's, or the end of its path is this name."""
    return run_name == run_of_path(f"{folder}/step") or f"{folder}/".endswith(f"/{run_name.strip('/')}/")


def _choice_of_runs(path: str, folders: Sequence[str], missed: str | None) -> CommandFailed:
    more = f"\n    and {len(folders) - _LISTED_RUNS} more" if len(folders) > _LISTED_RUNS else ""
    listed_folders = "".join(f"\n    {folder}" for folder in folders[:_LISTED_RUNS]) or " none with a known step"
    runs = "1 run" if len(folders) == 1 else f"{len(folders)} runs"
    holds = f"{path} holds the checkpoints of {runs}:{listed_folders}{more}"
    message = holds if missed is None else f"no run under {path} is called {missed}; {holds}"
    return CommandFailed(message, hint="name one of these folders, or choose with --run", code=ExitCode.USAGE)


_LISTED_RUNS = 10


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
    except NoAnswer as reason:
        say(f"muster: {reason}; answering from the disk alone")
        return ServerAnswer()
