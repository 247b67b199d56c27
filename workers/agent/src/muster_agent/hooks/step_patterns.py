"""What a line of a training log says of a step, by patterns that can be matched in a bounded time. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import msgspec

MAX_PATTERN_CHARACTERS = 300
MAX_LINE_CHARACTERS = 512
"""More of a line is not looked at."""
MAX_WIDE_REPEATS = 2
BOUNDED_REPEAT = 64
_MAX_STEP_DIGITS = 18
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_REFUSED = {
    codes.GROUPREF: "a back reference",
    codes.GROUPREF_EXISTS: "a condition",
    codes.ASSERT: "a look around",
    codes.ASSERT_NOT: "a look around",
}
_NARROW = ((codes.CATEGORY, codes.CATEGORY_DIGIT), (codes.CATEGORY, codes.CATEGORY_SPACE))


class BadPattern(ValueError):
    """The message says what is wrong with it and what would do."""


class StepLog(msgspec.Struct, frozen=True, kw_only=True):
    """One log in an agent's `config.json`: the run that writes it, where, and the two patterns.

    path: absolute; in its last part `*` stands for anything and `%j` for the number of a Slurm job. Of several files
    the newest is followed. step: with a group `step`, matched by each line that tells of a step done. resumed: with a
    group `step`, and one `path` where the line names the checkpoint, matched when its state is in place.
    """

    run: str
    path: str
    step: str
    resumed: str

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path) or any(mark in os.path.dirname(self.path) for mark in ("*", "%j")):
            raise BadPattern(f"{self.path} is not an absolute path with * and %j in its last part only")
        for name in ("step", "resumed"):
            compiled(getattr(self, name), name)


@dataclass(frozen=True)
class Told:
    """What one line says: `kind` is step or resumed_from."""

    kind: str
    step: int
    path: str = ""


class LinePatterns:
    """Both patterns of one log."""

    def __init__(self, log: StepLog) -> None:
        self._step, self._resumed = compiled(log.step, "step"), compiled(log.resumed, "resumed")

    def read(self, line: str) -> Told | None:
        """None for a line that tells of neither."""
        text = line[:MAX_LINE_CHARACTERS]
        for kind, pattern in (("resumed_from", self._resumed), ("step", self._step)):
            found = pattern.search(text)
            step = found and _whole(found["step"])
            if found and step is not None:
                return Told(kind, step, found.groupdict().get("path") or "" if kind == "resumed_from" else "")
        return None


def compiled(text: str, what: str) -> re.Pattern[str]:
    """Raises BadPattern for one that is no pattern, has no group `step`, or could take long on an unlucky line."""
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise BadPattern(f"the pattern {what} has over {MAX_PATTERN_CHARACTERS} characters")
    try:
        pattern, tree = re.compile(text, re.ASCII), parser.parse(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"the pattern {what} is none: {error}") from error
    if "step" not in pattern.groupindex:
        raise BadPattern(f"the pattern {what} has no group (?P<step>...)")
    walk = _Walk(what)
    walk.over(tree)
    if walk.wide > MAX_WIDE_REPEATS:
        raise BadPattern(
            f"the pattern {what} has {walk.wide} repeats of any character, at most {MAX_WIDE_REPEATS} may be: write "
            r"\d{1,12} or \s{1,8} where digits or spaces are meant"
        )
    return pattern


class _Walk:
    """Through a pattern's tree. `wide`: how many repeats could each take any part of a line. Raises BadPattern for what
    multiplies them."""

    def __init__(self, what: str) -> None:
        self.wide = 0
        self._what = what
        self._last: Any = None
        """The class that the element before repeats, if it is a narrow one."""

    def over(self, tree: Any, *, inside_repeat: bool = False) -> None:
        for code, argument in tree:
            if code in _REFUSED:
                raise self._bad(f"has {_REFUSED[code]}")
            if code in _REPEATS:
                self._repeat(*argument, inside_repeat=inside_repeat)
            elif code is codes.SUBPATTERN:
                self.over(argument[-1], inside_repeat=inside_repeat)
            elif code is codes.ATOMIC_GROUP:
                self.over(argument, inside_repeat=inside_repeat)
            elif code is codes.BRANCH:
                if inside_repeat:
                    raise self._bad("repeats a choice")
                for one in argument[1]:
                    self._last = None
                    self.over(one)
                self._last = None
            else:
                self._last = None

    def _repeat(self, _least: int, most: int, repeated: Any, *, inside_repeat: bool) -> None:
        narrow = _narrow(repeated)
        if most > 1 and (inside_repeat or (narrow is not None and narrow == self._last)):
            raise self._bad("repeats what repeats")
        self.over(repeated, inside_repeat=inside_repeat or most > 1)
        self.wide += most > BOUNDED_REPEAT and narrow is None
        self._last = narrow

    def _bad(self, does: str) -> BadPattern:
        return BadPattern(f"the pattern {self._what} {does}, which may take for ever on an unlucky line")


def _narrow(repeated: Any) -> Any:
    """The class of a repeat of digits alone or of spaces alone, None for any other."""
    if len(repeated) != 1 or repeated[0][0] is not codes.IN or len(repeated[0][1]) != 1:
        return None
    return repeated[0][1][0] if repeated[0][1][0] in _NARROW else None


def _whole(text: str | None) -> int | None:
    """`12400`, `12,400`; None for anything else."""
    digits = (text or "").replace(",", "")
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) <= _MAX_STEP_DIGITS else None
