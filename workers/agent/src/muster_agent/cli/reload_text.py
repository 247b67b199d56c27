"""A reload report for people."""

from __future__ import annotations

from muster_agent.cli.output import human_bytes, human_rate, printable
from muster_agent.protocol.phases import STORAGE_PHASES
from muster_agent.protocol.results import ReloadReport

_BAR_CHARACTERS = 30
_VERDICTS = {True: "every byte equals its seal", False: "DAMAGED", None: "not verified"}


def render(report: ReloadReport, path: str) -> str:
    """Several lines: what was read and how fast, the path the bytes took, each phase, the verdict."""
    lines = [
        f"{path}: {human_bytes(report.bytes)} in {report.seconds:.3f} s, {human_rate(report.bytes_per_second)}",
        f"  path     {report.effective} (asked for {report.requested}): {report.reason}",
        f"  cache    {_cache(report)}",
        *(_phase(report, phase.value) for phase in STORAGE_PHASES),
        *_kept(report),
        f"  cost     {report.cpu_seconds:.3f} CPU s, {human_bytes(report.peak_rss_bytes)} extra memory",
        f"  verdict  {_verdict(report)}",
    ]
    return printable("\n".join(lines))


def _kept(report: ReloadReport) -> list[str]:
    count = report.evidence.get("resident_tensors")
    if count is None:
        return []
    held = human_bytes(report.evidence["resident_bytes"])
    views = f"{count} tensors are views of them" if count else "the format does not tell where its tensors lie"
    return [f"  kept     {held} in host memory; {views}"]


def _cache(report: ReloadReport) -> str:
    if report.cached_ratio_before is None:
        why = report.evidence.get("cache_unknown_because", "it cannot be measured here")
        return f"{report.cache_state}: how much was cached before is not known: {why}"
    return f"{report.cache_state}: {report.cached_ratio_before:.1%} of the bytes were cached before the first read"


def _phase(report: ReloadReport, phase: str) -> str:
    if phase not in report.phases:
        return f"  {phase:<12} not measured"
    seconds = report.phases[phase]
    bar = "#" * round(_BAR_CHARACTERS * seconds / report.seconds)
    busy = f"  busy {report.busy[phase]:.3f} s over all threads" if phase in report.busy else ""
    return f"  {phase:<12} {seconds:9.4f} s  {bar:<{_BAR_CHARACTERS}}{busy}".rstrip()


def _verdict(report: ReloadReport) -> str:
    word = _VERDICTS[report.verified]
    if report.verified is None and not report.findings:
        return f"{word}: there is no manifest to compare with (`muster seal` makes one)"
    return word
