"""`muster reload`: read a checkpoint as a restart would, verify it, and time each phase."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

from muster_agent.cli.bucket import bucket_store, checked_place
from muster_agent.cli.ceiling_memory import efficiency_of
from muster_agent.cli.compare_command import run_comparison
from muster_agent.cli.finding_text import ProgressBar, say_findings
from muster_agent.cli.one_checkpoint import require_one_checkpoint
from muster_agent.cli.output import CommandFailed, ExitCode, print_json, say
from muster_agent.cli.reload_text import render
from muster_agent.cli.stop_signals import stopping
from muster_agent.cli.verdict_note import leave_verdict, look_before
from muster_agent.formats.base import Severity
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.reload import NotCold, PreparedReload, ReloadStopped, prepare
from muster_agent.jobs.selection import ShardsNotFound, require_shards
from muster_agent.manifest.model import Manifest
from muster_agent.probes.cuda import parse_device
from muster_agent.protocol.results import Backend, CacheState, ReloadReport
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.backends import REQUESTABLE, device_index_for, is_as_requested
from muster_agent.reload.gpu.device import DeviceUnavailable
from muster_agent.reload.memory import NoRoom
from muster_agent.reload.shared import NotShared

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?(?:/s)?")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}


class Rate(click.ParamType[int]):
    """Bytes per second: `500MB`, `1.5GB/s`, `256MiB`, or a plain number of bytes."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes per second, above 0."""
        match = _RATE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a rate such as 500MB, 1.5GB/s or 256MiB", param, ctx)
        number, power, binary = match.groups()
        rate = int(float(number) * (1024 if binary else 1000) ** _POWERS[power])
        if rate <= 0:
            self.fail("the rate must be above 0", param, ctx)
        return rate


@click.command()
@click.argument("path")
@click.option("--shards", multiple=True, metavar="NAME", help="Read only this shard; may be repeated.")
@click.option(
    "--rank",
    "ranks",
    type=int,
    multiple=True,
    help="What this rank reads: its own shards, and those that belong to no rank; may be repeated.",
)
@click.option("--world", type=click.IntRange(min=1), help="With one --rank: its even share of all bytes instead.")
@click.option("--backend", type=click.Choice(REQUESTABLE), default="auto", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, or cuda:N.")
@click.option(
    "--evict/--no-evict", default=True, show_default=True, help="Drop these files from the page cache before the clock."
)
@click.option("--cold-required", is_flag=True, help="Read nothing unless it comes from the storage, not from memory.")
@click.option("--resident", is_flag=True, help="Keep every byte in host memory, with the tensors as views of it.")
@click.option(
    "--ranks-on-host", type=click.IntRange(min=1), help="Read once; so many processes here take all of it, shared."
)
@click.option(
    "--endpoint-url",
    "endpoint_urls",
    metavar="URL",
    multiple=True,
    help="Where the bucket of an s3:// path is served; may be repeated, and readers spread over them.",
)
@click.option("--max-rate", "max_bytes_per_second", type=Rate(), help="Read no faster than this, such as 500MB.")
@click.option("--compare", metavar="LOADERS", help="Also by torch, torch_mmap, dcp, safetensors, plain: a table.")
@click.option("--compare-python", metavar="PATH", help="Python that has them; else MUSTER_COMPARE_PYTHON, or this one.")
@click.option("--no-write", is_flag=True, help="Leave no verdict beside the data for `muster resume-point`.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def reload(
    path: str,
    shards: tuple[str, ...],
    ranks: tuple[int, ...],
    world: int | None,
    endpoint_urls: tuple[str, ...],
    no_write: bool,
    as_json: bool,
    **engine: Any,
) -> None:
    """Read the checkpoint at PATH (a folder, a file, or s3://bucket/prefix) as a restart would and compare it with its
    manifest, where it has one. The verdict is then left beside the data, where `muster resume-point` finds it.

    Exit 0: read, and unchanged where sealed; 7: damage; 1: the named backend did not happen, or something could not
    be read; 3: not found; 143 or 130: stopped by SIGTERM or Ctrl-C, with the report of what was read until then.
    """
    if shards and ranks:
        raise click.UsageError("--shards and --rank exclude each other")
    share = _share(ranks, world)
    _check_device(engine["backend"], engine["device"])
    loaders, python = engine.pop("compare"), engine.pop("compare_python")
    if loaders is not None and is_bucket(path):
        raise click.UsageError("--compare is for files: these loaders do not read buckets")
    stores = _stores(path, endpoint_urls)
    require_one_checkpoint(path, next(iter(stores), None))
    if loaders is not None:
        if shards or ranks:
            raise click.UsageError("--compare reads the whole checkpoint: leave out --shards and --rank")
        run_comparison(path, loaders, python, as_json=as_json)
        return
    engine["resident"] = engine["resident"] or engine["ranks_on_host"] is not None
    params = ReloadParams(
        path=path,
        shards=shards,
        ranks=() if share else ranks,
        share=share,
        **engine,
    )
    bar = ProgressBar()
    control = bar.control()
    try:
        with stopping(control) as signals:
            with signals.at_once():
                prepared = prepare(params, stores=stores)
            report = _run(prepared, bar, control, write=not no_write)
    except ReloadStopped as stop:
        bar.clear()
        _show(stop.report, path, as_json=as_json)
        unread = "; what was not read is not known" if "stopped" in stop.report.evidence else ", when all had been read"
        say(f"muster: stopped by {signals.name}{unread}")
        raise SystemExit(signals.exit_code) from stop
    except Cancelled as stop:
        say(f"muster: stopped by {signals.name} before anything was read")
        raise SystemExit(signals.exit_code) from stop
    except (CheckpointNotFound, ShardsNotFound) as error:
        hint = "check the path and the mount; `muster inventory` lists what is there"
        raise CommandFailed(str(error), hint=hint, code=ExitCode.NOT_FOUND) from error
    except DeviceUnavailable as error:
        raise CommandFailed(f"the GPU failed: {error}", hint="leave out --device, or name another one") from error
    except (RootUnreadable, NotCold, NotShared, NoRoom) as error:
        raise CommandFailed(str(error), hint=_what_to_do(error)) from error
    finally:
        bar.clear()
    _show(report, path, as_json=as_json)
    _exit_for(report, path, engine["device"])


def _what_to_do(error: RootUnreadable | NotCold | NotShared | NoRoom) -> str:
    if isinstance(error, RootUnreadable):
        return error.hint
    if isinstance(error, NotCold):
        return "leave out --no-evict, or --cold-required"
    if isinstance(error, NotShared):
        return "look at this host's memory, then try again"
    return "name a --rank or --shards, or leave out --resident"


def _show(report: ReloadReport, path: str, *, as_json: bool) -> None:
    efficiency = efficiency_of(report, path)
    if as_json:
        measured = {"ceiling": efficiency.ceiling, "efficiency_ratio": efficiency.ratio}
        print_json({**msgspec.structs.asdict(report), **measured})
    else:
        click.echo(render(report, path, efficiency))
    say_findings(report.findings)


def _check_device(backend: str, device: str) -> None:
    try:
        device_index_for(backend, device)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _stores(path: str, endpoint_urls: tuple[str, ...]) -> list[ObjectStore]:
    """One client per endpoint; without any, the environment's, the profile's, or Amazon's."""
    place = checked_place(path)
    found = [bucket_store(place, url) for url in endpoint_urls or (None,)]
    return [store for store in found if store is not None]


def _share(ranks: tuple[int, ...], world: int | None) -> tuple[int, int] | None:
    if world is None:
        return None
    if len(ranks) != 1 or not 0 <= ranks[0] < world:
        raise click.UsageError(f"--world {world} needs one --rank from 0 to {world - 1}")
    return ranks[0], world


def _run(prepared: PreparedReload, bar: ProgressBar, control: JobControl, *, write: bool) -> ReloadReport:
    """The report, with its verdict left beside the data where there is a manifest."""
    require_shards(prepared.place, prepared.params.shards, prepared.manifest)
    manifest = prepared.manifest
    if manifest is None or not write:
        return prepared.run(control).report
    before = look_before(prepared.place, manifest)
    report = prepared.run(control).report
    bar.clear()
    if report.verified is False or _proves_storage(report):
        ratio = _read_ratio(report, manifest)
        leave_verdict(before, verified=report.verified, sample_ratio=ratio, findings=report.findings)
    return report


def _proves_storage(report: ReloadReport) -> bool:
    """Bytes that came from the page cache say nothing about those that the storage holds."""
    ended = report.evidence.get("into_host", report.effective)
    went_around = ended in (Backend.HOST_DIRECT.value, Backend.GDS.value)
    return went_around or report.cache_state == CacheState.COLD.value


def _read_ratio(report: ReloadReport, manifest: Manifest) -> float:
    return min(1.0, report.bytes / manifest.total_bytes) if manifest.total_bytes else 1.0


def _exit_for(report: ReloadReport, path: str, device: str) -> None:
    if report.verified is False or any(found.severity == Severity.DAMAGE for found in report.findings):
        raise SystemExit(int(ExitCode.DAMAGE))
    if not is_as_requested(report.requested, report.effective):
        message = f"the bytes took the path {report.effective}, not {report.requested}: {report.reason}"
        raise CommandFailed(message, hint="use --backend auto to accept the best path there is")
    if parse_device(device) is not None and not {"counts", "into_host"} & report.evidence.keys():
        message = f"the bytes ended in host memory, not on {device}: {report.reason}"
        raise CommandFailed(message, hint="leave out --device, or name one that `nvidia-smi` lists")
    if report.findings:
        raise CommandFailed(f"{path} could not be read and verified in full", hint="see the findings above")
