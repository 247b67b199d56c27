"""How long the storage part takes for sizes and reader counts that were never drilled, from measured ceilings and past
drills; its error on those very drills; and what an objective would need. Pure.

The model: floor = bytes / the rate that so many readers can get at most; seconds = fixed + floor / efficiency. The
rates are ceilings that were measured on the tier, `fixed` and `efficiency` are fitted to its drills (medians of slopes,
so that one odd drill moves nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from statistics import mean, median

MIN_FOR_FIT = 3
MIN_FOR_SHOWN_ERROR = 8
MAX_FITTED = 40
KNEE_SHARE = 0.85
FLOOR_APART = 1.1
"""Two drills whose floors differ by less than this ratio say nothing about the slope between them."""
SIZES = (("8B", 105_000_000_000), ("70B", 912_000_000_000), ("405B", 5_290_000_000_000), ("1T", 18_000_000_000_000))
"""Checkpoints with optimizer state, as MLPerf Storage counts them."""
RANK_COUNTS = (8, 64, 512, 4096, 16_384)


@dataclass(frozen=True)
class Ceiling:
    """The best rate that `reader_count` readers together were measured to get."""

    reader_count: int
    bytes_per_second: float


@dataclass(frozen=True)
class Reading:
    """One round of a passed drill: all of `total_bytes`, divided among `reader_count` nodes, until the slowest had its
    bytes."""

    total_bytes: int
    reader_count: int
    seconds: float


@dataclass(frozen=True)
class Rates:
    """What so many readers together get at most, by measured reader counts in ascending order; more readers never get
    less."""

    points: tuple[Ceiling, ...]

    @property
    def one_reader(self) -> float:
        return max(one.bytes_per_second / one.reader_count for one in self.points)

    @property
    def together(self) -> float:
        return self.points[-1].bytes_per_second

    @property
    def measured_readers(self) -> int:
        return self.points[-1].reader_count

    @property
    def has_knee(self) -> bool:
        """The most readers got clearly less than as many times one: the storage's own limit was seen."""
        return self.together < KNEE_SHARE * self.measured_readers * self.one_reader

    def of(self, reader_count: int) -> float:
        """Between two measured counts on the straight line; with fewer than any measured, their share; with more, no
        more than was ever measured."""
        first = self.points[0]
        if reader_count <= first.reader_count:
            return first.bytes_per_second * reader_count / first.reader_count
        for low, high in pairwise(self.points):
            if reader_count <= high.reader_count:
                share = (reader_count - low.reader_count) / (high.reader_count - low.reader_count)
                return low.bytes_per_second + share * (high.bytes_per_second - low.bytes_per_second)
        return self.together

    def readers_for(self, bytes_per_second: float) -> int | None:
        """The fewest readers that get so much; None where no measurement did."""
        if bytes_per_second > self.together:
            return None
        low, high = 1, self.measured_readers
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.of(middle) >= bytes_per_second else (middle + 1, high)
        return low


@dataclass(frozen=True)
class Model:
    """`efficiency_ratio` of the floor that drills reach, `fixed_seconds` that no byte explains. `reading_count` drills
    stand behind it: 0 means that the floor itself is all that is known."""

    rates: Rates
    fixed_seconds: float
    efficiency_ratio: float
    reading_count: int

    def seconds(self, total_bytes: float, reader_count: int) -> float:
        return self.fixed_seconds + total_bytes / self.rates.of(reader_count) / self.efficiency_ratio


@dataclass(frozen=True)
class Checked:
    """A drill against what the drills before it would have predicted."""

    reading: Reading
    predicted_seconds: float


@dataclass(frozen=True)
class Error:
    """Over `count` drills: the mean absolute error, and the mean error (positive: predicted too long), as ratios of
    what was measured."""

    count: int
    mape_ratio: float
    bias_ratio: float


@dataclass(frozen=True)
class Need:
    """What an objective needs for one size. `bytes_per_second` is None where other phases alone exceed it;
    `reader_count` None where no number of readers gets there at the rate that the tier was measured to give."""

    bytes_per_second: float | None
    reader_count: int | None


def rates(ceilings: Sequence[Ceiling]) -> Rates | None:
    """The best of each reader count; None without a measurement."""
    best: dict[int, float] = {}
    for one in ceilings:
        best[one.reader_count] = max(best.get(one.reader_count, 0.0), one.bytes_per_second)
    counts = sorted(best)
    rising = accumulate((best[count] for count in counts), max)
    points = tuple(Ceiling(count, rate) for count, rate in zip(counts, rising, strict=True))
    return Rates(points) if points else None


def fit(limits: Rates, readings: Sequence[Reading]) -> Model:
    """From the newest drills of the tier, newest first. With fewer than three, or all of one floor, the part that is
    fixed cannot be told from the rest, and is 0."""
    pairs = [(one.total_bytes / limits.of(one.reader_count), one.seconds) for one in readings[:MAX_FITTED]]
    if not pairs:
        return Model(limits, 0.0, 1.0, 0)
    slopes = [
        (late - soon) / (long - short)
        for (short, soon), (long, late) in combinations(sorted(pairs), 2)
        if long >= FLOOR_APART * short
    ]
    slope = median(slopes) if len(pairs) >= MIN_FOR_FIT and slopes else 0.0
    fixed = median([seconds - slope * floor for floor, seconds in pairs]) if slope > 0 else -1.0
    if fixed < 0:
        return Model(limits, 0.0, 1 / median([seconds / floor for floor, seconds in pairs]), len(pairs))
    return Model(limits, fixed, 1 / slope, len(pairs))


def check(limits: Rates, oldest_first: Sequence[Reading]) -> list[Checked]:
    """Each drill from the fourth on, against the model of those before it."""
    found = []
    for number in range(MIN_FOR_FIT, len(oldest_first)):
        model = fit(limits, oldest_first[number - 1 :: -1])
        reading = oldest_first[number]
        found.append(Checked(reading, model.seconds(reading.total_bytes, reading.reader_count)))
    return found


def error(checked: Sequence[Checked]) -> Error | None:
    """None without a drill that had others before it."""
    if not checked:
        return None
    ratios = [one.predicted_seconds / one.reading.seconds - 1 for one in checked]
    return Error(len(ratios), mean(abs(ratio) for ratio in ratios), mean(ratios))


def need(model: Model, total_bytes: float, objective_seconds: float, other_seconds: float = 0.0) -> Need:
    """Answered backwards: the rate together, and the fewest readers, with which the objective is met."""
    left = objective_seconds - other_seconds - model.fixed_seconds
    if left <= 0:
        return Need(None, None)
    wanted = total_bytes / (left * model.efficiency_ratio)
    return Need(wanted, model.rates.readers_for(wanted))
