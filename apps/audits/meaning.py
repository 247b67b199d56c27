"""What an audit proves, in numbers and in one honest sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster_agent.manifest.sampling import covered_chunks, detection_probability, turns_to_cover

from apps.core.units import percent

UNCHANGED = (
    "Check sums prove that stored bytes have not changed, not that the state was right: only a resumed step does."
)

THROUGH_CACHE = (
    "It was read through the page cache: of bytes that were in the reader's memory it says what that memory holds, and "
    "nothing of the storage below. "
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """`covered_chunks`: different chunks that this turn and those before it have read. `one_chunk` and `one_shard` are
    the chances (0..1) that this run meets the damage where one chunk, or every chunk of one shard, is damaged."""

    total_chunks: int
    read_chunks: int
    covered_chunks: int
    turn: int
    turns: int
    one_chunk: float
    one_shard: float
    shard_count: int
    shard_chunks: int

    @property
    def read_ratio(self) -> float:
        return self.read_chunks / self.total_chunks if self.total_chunks else 1.0

    @property
    def covered_ratio(self) -> float:
        return self.covered_chunks / self.total_chunks if self.total_chunks else 1.0


def coverage(shard_chunk_counts: Sequence[int], read_chunks: int, sample_ratio: float, turn: int) -> Coverage:
    """Of one audit that read `read_chunks` chunks of shards with so many each. The shard is the median one."""
    counts = sorted(count for count in shard_chunk_counts if count)
    total = sum(counts)
    shard_chunks = counts[len(counts) // 2] if counts else 0
    ratio = sample_ratio or 1.0
    return Coverage(
        total_chunks=total,
        read_chunks=read_chunks,
        covered_chunks=max(read_chunks, covered_chunks(total, ratio, turn + 1)) if read_chunks else 0,
        turn=turn,
        turns=turns_to_cover(total, ratio),
        one_chunk=detection_probability(total, min(read_chunks, total), min(1, total)),
        one_shard=detection_probability(total, min(read_chunks, total), shard_chunks),
        shard_count=len(counts),
        shard_chunks=shard_chunks,
    )


def sentence(mode: str, found: Coverage | None, *, through_cache: bool = False) -> str:
    """What an audit of this mode that passed has proven; `found` None where nothing was read."""
    if mode == "seal":
        return f"Every byte was read once and its digest recorded; from now on a change can be proven. {UNCHANGED}"
    if mode == "store":
        return (
            "No data was read. The store says that it keeps every object with the check sum that it was sent with: "
            "that is the store's word, made when it took the object in, and no proof that its bytes can be read today."
        )
    if mode == "structure" or found is None:
        return (
            "No data was read: every file that should be there is there with its size. Of the bytes in them this says "
            "nothing."
        )
    below = THROUGH_CACHE if through_cache else ""
    if found.read_chunks >= found.total_chunks:
        return f"Every byte was read again and is as it was sealed. {below}{UNCHANGED}"
    return f"{_sample_sentence(found)} Of the chunks that were not read it proves nothing. {below}{UNCHANGED}"


def _sample_sentence(found: Coverage) -> str:
    text = (
        f"{found.read_chunks:,} of {found.total_chunks:,} chunks were read, chosen at random: if one chunk were "
        f"damaged, this run would have met it with a probability of {percent(found.one_chunk)}"
    )
    if found.shard_chunks > 1:
        text += (
            f"; if one shard of the {found.shard_count:,} were damaged throughout ({found.shard_chunks:,} chunks), "
            f"with {percent(found.one_shard)}"
        )
    if found.turn:
        text += (
            f". This is turn {found.turn + 1} of a rotation of {found.turns}: the turns so far have read "
            f"{percent(found.covered_ratio)} of the chunks"
        )
    return f"{text}."
