"""What a server's `/metrics` says, in Prometheus's own text format. Pure.

The parser is Prometheus's own; a text that is none is said to be none, and no figure is ever made up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

NO_PARSER = "reading its /metrics needs the package prometheus-client: pip install prometheus-client"
Labels = tuple[tuple[str, str], ...]


class NotMetrics(ValueError):
    """A text that is not in Prometheus's format, or nobody here to read it; one sentence."""


class Samples:
    """The samples of one scrape.

    Args:
        text: as it came.

    Raises:
        NotMetrics: it is no such text.
    """

    def __init__(self, text: str) -> None:
        self._values: dict[str, dict[Labels, float]] = {}
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            raise NotMetrics(NO_PARSER) from None
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = tuple(sorted(sample.labels.items()))
                    self._values.setdefault(sample.name, {})[labels] = float(sample.value)
        except Exception as exc:  # its parser raises whatever it stumbles over: ValueError, KeyError, …
            raise NotMetrics(f"its /metrics is not in Prometheus's format: {type(exc).__name__}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def sum(self, name: str) -> float | None:
        """A metric over all its labels (engines, models); None: it is not told, or is no number."""
        values = self._values.get(name)
        if not values:
            return None
        total = sum(values.values())  # not fsum: it raises where this is infinite or no number
        return total if math.isfinite(total) else None

    def mean(self, name: str) -> float | None:
        """A share over all its labels; None: it is not told, or is no number."""
        total = self.sum(name)
        return None if total is None else total / len(self._values[name])

    def by(self, name: str, label: str) -> dict[str, float]:
        """A metric apart by one of its labels, summed over the others."""
        found: dict[str, float] = {}
        for labels, value in self._values.get(name, {}).items():
            if (key := dict(labels).get(label)) is not None and math.isfinite(value):
                found[key] = found.get(key, 0.0) + value
        return {key: value for key, value in found.items() if math.isfinite(value)}

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of a metric's first sample; empty: it is not told."""
        return dict(next(iter(self._values.get(name, {})), ()))

    def buckets(self, name: str) -> list[tuple[float, float]]:
        """A histogram's (upper bound, samples up to it), by bound, over all other labels."""
        found: dict[float, float] = {}
        for bound, value in self.by(f"{name}_bucket", "le").items():
            try:
                found[float(bound)] = value
            except ValueError:
                continue
        return sorted(found.items())


def quantile(buckets: list[tuple[float, float]], share: float) -> float | None:
    """A quantile from cumulative buckets, interpolated within one as Prometheus does; None of none.

    None, too, where no bound is finite. What lies above the last finite one is given as that bound: nothing
    more is known of it.
    """
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0 or not math.isfinite(total) or all(math.isinf(bound) for bound, _ in buckets):
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound, up_to in buckets:
        if up_to >= wanted and up_to > below:
            if math.isinf(bound):
                return low
            value = low + (bound - low) * ((wanted - below) / (up_to - below))
            return value if math.isfinite(value) else None
        low, below = (low if math.isinf(bound) else bound), max(below, up_to)
    return low
