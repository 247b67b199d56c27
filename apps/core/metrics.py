"""What `/metrics` says, in Prometheus's names: base units, `_total` only on counters, no checkpoint or drill ids.

Every number is read from the rows when it is asked for, so any web process answers for all of them. Each app has a
`metrics.families()`; the composition root lists them. A counter counts rows: where old rows are pruned it starts
again lower, which Prometheus takes for a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Families = Iterable[Metric]
Source = Callable[[], Families]
Sample = tuple[tuple[str, ...], float | None]
"""The labels' values, and the value; None where it was not measured, which leaves the sample out."""


def gauge(name: str, told: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    return _filled(GaugeMetricFamily(name, told, labels=labels), samples)


def counter(name: str, told: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """`name` without its `_total`."""
    return _filled(CounterMetricFamily(name, told, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    return family


def exposition(sources: Iterable[Source]) -> bytes:
    """All families in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(tuple(sources)))
    return generate_latest(registry)


class _Collected:
    def __init__(self, sources: tuple[Source, ...]) -> None:
        self._sources = sources

    def describe(self) -> list[Metric]:
        return []  # nothing is read before somebody asks

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            yield from source()
