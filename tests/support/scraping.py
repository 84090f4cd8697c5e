"""A broker's metrics, read as Prometheus reads them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

SCRAPE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Scraped:
    """The samples of one or more scrapes."""

    samples: list[Sample]

    def matching(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples of that name with these labels and any others."""
        wanted = labels.items()
        return [one for one in self.samples if one.name == name and wanted <= one.labels.items()]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the matching samples' values, as sum() in PromQL."""
        return sum(one.value for one in self.matching(name, **labels))

    def values(self, name: str, label: str) -> set[str]:
        """Return the values of a label."""
        return {one.labels[label] for one in self.matching(name)}


def scrape(*urls: str) -> Scraped:
    """Scrape brokers, each as one target; fail if a series comes twice."""
    samples: list[Sample] = []
    for url in urls:
        with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as answer:
            text = answer.read().decode()
        parsed = [one for family in text_string_to_metric_families(text) for one in family.samples]
        assert len({*map(_series, parsed)}) == len(parsed)
        samples += parsed
    return Scraped(samples)


def _series(sample: Sample) -> tuple[str, Iterable[tuple[str, str]]]:
    return sample.name, tuple(sorted(sample.labels.items()))
