"""Which run holds a pipeline, according to records in a compacted topic.

Each run writes records under one key of its pipeline: first a claim, then a beat every few seconds,
and finally its end. Readers take them in log order and compare only offsets, never clocks of
different machines.

| the log has | who holds the pipeline |
|---|---|
| nothing, or a run that has reported its end | nobody |
| a run on this machine | that run, if its process exists |
| a run elsewhere | that run, if another beat comes within `SILENCE_S` on the reader's clock |
| several runs | the highest generation; among equals the one whose claim came first |

A claim takes the next generation. A run reads the log up to its claim, and up to each beat: if
another run holds the pipeline there, it is displaced. It writes a beat, and reads it back, after it
has taken its transactional epoch and before any row is written. So of two runs, the displaced one
either sees the other's claim, or has the older epoch, which the other one fences.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from raylog.raydp_jobs.pipelines.failures import PipelineFailed

BEAT_S = 3.0
"""How often a run reports that it is alive."""
SILENCE_S = 15.0
"""A run without a beat for this long has ended or is unreachable."""
VERSION = 1
"""Version of records; 0 is `raylog/run.json` in a checkpoint, from before there were records."""

STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
STOPPED = "stopped"
FINISHED = "finished"
"""The run has read everything, as its trigger says. Older builds also treat the word as an end."""
FAILED = "failed"
_LIVE = frozenset({STARTING, RUNNING, STOPPING})
_RUN, _STOP = "run", "stop"


class RunUnreadable(PipelineFailed):
    """A run's record was written by a newer build, or is damaged."""


@dataclass(frozen=True, slots=True)
class Place:
    """The process of a run."""

    host: str
    pid: int
    started: str
    """When it was started, in its system's format."""
    machine: str | None = None
    """Identifies the machine, its boot and pid namespace; None: the system has no such id."""

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" on {self.host}" if self.host else "")


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's last reported state."""

    name: str
    place: Place
    state: str
    since_ms: int
    """When the run began; all times are from its own clock."""
    run: str = ""
    """The run's unique id; "" in version 0."""
    generation: int = 0
    beat: int = 0
    """The number of reports so far."""
    at_ms: int | None = None
    """When this was reported."""
    batch_id: int | None = None
    batch_rows: int = 0
    rows: int = 0
    """Rows of all batches of this run."""
    rows_per_s: float = 0.0
    """Of the last batch."""
    behind: int | None = None
    """How many offsets the sources had beyond the last batch's end when it began."""
    batch_at_ms: int | None = None
    """When the last batch ended."""
    error: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the run has not reported its end."""
        return self.state in _LIVE

    @property
    def batch_ago_ms(self) -> int | None:
        """The age of the last batch at the time of this report."""
        if self.at_ms is None or self.batch_at_ms is None:
            return None
        return max(0, self.at_ms - self.batch_at_ms)

    def after(self, progress: dict[str, Any], now_ms: int) -> RunState:
        """Return the state after a batch, given Spark's progress report."""
        rows = int(progress["numInputRows"])
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        return replace(
            self,
            batch_id=int(progress["batchId"]),
            batch_rows=rows,
            rows=self.rows + rows,
            rows_per_s=rows / seconds if seconds else 0.0,
            behind=behind(progress),
            batch_at_ms=now_ms,
        )

    def describe(self) -> str:
        """Describe the last batch."""
        text = f"batch {self.batch_id}: {self.batch_rows:,} rows, {self.rows_per_s:,.0f} rows/s"
        return text if self.behind is None else f"{text}, {self.behind:,} behind"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request that a run end."""

    run: str
    is_now: bool = False
    """Whether to abandon the batch that is being written."""


def behind(progress: dict[str, Any]) -> int | None:
    """Return the number of offsets beyond the batch's end; None if Spark does not report it."""
    total = 0
    for source in progress["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(end, dict) or not isinstance(latest, dict):
            return None
        for topic, partitions in latest.items():
            for partition, offset in partitions.items():
                total += max(0, offset - end.get(topic, {}).get(partition, 0))
    return total


# -- records --------------------------------------------------------------------------------------


def run_key(name: str) -> bytes:
    """Return the key of a pipeline's run records."""
    return json.dumps([name, _RUN]).encode()


def stop_key(name: str) -> bytes:
    """Return the key of a pipeline's stop requests."""
    return json.dumps([name, _STOP]).encode()


def encode(message: RunState | StopRequest) -> bytes:
    """Encode a record's value."""
    return json.dumps({"version": VERSION, **asdict(message)}, separators=(",", ":")).encode()


def decode_state(text: bytes | str, where: str) -> RunState:
    """Decode a run's state; raise RunUnreadable naming `where` it is."""
    document = _document(text, where)
    try:
        if "place" not in document:  # version 0
            place = Place("", document.pop("pid"), document.pop("started"))
        else:
            place = Place(**_known(Place, document.pop("place")))
        return RunState(place=place, **_known(RunState, document))
    except (TypeError, KeyError, AttributeError) as failure:
        raise RunUnreadable(f"{where} is damaged: {failure}") from failure


def _decode_stop(text: bytes, where: str) -> StopRequest:
    document = _document(text, where)
    try:
        return StopRequest(**_known(StopRequest, document))
    except TypeError as failure:
        raise RunUnreadable(f"{where} is damaged: {failure}") from failure


def _document(text: bytes | str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        version = found.get("version", 0)
    except (ValueError, AttributeError) as failure:
        raise RunUnreadable(f"{where} is damaged: {failure}") from failure
    if version not in range(VERSION + 1):
        raise RunUnreadable(
            f"{where} is of version {version}, this build knows 0 to {VERSION}: a newer build has "
            "written it"
        )
    return dict(found)


def _known(kind: type[Any], document: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in document.items() if name in names}


# -- evaluation -----------------------------------------------------------------------------------


class Standing(Enum):
    """What is known about a run without waiting for another beat."""

    ENDED = "ended"
    """It has reported its end, or there was no run."""
    RUNS = "runs"
    GONE = "gone"
    """Its process no longer exists."""
    UNKNOWN = "unknown"
    """It may run on another machine: wait for a beat."""


@dataclass(slots=True)
class RunWatch:
    """Evaluates one pipeline's records, given in log order."""

    name: str
    holder: RunState | None = None
    """The newest state of the run that holds or last held the pipeline."""
    stop: StopRequest | None = None
    """The newest request."""
    _keys: dict[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keys = {run_key(self.name): _RUN, stop_key(self.name): _STOP}

    def add(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Add the next record of the log, of any pipeline. Raises RunUnreadable."""
        kind = self._keys.get(bytes(key or b""))
        if kind == _STOP:
            self.stop = None if value is None else _decode_stop(value, where)
        elif kind == _RUN and value is None:
            self.holder = None
        elif kind == _RUN and value is not None:
            state = decode_state(value, where)
            if self._counts(state):
                self.holder = state

    def _counts(self, state: RunState) -> bool:
        holder = self.holder
        if holder is None or state.run == holder.run:
            return True
        return state.generation > holder.generation

    def next_generation(self) -> int:
        """Return the generation for a run that takes the pipeline now."""
        return 1 if self.holder is None else self.holder.generation + 1

    def is_held_by(self, run: str) -> bool:
        """Return whether a run holds the pipeline."""
        return self.holder is not None and self.holder.run == run

    def asked_to_stop(self, run: str) -> StopRequest | None:
        """Return the request to stop a run, if any."""
        return self.stop if self.stop is not None and self.stop.run == run else None

    def standing(self, machine: str | None, is_there: bool) -> Standing:
        """Evaluate the holder from this `machine`; `is_there`: whether its process exists here."""
        if self.holder is None or not self.holder.is_live:
            return Standing.ENDED
        if machine is None or self.holder.place.machine != machine:
            return Standing.UNKNOWN
        return Standing.RUNS if is_there else Standing.GONE
