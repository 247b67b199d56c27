"""The sentence of a run as a page shows it: the same words, with what they speak of linked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# "(audit aud_01... at 2026-...)": the linked checkpoint's page has it; the sentence does without.
_SOURCE = re.compile(r" \((?:audit|drill|scan) [a-z]+_[0-9a-zA-Z_]+ at [^)]*\)")
_LARGE = re.compile(r"(?<![\w.,-])[0-9]{5,18}(?![\w-]|[.,]\d)")


@dataclass(frozen=True)
class Part:
    """A piece of a sentence: plain, or a link."""

    text: str
    url: str = ""


def linked(sentence: str, urls: Mapping[str, str]) -> tuple[Part, ...]:
    """`sentence` in pieces, in which the first mention of each key of `urls` is a link."""
    text = _LARGE.sub(lambda found: f"{int(found.group()):,}", _SOURCE.sub("", sentence))
    places = sorted((at, words) for words in urls if (at := _whole(text, words)) >= 0)
    parts, done = [], 0
    for at, words in places:
        if at < done:
            continue
        parts += [Part(text[done:at]), Part(words, urls[words])]
        done = at + len(words)
    return tuple(part for part in [*parts, Part(text[done:])] if part.text)


def _whole(text: str, words: str) -> int:
    """Where `words` stand by themselves: "step 12" is not in "step 120"; -1 where nowhere."""
    found = re.search(rf"{re.escape(words)}(?![\w,]*\d)", text)
    return found.start() if found else -1
