"""A reload report for people."""

from __future__ import annotations

from muster_agent.cli.ceiling_memory import Efficiency
from muster_agent.cli.output import human_bytes, human_memory, human_rate, printable
from muster_agent.protocol.phases import STORAGE_PHASES
from muster_agent.protocol.results import ReloadReport

_BAR_CHARACTERS = 30
_NAMED = 5
_VERDICTS = {True: "every byte equals its seal", False: "DAMAGED", None: "not verified"}


def render(report: ReloadReport, path: str, efficiency: Efficiency) -> str:
    """Several lines: what was read and how fast, the path the bytes took, each phase, the verdict. The critical path
    adds up to the whole time; busy and CPU seconds are sums over threads that work at the same time."""
    lines = [
        f"{path}: {human_bytes(report.bytes)} in {report.seconds:.3f} s, {human_rate(report.bytes_per_second)}",
        f"  path     {report.effective} (asked for {report.requested}): {report.reason}",
        f"  cache    {_cache(report)}",
        f"  ceiling  {_efficiency(efficiency)}",
        f"  {'phase':<12} {'critical path':>14}  {'':<{_BAR_CHARACTERS}}  {'busy, all':>9}  {'CPU':>9}",
        *(_phase(report, phase.value) for phase in STORAGE_PHASES),
        f"  {'all':<12} {report.seconds:12.4f} s  {'':<{_BAR_CHARACTERS}}  {'':>9}  {report.cpu_seconds:7.3f} s",
        *_objects(report),
        *_kept(report),
        *_ranks(report),
        *_shared(report),
        f"  memory   {human_memory(report.peak_rss_bytes)} extra",
        *_unread(report),
        f"  verdict  {_verdict(report)}",
    ]
    return printable("\n".join(lines))


def _efficiency(efficiency: Efficiency) -> str:
    ceiling = efficiency.ceiling
    if ceiling is None:
        return f"efficiency not measured: {efficiency.why_not}"
    against = f"{human_rate(ceiling.bytes_per_second)} ({ceiling.method}, measured {ceiling.measured_at})"
    if efficiency.ratio is None:
        return f"efficiency not measured: {efficiency.why_not}; the ceiling is {against}"
    return f"efficiency {efficiency.ratio:.0%} of {against}"


def _kept(report: ReloadReport) -> list[str]:
    where = "device" if "device_tensors" in report.evidence else "resident"
    count = report.evidence.get(f"{where}_tensors")
    if count is None:
        return []
    held = human_memory(report.evidence[f"{where}_bytes"])
    views = f"{count} tensors are views of them" if count else "the format does not tell where its tensors lie"
    if cut := report.evidence.get("cut_tensors"):
        views = f"{views}, and {cut} more are cut by the borders of this share"
    place = "host memory" if where == "resident" else f"the memory of {report.evidence.get('device', 'the GPU')}"
    return [f"  kept     {held} in {place}; {views}"]


def _ranks(report: ReloadReport) -> list[str]:
    ranks = report.evidence.get("ranks")
    if ranks is None:
        return []
    each = [f"rank {rank} {human_bytes(count)}" for rank, count in ranks["by_rank"].items()]
    more = f" and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    unique, delivered = human_bytes(ranks["unique_bytes"]), human_bytes(ranks["delivered_bytes"])
    return [f"  ranks    {unique} read once gave {delivered} to {len(each)} ranks: {', '.join(each[:_NAMED])}{more}"]


def _shared(report: ReloadReport) -> list[str]:
    shared = report.evidence.get("shared")
    if shared is None:
        return []
    if "not_shared_because" in shared:
        return [f"  shared   not among {shared['ranks']} ranks: {shared['not_shared_because']}"]
    unique, delivered = (human_bytes(shared[name]) for name in ("unique_bytes", "delivered_bytes"))
    took = f"the slowest took {shared['slowest_rank_seconds']:.3f} s more to read all of it from there"
    return [f"  shared   {unique} read once, {delivered} delivered to {shared['ranks']} ranks of this host; {took}"]


def _objects(report: ReloadReport) -> list[str]:
    """What the requests of a reload from a bucket cost."""
    costs = report.evidence.get("s3")
    if costs is None:
        return []
    parts = [
        f"names {costs['resolve_seconds']:.3f} s",
        f"connecting {costs['connect_seconds']:.3f} s",
        *([f"TLS {costs['tls_seconds']:.3f} s"] if "tls_seconds" in costs else []),
        f"first bytes {costs['first_byte_seconds']:.3f} s (slowest {costs['slowest_first_byte_seconds']:.3f} s)",
        f"bodies {costs['body_seconds']:.3f} s",
    ]
    requests, connections = costs["requests"], costs["connections"]
    lines = [
        f"  requests {requests} over {connections} connections to {', '.join(costs['endpoints'])}",
        f"           over all threads: {', '.join(parts)}",
    ]
    if costs["retries"]:
        met = ", ".join(f"{count} x {kind}" for kind, count in sorted(costs["retries"].items()))
        lines.append(f"           asked again: {met}")
    left_out = costs.get("endpoints_left_out", {})
    return lines + [f"           left out {name}: {why}" for name, why in sorted(left_out.items())]


def _cache(report: ReloadReport) -> str:
    if report.cached_ratio_before is None:
        why = report.evidence.get("cache_unknown_because", "it cannot be measured here")
        return f"{report.cache_state}: how much was cached before is not known: {why}"
    if "s3" in report.evidence:
        return f"{report.cache_state}: this node caches nothing of a bucket; what the store caches is not known"
    return f"{report.cache_state}: {report.cached_ratio_before:.1%} of the bytes were cached before the first read"


def _phase(report: ReloadReport, phase: str) -> str:
    if phase not in report.phases:
        return f"  {phase:<12} not measured"
    seconds = report.phases[phase]
    bar = "#" * round(_BAR_CHARACTERS * seconds / report.seconds)
    busy, cpu = (_seconds(column.get(phase)) for column in (report.busy, report.cpu_by_phase))
    return f"  {phase:<12} {seconds:12.4f} s  {bar:<{_BAR_CHARACTERS}}  {busy}  {cpu}".rstrip()


def _seconds(value: float | None) -> str:
    return f"{value:7.3f} s" if value is not None else " " * 9


def _unread(report: ReloadReport) -> list[str]:
    word = next((word for word in ("stopped", "unread") if word in report.evidence), None)
    if word is None:
        return []
    told = report.evidence[word]
    unread = told["not_read"]
    first = ", ".join(f"{one['path']} ({human_bytes(one['bytes'] - one['read_bytes'])})" for one in unread[:_NAMED])
    more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    came = f"{human_bytes(report.bytes)} of {human_bytes(told['planned_bytes'])}"
    came = f"after {came}" if word == "stopped" else f"{came} came"
    return [f"  {word:<7}  {came}; not read: {first}{more}"]


def _verdict(report: ReloadReport) -> str:
    word = _VERDICTS[report.verified]
    if "stopped" in report.evidence and report.verified is None:
        return f"{word}: it was stopped; what was read until then shows no damage"
    if report.verified is None and not report.findings:
        return f"{word}: there is no manifest to compare with (`muster seal` makes one)"
    return word
