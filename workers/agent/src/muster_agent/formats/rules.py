"""Path rules: what a site's own launcher leaves in a step folder, which no format knows.

`.muster-rules.json` at the root of the place is JSON:

    {"rules": [{"match": "*/step_*", "requires": ["trainer", "orchestrator"], "markers": [".complete"],
                "rank_marker": ".rank_{rank}_complete", "step": "step_(\\\\d+)"}]}

`match` is a glob for the last parts of a checkpoint's path. Each name in `requires` must be there, as a file or a
folder; one of `markers` must be there; `rank_marker` must be there for every rank. `step` gives the step by full match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.tree import Tree
from muster_agent.formats.verdict import AgeLimit

RULES_NAME = ".muster-rules.json"
MAX_RULES_BYTES = 256 * 1024
_MAX_PATTERN = 200
_RANK = "{rank}"
_CURE = "Correct the file; until then steps are judged by their formats alone."
_STEP = re.compile(r"(?:[A-Za-z0-9_.=-]|\\\.)*\(\\d\+\)(?:[A-Za-z0-9_.=-]|\\\.)*", re.ASCII)
"""Literal characters around one number: a pattern that a hostile file could give cannot run for long."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module. `match` is required; the rest asks for nothing where it is left out."""

    match: str
    requires: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    rank_marker: str | None = None
    step: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[Rule, ...]


class RulesInvalid(Exception):
    """The file of rules cannot be used; the message says why."""


def parse_rules(data: bytes) -> tuple[Rule, ...]:
    """Raises RulesInvalid."""
    try:
        rules = msgspec.json.decode(data, type=_File).rules
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RulesInvalid(f"it is not a file of rules: {error}") from None
    for rule in rules:
        problem = _problem(rule)
        if problem:
            raise RulesInvalid(f"the rule for {rule.match[:_MAX_PATTERN]!r} {problem}")
    return rules


def _problem(rule: Rule) -> str | None:
    if not rule.match or len(rule.match) > _MAX_PATTERN:
        return "matches nothing, or is too long"
    names = [*rule.requires, *rule.markers, *([rule.rank_marker] if rule.rank_marker is not None else [])]
    unsafe = next((name for name in names if unsafe_reason(name) or "/" in name), None)
    if unsafe is not None:
        return f"names {unsafe[:_MAX_PATTERN]!r}, which is not the name of one file or folder"
    if rule.rank_marker is not None and rule.rank_marker.count(_RANK) != 1:
        return f"has a rank_marker without one {_RANK}"
    if rule.step is not None and (len(rule.step) > _MAX_PATTERN or not _STEP.fullmatch(rule.step)):
        return "has a step that is not plain text around one (\\d+)"
    return None


def rules_at(tree: Tree, place: str) -> tuple[tuple[Rule, ...], list[Finding]]:
    """The rules in the file of rules at the root `place`, and what is wrong with it. None where there is no file."""
    path = f"{place.rstrip('/')}/{RULES_NAME}"
    try:
        with tree.open(path) as opened:
            if opened.size_bytes > MAX_RULES_BYTES:
                raise RulesInvalid(f"it is larger than {MAX_RULES_BYTES} bytes")
            return parse_rules(opened.pread(opened.size_bytes, 0)), []
    except (FileNotFoundError, NotADirectoryError):
        return (), []
    except OSError as error:
        return (), [trouble(error, path)]
    except RulesInvalid as problem:
        detail = f"the path rules are not used: {problem}"
        return (), [finding("metadata_unreadable", path=path, detail=detail, severity=Severity.WARNING, cure=_CURE)]


def rule_for(rules: Iterable[Rule], path: str) -> Rule | None:
    """The first rule whose `match` fits the last parts of the path."""
    return next((rule for rule in rules if _fits(rule.match, path)), None)


def _fits(pattern: str, path: str) -> bool:
    wanted, parts = pattern.strip("/").split("/"), path.strip("/").split("/")
    tail = parts[-len(wanted) :]
    return len(tail) == len(wanted) and all(fnmatchcase(part, one) for part, one in zip(tail, wanted, strict=True))


def judged(shard_map: ShardMap, rules: Sequence[Rule], look: Callable[[str], Folder], age_limit: AgeLimit) -> ShardMap:
    """The checkpoint as the first rule that fits it sees it; unchanged where none does, or where nothing is amiss."""
    rule = rule_for(rules, shard_map.path)
    if rule is None:
        return shard_map
    folder = look(shard_map.path)
    if not folder.listed:
        return shard_map
    if rule.step is not None:
        match = re.fullmatch(rule.step, shard_map.path.rsplit("/", 1)[-1], re.ASCII)
        shard_map = msgspec.structs.replace(shard_map, step=int(match.group(1)[:18])) if match else shard_map
    missing, unmarked = _missing(rule, folder), _unmarked(rule, folder, shard_map.world_size)
    if not missing and not unmarked:
        return shard_map
    return _worse(shard_map, missing, unmarked, recent=age_limit.is_recent(shard_map.newest_mtime_ns))


def _names(folder: Folder) -> set[str]:
    return folder.files.keys() | set(folder.folders) | folder.blocked | folder.links


def _missing(rule: Rule, folder: Folder) -> list[Finding]:
    detail = "the path rule {match!r} requires {name}, which is not there"
    return [
        finding("shard_missing", path=name, detail=detail.format(match=rule.match, name=name))
        for name in rule.requires
        if name not in _names(folder)
    ]


def _unmarked(rule: Rule, folder: Folder, world_size: int | None) -> list[Finding]:
    names = _names(folder)
    found = []
    if rule.markers and names.isdisjoint(rule.markers):
        found.append(_no_marker(rule, rule.markers[0]))
    if rule.rank_marker is not None:
        before, after = rule.rank_marker.split(_RANK)
        pattern = re.compile(rf"{re.escape(before)}(\d{{1,9}}){re.escape(after)}", re.ASCII)
        have = {int(match.group(1)) for match in map(pattern.fullmatch, names) if match}
        expected = min(world_size or max(have, default=0) + 1, 1_000_000)
        lacking = sorted(set(range(expected)) - have)
        found += [_no_marker(rule, rule.rank_marker.replace(_RANK, str(rank))) for rank in lacking[:100]]
    return found


def _no_marker(rule: Rule, name: str) -> Finding:
    detail = f"the path rule {rule.match!r} says that a save that ended leaves {name}, which is not there"
    return finding("uncommitted", path=name, detail=detail)


def _worse(shard_map: ShardMap, missing: list[Finding], unmarked: list[Finding], *, recent: bool) -> ShardMap:
    """What a format found amiss stays; what it took for whole, or did not know, is no longer taken for whole."""
    soft = (Status.COMPLETE, Status.UNKNOWN, Status.UNCOMMITTED)
    status = shard_map.status
    if status in soft:
        status = Status.IN_PROGRESS if recent else Status.INCOMPLETE if missing else Status.UNCOMMITTED
    what = "requires parts that are not there" if missing else "does not find the mark of a save that ended"
    return msgspec.structs.replace(
        shard_map,
        status=status,
        resumable=False,
        not_resumable_reasons=(*shard_map.not_resumable_reasons, f"a path rule {what}"),
        findings=(*shard_map.findings, *missing, *unmarked),
    )
