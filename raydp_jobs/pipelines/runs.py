"""Who runs a pipeline: what its records in a compacted topic come to.

Each run writes records of a pipeline's one key: first a claim, then a beat every few seconds, and
its end. They are read in the order of the log, whose offsets are all that is compared: no clock of
one machine is held against another's.

| the log has | who holds the pipeline |
|---|---|
| nothing, or a run that has told of its end | nobody |
| a run on this machine | it does if its process is there |
| a run elsewhere | it does if another beat comes within `SILENCE_S` of the reader's own time |
| several runs | that of the highest generation; of equal ones that whose claim came first |

A claim takes the next generation. A run reads the log behind its claim, and behind each beat: it is
displaced if another holds the pipeline there. It writes a beat, and reads it back, after it has
taken its transactional epoch and before any row is written. So of two runs, either the one that was
displaced sees the other's claim, or its epoch is the older one, which the other's fences.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from raylog.raydp_jobs.pipelines.failures import PipelineFailed

BEAT_S = 3.0
"""How often a run tells that it is there."""
SILENCE_S = 15.0
"""A run of which nothing comes for so long has ended, or cannot be reached."""
VERSION = 1
"""Of records; 0 is `raylog/run.json` in a checkpoint, as it was before there were records."""

STARTING = "starting"
RUNNING = "running"
STOPPING = "stopping"
STOPPED = "stopped"
FINISHED = "finished"
"""It has read all that there was, as its trigger says. Older builds know the word as an end."""
FAILED = "failed"
_LIVE = frozenset({STARTING, RUNNING, STOPPING})
_RUN, _STOP = "run", "stop"


class RunUnreadable(PipelineFailed):
    """What a run has told is of a build that is newer, or damaged."""


@dataclass(frozen=True, slots=True)
class Place:
    """The process of a run."""

    host: str
    pid: int
    started: str
    """When it was started, as its system words it."""
    machine: str | None = None
    """What no other machine has, nor this one after a boot; None: it tells nothing like that."""

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" on {self.host}" if self.host else "")


@dataclass(frozen=True, slots=True)
class RunState:
    """One run, as it was last told."""

    name: str
    place: Place
    state: str
    since_ms: int
    """When the run began; all times are of its own clock."""
    run: str = ""
    """What no other run has; "": one of version 0."""
    generation: int = 0
    beat: int = 0
    """Counts what the run has told."""
    at_ms: int | None = None
    """When it was told."""
    batch_id: int | None = None
    batch_rows: int = 0
    rows: int = 0
    """Of all batches of this run."""
    rows_per_s: float = 0.0
    """Of the last batch."""
    behind: int | None = None
    """Offsets of the sources that were not read yet when the last batch began."""
    batch_at_ms: int | None = None
    """When the last batch ended."""
    error: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the run has not told of its end."""
        return self.state in _LIVE

    @property
    def batch_ago_ms(self) -> int | None:
        """How old the last batch was when this was told."""
        if self.at_ms is None or self.batch_at_ms is None:
            return None
        return max(0, self.at_ms - self.batch_at_ms)

    def after(self, progress: dict[str, Any], now_ms: int) -> RunState:
        """The same run after a batch, as Spark tells of it."""
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

    def told(self) -> str:
        """The last batch, in words."""
        told = f"batch {self.batch_id}: {self.batch_rows:,} rows, {self.rows_per_s:,.0f} rows/s"
        return told if self.behind is None else f"{told}, {self.behind:,} behind"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody wants a run to end."""

    run: str
    is_now: bool = False
    """Whether the batch that is being written is given up."""


def behind(progress: dict[str, Any]) -> int | None:
    """How many offsets the sources had beyond the batch's end; None if Spark does not tell."""
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
    """The key of what a pipeline's runs tell."""
    return json.dumps([name, _RUN]).encode()


def stop_key(name: str) -> bytes:
    """The key of what others want of a pipeline's run."""
    return json.dumps([name, _STOP]).encode()


def encode(told: RunState | StopRequest) -> bytes:
    """A record's value."""
    return json.dumps({"version": VERSION, **asdict(told)}, separators=(",", ":")).encode()


def decode_state(text: bytes | str, where: str) -> RunState:
    """A run's state; raises RunUnreadable, which says `where` it stands."""
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


# -- what they come to ----------------------------------------------------------------------------


class Standing(Enum):
    """What is known of a run without waiting for another beat."""

    ENDED = "ended"
    """It has told so, or there was none."""
    RUNS = "runs"
    GONE = "gone"
    """Its process is not there any more."""
    UNKNOWN = "unknown"
    """It runs on another machine, if it does: wait for a beat."""


@dataclass(slots=True)
class RunWatch:
    """One pipeline's records, given in the order of the log."""

    name: str
    holder: RunState | None = None
    """The newest word of the run that holds the pipeline, or did."""
    stop: StopRequest | None = None
    """The newest request."""
    _keys: dict[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keys = {run_key(self.name): _RUN, stop_key(self.name): _STOP}

    def add(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take the next record of the log, of any pipeline. Raises RunUnreadable."""
        kind = self._keys.get(bytes(key or b""))
        if kind == _STOP:
            self.stop = None if value is None else _decode_stop(value, where)
        elif kind == _RUN and value is None:
            self.holder = None
        elif kind == _RUN and value is not None:
            told = decode_state(value, where)
            if self._counts(told):
                self.holder = told

    def _counts(self, told: RunState) -> bool:
        holder = self.holder
        if holder is None or told.run == holder.run:
            return True
        return told.generation > holder.generation

    def next_generation(self) -> int:
        """That of a run which takes the pipeline now."""
        return 1 if self.holder is None else self.holder.generation + 1

    def is_held_by(self, run: str) -> bool:
        """Whether a run holds the pipeline."""
        return self.holder is not None and self.holder.run == run

    def asked_to_stop(self, run: str) -> StopRequest | None:
        """What somebody wants of a run."""
        return self.stop if self.stop is not None and self.stop.run == run else None

    def standing(self, machine: str | None, is_there: bool) -> Standing:
        """What is known of the holder on a machine; `is_there` says whether it has its process."""
        if self.holder is None or not self.holder.is_live:
            return Standing.ENDED
        if machine is None or self.holder.place.machine != machine:
            return Standing.UNKNOWN
        return Standing.RUNS if is_there else Standing.GONE
