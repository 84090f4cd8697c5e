"""The streaming part: flights arrive, Spark aggregates them, and two processes die."""

from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING

from rich.console import Console

from raylog.demo import job
from raylog.demo.cluster import Cluster
from raylog.demo.flights import HOUR_MS, Event, closing
from raylog.demo.job import Batch, Progress
from raylog.demo.kills import Kill, plan
from raylog.demo.producing import DayStream, Writer
from raylog.demo.screen import DemoError, Steps, bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_PER_DAY = 1.0
"""Duration of a day of 2013. The watermark depends on it."""
STALLED_S = 300.0
"""The demonstration fails after this time without a batch."""
_LOOK_S = 0.2


def stream(
    session: "SparkSession", cluster: Cluster, days: Sequence[Sequence[Event]], say: Console
) -> None:
    """Write the days and wait until every window is in the result topic. Raises DemoError."""
    total = sum(map(len, days))
    checkpoint = cluster.data.parent / "checkpoint"
    with (
        DayStream(cluster.bootstrap, job.FLIGHTS, days, SECONDS_PER_DAY) as flights,
        job.running(session, cluster.bootstrap, checkpoint) as progress,
        bars(say) as display,
    ):
        watch = Watch(say, progress, flights, plan(cluster, job.FLIGHTS), total)
        written = Steps(display, "flights written (librdkafka)    ", total)
        read = Steps(display, "flights joined and counted (Spark)", total)
        while progress.read < total or watch.kills:
            watch.look()
            written.reached(flights.written)
            read.reached(min(total, progress.read))
        last = days[-1][-1]
        Writer(cluster.bootstrap).write(job.FLIGHTS, [closing(last, job.CLOSING_MS)])
        say.print("all flights are counted; an event eight days later closes the last windows")
        while progress.watermark_ms < last.timestamp_ms + HOUR_MS:
            watch.look()
    if progress.late:
        raise DemoError(f"{progress.late} flights came after the watermark: not comparable")
    say.print(
        f"written: {total / flights.seconds:,.0f} flights/s, paced by the demo; Spark: "
        f"{total / progress.seconds:,.0f} flights/s in {len(progress.batches)} micro-batches"
    )


class Watch:
    """Reports progress, and kills when it is time."""

    def __init__(
        self,
        say: Console,
        progress: Progress,
        flights: DayStream,
        kills: list[Kill],
        total: int,
    ) -> None:
        self.kills = kills
        """The kills to come."""
        self._say = say
        self._progress = progress
        self._flights = flights
        self._total = total
        self._wounded: str | None = None
        """What was killed, until the next batch is completed."""
        self._progressed_s = monotonic()

    def look(self) -> None:
        """Wait a moment, report new batches, and run due kills. Raises what went wrong."""
        sleep(_LOOK_S)
        self._flights.check()
        fresh = self._progress.fresh()
        for batch in fresh:
            self._tell(batch)
        self._flights.counted = self._progress.read
        if fresh:
            self._progressed_s = monotonic()
        elif monotonic() - self._progressed_s > STALLED_S:
            raise DemoError(f"no batch completed for {STALLED_S:.0f} s")
        if self._is_due():
            self._strike(self.kills.pop(0))

    def _is_due(self) -> bool:
        """Whether the next kill is due: enough is written, and a batch followed the last kill."""
        if not self.kills or not self._progress.batches or self._wounded is not None:
            return False
        return self._flights.written >= self.kills[0].after * self._total

    def _strike(self, kill: Kill) -> None:
        self._say.print(f"[bold red]SIGKILL[/bold red] for {kill.strike()}")
        self._wounded = kill.whom

    def _tell(self, batch: Batch) -> None:
        found = f"{batch.rows:,} flight{'s' * (batch.rows > 1)}"
        what = found if batch.rows else "no new flight, closes windows"
        at = datetime.fromtimestamp(batch.watermark_ms / 1000, UTC)
        mark = f"{at:%b %d}" if batch.watermark_ms else "none yet"
        self._say.print(
            f"  batch {batch.number}: {what}, {batch.seconds:.1f} s, watermark {mark}",
            highlight=False,
        )
        if self._wounded is not None:
            self._say.print(
                f"  [green]batch {batch.number} is committed: {self._wounded} is gone, work goes on"
            )
            self._wounded = None
