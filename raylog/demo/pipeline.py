"""The steps of the demonstration: cluster, flights, Spark, kills, comparison, pictures."""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console

from raylog.demo import figures, flights, job, show
from raylog.demo.cluster import Cluster, create_topic, local_cluster
from raylog.demo.flights import Event
from raylog.demo.producing import Writer
from raylog.demo.reading import read_all
from raylog.demo.screen import DemoError, screen, step
from raylog.demo.spark import check_spark, spark_on
from raylog.demo.streaming import stream

BROKERS = 3
PARTITIONS = {job.FLIGHTS: 6, job.WEATHER: 1, job.AIRLINES: 1, job.DELAYS: 3}
YEAR_MONTHS = 12
OUTPUT = Path(".cache/demo")
DIFFERENCES_SHOWN = 10
WITHOUT_JAVA = "Without Java: make demo-clients, or python -m raylog.demo clients"


@dataclass(frozen=True, slots=True)
class Data:
    """The input."""

    days: list[list[Event]]
    weather: list[Event]
    airlines: list[Event]

    @property
    def count(self) -> int:
        """The number of flights."""
        return sum(map(len, self.days))


def load(months: int) -> Data:
    """Load the first months of 2013."""
    events = flights.load_flights(PARTITIONS[job.FLIGHTS], months=months)
    return Data(flights.days(events), flights.load_weather(months), flights.load_airlines())


def run(months: int, say: Console) -> bool:
    """Run all steps. Returns whether the result topic equals pandas' figures."""
    say.print("[bold]Flights from New York through Raylog and Spark, on one Ray cluster[/bold]")
    with step(say, "looking for Java 17 and Spark's Kafka connector"):
        check_spark()
    with local_cluster(say, BROKERS) as ready:
        data = load(months)
        cluster = ready()
        which = "the whole year" if months == YEAR_MONTHS else f"months: {months}; the year: --all"
        say.print(
            f"{data.count:,} flights of {len(data.days)} days ({which}), "
            f"{len(data.weather):,} rows of weather, {len(data.airlines)} airlines"
        )
        _fill(cluster, data, say)
        with spark_on(cluster, OUTPUT / "spark.log", say) as session:
            stream(session, cluster, data.days, say)
        return _judge(cluster, months, say)


def _fill(cluster: Cluster, data: Data, say: Console) -> None:
    """Create the topics with three replicas each, and write the tables."""
    keep = {"retention.ms": "-1", "min.insync.replicas": "2"}
    with step(say, "topics with three copies; weather and airlines written as tables"):
        for topic, partitions in PARTITIONS.items():
            compact = {"cleanup.policy": "compact"} if partitions == 1 else {}
            create_topic(cluster.bootstrap, topic, partitions, BROKERS, keep | compact)
        writer = Writer(cluster.bootstrap)
        writer.write(job.WEATHER, data.weather)
        writer.write(job.AIRLINES, data.airlines)


def _judge(cluster: Cluster, months: int, say: Console) -> bool:
    """Read the result back, compare it with pandas, and show it."""
    with step(say, "the same figures by pandas, from the files"):
        wanted = figures.expected(flights.data_folder(), months)
    began = monotonic()
    committed = read_all(cluster.bootstrap, job.DELAYS, read_committed=True)
    seconds = monotonic() - began
    written = len(read_all(cluster.bootstrap, job.DELAYS, read_committed=False))
    comparison = figures.compare(committed, wanted)
    _show(dict(map(figures.decode, committed)), say)
    say.print(
        f"result topic: {len(committed):,} rows read with read_committed in {seconds:.1f} s, "
        f"{written - len(committed):,} aborted rows skipped"
    )
    if comparison.agrees:
        say.print(f"[bold green]all {comparison.equal:,} rows equal those of pandas")
        return True
    say.print(
        f"[bold red]{len(comparison.differences):,} DIFFERENCES[/bold red], "
        f"{comparison.equal:,} of {len(wanted):,} rows are equal"
    )
    for line in comparison.differences[:DIFFERENCES_SHOWN]:
        say.print(f"  {line}", highlight=False)
    return False


def _show(rows: show.Rows, say: Console) -> None:
    if not rows:
        return
    say.print(show.carriers_table(rows))
    say.print(show.daily_plot(rows), highlight=False)
    picture = OUTPUT / "delays.png"
    show.draw(rows, picture)
    say.print(f"picture: {picture}", highlight=False)


def pipeline(
    *,
    months: Annotated[
        int, typer.Option(min=1, max=YEAR_MONTHS, help="So many months of 2013.")
    ] = 2,
    whole_year: Annotated[
        bool, typer.Option("--all", help="All 336,776 flights; takes some minutes more.")
    ] = False,
) -> None:
    """Stream flights through a Spark pipeline, exactly once, while two of its processes die."""
    from raylog.raydp_jobs.jars import JarsMissing
    from raylog.raydp_jobs.java import JavaMissing

    say = screen()
    began = monotonic()
    try:
        agrees = run(YEAR_MONTHS if whole_year else months, say)
    except (JavaMissing, JarsMissing) as failure:
        say.print(f"[red]{failure}.[/red]\n{WITHOUT_JAVA}")
        raise typer.Exit(2) from failure
    except ModuleNotFoundError as failure:
        say.print(f"[red]{failure.name} is missing:[/red] pip install 'raylog\\[spark,dev]'")
        raise typer.Exit(2) from failure
    except DemoError as failure:
        say.print(f"[red]{failure}")
        raise typer.Exit(2) from failure
    except KeyboardInterrupt:
        say.print("interrupted; all is cleaned up")
        raise typer.Exit(130) from None
    say.print(f"{monotonic() - began:.0f} s in all")
    raise typer.Exit(0 if agrees else 1)
