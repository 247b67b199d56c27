"""Files that ranks wrote one each, by their names: `optim_world_size_8_rank_3.pt`, `model-rank0.pt`,
`consolidated.00.pth`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_RANK = re.compile(r"(?P<head>.*?(?:^|[_.-])rank[_-]?|consolidated\.)(?P<rank>\d{1,6})(?P<tail>(?:\D.*)?)", re.ASCII)
STEP_IN_NAME = re.compile(
    r"(?:^|[_.-])(?:global[_-]?step|step|iter(?:ation)?|ba|checkpoint|ckpt)[_=-]?(\d{1,18})(?=[_.-])", re.ASCII
)
_WORLD = re.compile(r"world_size_(\d{1,6})(?:\D|$)", re.ASCII)
_STEP_AND_RANK = re.compile(
    r"(?P<part>[^{}]*?\D)(?P<step>\d{1,18})[._-]rank[_-]?(?P<rank>\d{1,6})(?P<ending>\.(?:pt|pth|bin|ckpt))", re.ASCII
)
MAX_WORLD = 100_000


@dataclass(slots=True)
class RankSet:
    """The files of one name but for the rank. `world_size` is what the names say; None where they do not."""

    head: str
    tail: str
    names: dict[int, str] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        return f"{self.head}{{rank}}{self.tail}"

    @property
    def world_size(self) -> int | None:
        match = _WORLD.search(self.head)
        return int(match.group(1)) if match else None

    @property
    def expected(self) -> range:
        """The ranks that must have a file: all of the world, or none left out below the highest seen."""
        return range(min(max(self.world_size or 0, max(self.names, default=-1) + 1), MAX_WORLD))

    def name_of(self, rank: int) -> str:
        """The name of a rank's file, zero-padded as its siblings are."""
        known = self.names.get(rank)
        if known is not None:
            return known
        shown = {name[len(self.head) : len(name) - len(self.tail)] for name in self.names.values()}
        width = max((len(digits) for digits in shown if digits.startswith("0")), default=1)
        return f"{self.head}{rank:0{width}d}{self.tail}"


def split_rank(name: str) -> tuple[str, int, str] | None:
    """(what is before the rank, the rank, what is behind it) of a file's name; None where it names no rank."""
    match = _RANK.fullmatch(name)
    return (match["head"], int(match["rank"]), match["tail"]) if match else None


def split_step_and_rank(name: str) -> re.Match[str] | None:
    """The part, the step, the rank and the ending of a name such as `optim_000100_rank0.pt`; None for another."""
    match = _STEP_AND_RANK.fullmatch(name)
    return None if match is None or "world_size" in match["part"] else match


def padded_step(name: str) -> int | None:
    """The step of a file of a rank that names it by a padded number only, as `model_0001249.rank_0.pth` does."""
    match = split_step_and_rank(name)
    return None if match is None or len(match["step"]) < _PADDED_DIGITS else int(match["step"])


_PADDED_DIGITS = 5


def rank_sets(names: Iterable[str]) -> list[RankSet]:
    """The sets of files that differ in their rank only, by their pattern."""
    sets: dict[tuple[str, str], RankSet] = {}
    for name in names:
        parts = split_rank(name)
        if parts is not None and "{" not in name:
            head, rank, tail = parts
            sets.setdefault((head, tail), RankSet(head, tail)).names[rank] = name
    return [sets[key] for key in sorted(sets)]
