"""Turns samples into a table of ratios, for the terminal and the documentation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table

from bench.workloads import Metric, Sample


@dataclass(slots=True)
class Row:
    """One metric of one workload. Samples come in pairs, with the baseline's first."""

    workload: str
    metric: Metric
    pairs: list[tuple[float, float]] = field(default_factory=list)
    cpu_per_gb: list[tuple[float, float]] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        """The medians of the baseline's and of the candidate's samples."""
        return median(a for a, _ in self.pairs), median(b for _, b in self.pairs)

    @property
    def ratio(self) -> float:
        """The median over the pairs of candidate / baseline."""
        return median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """Candidate / baseline of each pair. If the baseline is 0, the ratio is 1."""
        return [b / a if a else 1.0 for a, b in self.pairs]

    @property
    def is_better(self) -> bool:
        """Whether the candidate is at least as good."""
        return self.ratio >= 1 if self.metric.better == "higher" else self.ratio <= 1

    def cells(self) -> list[str]:
        """The text of the columns of HEADINGS."""
        baseline, candidate = self.medians
        unit = self.metric.unit
        spread = f"{min(self.ratios):.2f}-{max(self.ratios):.2f}" if len(self.pairs) > 1 else ""
        cpu = ""
        if self.cpu_per_gb:
            ours, theirs = (median(values) for values in zip(*self.cpu_per_gb, strict=True))
            cpu = f"{ours:.1f} / {theirs:.1f}"
        return [
            self.workload,
            f"{self.metric.name}, {unit}",
            _figure(baseline),
            _figure(candidate),
            f"{self.ratio:.2f}",
            spread,
            cpu,
        ]


HEADINGS = ("workload", "metric", "baseline", "candidate", "ratio", "spread", "broker CPU s/GB")


def rows_of(
    workload: str, metrics: Iterable[Metric], pairs: Sequence[tuple[Sample, Sample]]
) -> list[Row]:
    """A row per metric, from the (baseline, candidate) samples of one workload."""
    rows = []
    for metric in metrics:
        row = Row(workload, metric)
        for baseline, candidate in pairs:
            row.pairs.append((baseline.values[metric.name], candidate.values[metric.name]))
            if baseline.broker_cpu_s and candidate.broker_cpu_s:
                row.cpu_per_gb.append((_cpu_per_gb(baseline), _cpu_per_gb(candidate)))
        rows.append(row)
    return rows


def _cpu_per_gb(sample: Sample) -> float:
    return (sample.broker_cpu_s or 0.0) / (sample.payload_bytes / 1e9)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def headings(baseline: str, candidate: str) -> list[str]:
    """HEADINGS with the peers' names."""
    names = {"baseline": baseline, "candidate": candidate}
    return [names.get(heading, heading) for heading in HEADINGS]


def terminal(rows: Sequence[Row], baseline: str, candidate: str) -> Table:
    """The table for people. Ratios that are no worse are green."""
    table = Table(title=f"{candidate} / {baseline}")
    for number, heading in enumerate(headings(baseline, candidate)):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in rows:
        cells = row.cells()
        cells[4] = f"[{'green' if row.is_better else 'red'}]{cells[4]}"
        table.add_row(*cells)
    return table


def markdown(rows: Sequence[Row], baseline: str, candidate: str) -> str:
    """The table for the documentation."""
    lines = [headings(baseline, candidate), ["---"] * 2 + ["---:"] * (len(HEADINGS) - 2)]
    lines += [row.cells() for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
